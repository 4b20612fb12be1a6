#include "shardloom/optim/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace shardloom::optim {
namespace {

constexpr int kPayloadBits = 32;
constexpr int64_t kPayloadMask = (int64_t{1} << kPayloadBits) - 1;
constexpr int kLowestExponent = -1074;
constexpr int kMantissaBits = 53;
constexpr int64_t kAddsBeforeCarry = int64_t{1} << 30;

constexpr int kNan = ExactSum::kPayloads;
constexpr int kPositiveInfinity = kNan + 1;
constexpr int kNegativeInfinity = kNan + 2;

// Brings all payloads but the top one into [0, 2^32); the top one carries the sign.
void carry_payloads(ExactSum::Limbs& limbs) {
  for (int i = 0; i + 1 < ExactSum::kPayloads; ++i) {
    limbs[i + 1] += limbs[i] >> kPayloadBits;
    limbs[i] &= kPayloadMask;
  }
}

// Bits [first, first + 64) of non-negative, carried payloads.
uint64_t bits_from(const ExactSum::Limbs& limbs, int first) {
  const auto payload = [&](int i) {
    return i < ExactSum::kPayloads ? static_cast<uint64_t>(limbs[i]) : 0;
  };
  const int limb = first / kPayloadBits, shift = first % kPayloadBits;
  const uint64_t low = payload(limb) | payload(limb + 1) << kPayloadBits;
  return shift == 0 ? low : low >> shift | payload(limb + 2) << (64 - shift);
}

bool any_bit_below(const ExactSum::Limbs& limbs, int end) {
  for (int i = 0; i < end / kPayloadBits; ++i) {
    if (limbs[i] != 0) return true;
  }
  return (limbs[end / kPayloadBits] & ((int64_t{1} << end % kPayloadBits) - 1)) != 0;
}

// Of non-negative, carried payloads.
double rounded(const ExactSum::Limbs& limbs) {
  int top = ExactSum::kPayloads - 1;
  while (top > 0 && limbs[top] == 0) --top;
  const int bits = top * kPayloadBits + std::bit_width(static_cast<uint64_t>(limbs[top]));
  if (bits <= kMantissaBits)
    return std::ldexp(static_cast<double>(bits_from(limbs, 0)), kLowestExponent);
  const int lowest_kept = bits - kMantissaBits;
  uint64_t mantissa = bits_from(limbs, lowest_kept) & ((uint64_t{1} << kMantissaBits) - 1);
  const bool half = (bits_from(limbs, lowest_kept - 1) & 1) != 0;
  if (half && ((mantissa & 1) != 0 || any_bit_below(limbs, lowest_kept - 1))) ++mantissa;
  return std::ldexp(static_cast<double>(mantissa), lowest_kept + kLowestExponent);
}

}  // namespace

ExactSum ExactSum::of_limbs(const Limbs& limbs) {
  ExactSum sum;
  sum.limbs_ = limbs;
  sum.carry();
  return sum;
}

void ExactSum::carry() {
  carry_payloads(limbs_);
  open_adds_ = 0;
}

void ExactSum::add(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  const bool negative = bits >> 63 != 0;
  const int exponent = static_cast<int>(bits >> 52 & 0x7FF);
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (exponent == 0x7FF) {
    ++limbs_[mantissa != 0 ? kNan : negative ? kNegativeInfinity : kPositiveInfinity];
    return;
  }
  if (exponent > 0) mantissa |= uint64_t{1} << 52;
  const int first = exponent > 0 ? exponent - 1 : 0;  // bit of the sum where the mantissa begins
  const int limb = first / kPayloadBits, shift = first % kPayloadBits;
  const uint64_t low = mantissa << shift;
  const uint64_t high = shift == 0 ? 0 : mantissa >> (64 - shift);
  const int64_t sign = negative ? -1 : 1;
  limbs_[limb] += sign * static_cast<int64_t>(low & kPayloadMask);
  limbs_[limb + 1] += sign * static_cast<int64_t>(low >> kPayloadBits);
  limbs_[limb + 2] += sign * static_cast<int64_t>(high);
  if (++open_adds_ == kAddsBeforeCarry) carry();
}

ExactSum& ExactSum::operator+=(const ExactSum& other) {
  const Limbs added = other.limbs();
  carry();
  for (int i = 0; i < kLimbs; ++i) limbs_[i] += added[i];
  open_adds_ = 1;
  return *this;
}

ExactSum::Limbs ExactSum::limbs() const {
  Limbs carried = limbs_;
  carry_payloads(carried);
  return carried;
}

double ExactSum::value() const {
  if (limbs_[kNan] != 0 || (limbs_[kPositiveInfinity] != 0 && limbs_[kNegativeInfinity] != 0))
    return std::numeric_limits<double>::quiet_NaN();
  if (limbs_[kPositiveInfinity] != 0) return std::numeric_limits<double>::infinity();
  if (limbs_[kNegativeInfinity] != 0) return -std::numeric_limits<double>::infinity();
  Limbs carried = limbs();
  if (carried[kPayloads - 1] >= 0) return rounded(carried);
  for (int i = 0; i < kPayloads; ++i) carried[i] = -carried[i];
  carry_payloads(carried);
  return -rounded(carried);
}

}  // namespace shardloom::optim
