// exp() that the compiler can vectorise.
#pragma once

#include <bit>
#include <cstdint>

namespace shardloom::ops {

// e^x to 2e-7 relative (polynomial of Cephes' expf after x = n ln 2 + r); x is clamped to
// [-87, 88], so that neither the result nor its inverse leaves the normal numbers. NaN stays NaN.
inline float fast_exp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
  constexpr float kShift = 12582912.0f;
  const float shifted = x * 1.44269504088896341f + kShift;
  const float n = shifted - kShift;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127u) << 23);
  return p * power;
}

}  // namespace shardloom::ops
