// A sum of doubles without rounding: the same bits in any order and any grouping, on any number of
// threads and processes (a fixed-point "long accumulator", Kulisch 1986).
#pragma once

#include <array>
#include <cstdint>

namespace shardloom::optim {

class ExactSum {
 public:
  // 32 bits of payload in each int64 from 2^-1074 to above the largest double, room for 2^62 terms
  // at the top, then how many NaN, +inf and -inf were added.
  static constexpr int kPayloads = 68;
  static constexpr int kLimbs = kPayloads + 3;
  using Limbs = std::array<int64_t, kLimbs>;

  ExactSum() = default;
  // The sum that up to 2^30 limbs() add up to, element by element.
  static ExactSum of_limbs(const Limbs& limbs);

  void add(double value);
  ExactSum& operator+=(const ExactSum& other);

  // Carried: sums over up to 2^30 processes do not overflow.
  Limbs limbs() const;
  // The sum rounded once, to nearest, ties to even; infinite when it is larger than any double. NaN
  // when a NaN or infinities of both signs were added, else the infinity that was.
  double value() const;

 private:
  void carry();

  Limbs limbs_{};
  int64_t open_adds_ = 0;  // since the last carry()
};

}  // namespace shardloom::optim
