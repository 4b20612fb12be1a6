#include "shardloom/checkpoint/dcp/crc32.h"

#include <zlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace shardloom::checkpoint::dcp {
namespace {

uint32_t zlib_crc(const char* data, size_t size, uint32_t crc) {
  return static_cast<uint32_t>(crc32_z(crc, reinterpret_cast<const Bytef*>(data), size));
}

#if defined(__x86_64__)

#define SHARDLOOM_CLMUL __attribute__((target("pclmul,sse4.1")))

constexpr size_t kStep = 64;
// Below this the set-up costs more than it saves.
constexpr size_t kSmallest = 4 * kStep;

SHARDLOOM_CLMUL inline __m128i load(const char* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

// What `state` contributes to the 128 bits that lie as far on as the keys stand for.
SHARDLOOM_CLMUL inline __m128i fold(__m128i state, __m128i keys, __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(state, keys, 0x00);
  const __m128i high = _mm_clmulepi64_si128(state, keys, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

// `size` is a multiple of kStep, at least kSmallest. Keys: x^(512+32), x^(512-32) and x^(128+32),
// x^(128-32) modulo the polynomial, reflected (Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ", Intel 2009).
SHARDLOOM_CLMUL uint32_t folded_crc(const char* data, size_t size, uint32_t crc) {
  const __m128i by_512_bits = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
  const __m128i by_128_bits = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
  __m128i a = _mm_xor_si128(load(data), _mm_cvtsi32_si128(static_cast<int>(~crc)));
  __m128i b = load(data + 16);
  __m128i c = load(data + 32);
  __m128i d = load(data + 48);
  for (size_t at = kStep; at < size; at += kStep) {
    a = fold(a, by_512_bits, load(data + at));
    b = fold(b, by_512_bits, load(data + at + 16));
    c = fold(c, by_512_bits, load(data + at + 32));
    d = fold(d, by_512_bits, load(data + at + 48));
  }
  a = fold(a, by_128_bits, b);
  a = fold(a, by_128_bits, c);
  a = fold(a, by_128_bits, d);
  alignas(16) char rest[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(rest), a);
  // All ones make zlib begin with a state of zero: the state is in the bytes.
  return zlib_crc(rest, sizeof(rest), ~uint32_t{0});
}

#undef SHARDLOOM_CLMUL

#endif

}  // namespace

uint32_t crc32_of(std::string_view bytes, uint32_t crc) {
#if defined(__x86_64__)
  static const bool kHasClmul =
      __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;
  if (kHasClmul && bytes.size() >= kSmallest) {
    const size_t folded = bytes.size() / kStep * kStep;
    crc = folded_crc(bytes.data(), folded, crc);
    bytes.remove_prefix(folded);
  }
#endif
  return zlib_crc(bytes.data(), bytes.size(), crc);
}

}  // namespace shardloom::checkpoint::dcp
