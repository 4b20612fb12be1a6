// Exact 22-bit products with 16-bit multipliers: weight = high * 2^15 + low, both 16-bit, and
// _mm256_madd_epi16 sums two taps at once. Sums wrap modulo 2^32, so only the final value, which
// fits, matters.
#include "shardloom/data/image/resample.h"

#ifdef __AVX2__

#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace shardloom::data::resample {
namespace {

constexpr int kLowBits = 15;

// Two neighbouring taps, as the 16-bit halves of each word.
struct TapPair {
  int32_t low;
  int32_t high;
};

struct TapPairs {
  int per_output = 0;
  std::vector<TapPair> pairs;

  explicit TapPairs(const Axis& axis) : per_output((axis.max_count + 1) / 2) {
    pairs.reserve(static_cast<size_t>(axis.out_size) * per_output);
    for (int i = 0; i < axis.out_size; ++i) {
      const int32_t* weights = axis.weights_of(i);
      for (int k = 0; k < axis.max_count; k += 2) {
        const int32_t second = k + 1 < axis.max_count ? weights[k + 1] : 0;
        pairs.push_back(
            {pack(low(weights[k]), low(second)), pack(weights[k] >> kLowBits, second >> kLowBits)});
      }
    }
  }
  const TapPair* of(int i) const { return &pairs[static_cast<size_t>(i) * per_output]; }

 private:
  static int32_t low(int32_t weight) { return weight & ((1 << kLowBits) - 1); }
  static int32_t pack(int32_t first, int32_t second) {
    const uint32_t both = static_cast<uint32_t>(first & 0xffff) | static_cast<uint32_t>(second)
                                                                      << 16;
    return static_cast<int32_t>(both);
  }
};

// Sums of products in two parts.
struct Sums {
  __m256i low = _mm256_set1_epi32(1 << (kFractionBits - 1));
  __m256i high = _mm256_setzero_si256();

  void add(__m256i taps, TapPair weights) {
    low = _mm256_add_epi32(low, _mm256_madd_epi16(taps, _mm256_set1_epi32(weights.low)));
    high = _mm256_add_epi32(high, _mm256_madd_epi16(taps, _mm256_set1_epi32(weights.high)));
  }
  __m256i value() const {
    const __m256i sum = _mm256_add_epi32(low, _mm256_slli_epi32(high, kLowBits));
    return _mm256_srai_epi32(sum, kFractionBits);
  }
};

// 16 bytes hold 5 pixels: taps 0, 1 (and 2, 3) as 16-bit pairs R0 R1, G0 G1, B0 B1, 0 0.
__m256i spread_mask(char from) {
  const char z = -128;
  const char a = from;
  const char b = static_cast<char>(from + 3);
  auto at = [](char position, int channel) { return static_cast<char>(position + channel); };
  const __m128i lane =
      _mm_setr_epi8(a, z, b, z, at(a, 1), z, at(b, 1), z, at(a, 2), z, at(b, 2), z, z, z, z, z);
  return _mm256_broadcastsi128_si256(lane);
}

__m256i load_lanes(const uint8_t* a, const uint8_t* b) {
  return _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(b),
                             reinterpret_cast<const __m128i*>(a));
}

void store_pixel(uint8_t* out, __m128i bytes) {
  const int32_t pixel = _mm_cvtsi128_si32(bytes);
  std::memcpy(out, &pixel, 4);  // the fourth byte is overwritten by the next pixel
}

// Output pixels [0, end) of two rows, one in each half of the registers.
void horizontal_two_rows(const Axis& axis,
                         const TapPairs& taps,
                         const uint8_t* const in[2],
                         uint8_t* const out[2],
                         int end) {
  const __m256i taps_01 = spread_mask(0);
  const __m256i taps_23 = spread_mask(6);
  const int num_pairs = taps.per_output;
  const TapPair* pair = taps.of(0);
  for (int x = 0; x < end; ++x) {
    const size_t offset = static_cast<size_t>(axis.first[x]) * 3;
    const uint8_t* a = in[0] + offset;
    const uint8_t* b = in[1] + offset;
    Sums sums;
    int p = 0;
    for (; p + 2 <= num_pairs; p += 2, pair += 2, a += 12, b += 12) {
      const __m256i pixels = load_lanes(a, b);
      sums.add(_mm256_shuffle_epi8(pixels, taps_01), pair[0]);
      sums.add(_mm256_shuffle_epi8(pixels, taps_23), pair[1]);
    }
    if (p < num_pairs) {
      sums.add(_mm256_shuffle_epi8(load_lanes(a, b), taps_01), *pair);
      ++pair;
    }
    const __m256i words = _mm256_packs_epi32(sums.value(), sums.value());
    const __m256i bytes = _mm256_packus_epi16(words, words);
    const size_t at = static_cast<size_t>(x) * 3;
    store_pixel(out[0] + at, _mm256_castsi256_si128(bytes));
    store_pixel(out[1] + at, _mm256_extracti128_si256(bytes, 1));
  }
}

// 32 bytes of one output row.
__m256i vertical_block(const uint8_t* const* rows,
                       const TapPair* pairs,
                       int num_pairs,
                       size_t offset) {
  const __m256i zero = _mm256_setzero_si256();
  Sums sums[4];
  for (int p = 0; p < num_pairs; ++p) {
    auto load = [&](int k) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[2 * p + k] + offset));
    };
    const __m256i first = load(0);
    const __m256i second = load(1);
    const __m256i low_half = _mm256_unpacklo_epi8(first, second);
    const __m256i high_half = _mm256_unpackhi_epi8(first, second);
    sums[0].add(_mm256_unpacklo_epi8(low_half, zero), pairs[p]);
    sums[1].add(_mm256_unpackhi_epi8(low_half, zero), pairs[p]);
    sums[2].add(_mm256_unpacklo_epi8(high_half, zero), pairs[p]);
    sums[3].add(_mm256_unpackhi_epi8(high_half, zero), pairs[p]);
  }
  return _mm256_packus_epi16(_mm256_packs_epi32(sums[0].value(), sums[1].value()),
                             _mm256_packs_epi32(sums[2].value(), sums[3].value()));
}

}  // namespace

void horizontal_avx2(const Axis& axis, const Rows& in, uint8_t* out, size_t out_stride) {
  const TapPairs taps(axis);
  // Bytes that the kernel reads from the first tap on: whole pairs, 16 bytes at a time.
  const size_t reach = static_cast<size_t>(taps.per_output + 1) / 2 * 12 + 4;
  for (int y = 0; y < in.height; y += 2) {
    const int second = std::min(y + 1, in.height - 1);
    const uint8_t* const from[2] = {in.row(y), in.row(second)};
    uint8_t* const to[2] = {out + y * out_stride, out + second * out_stride};
    // Reading into the next row is harmless (its weights are 0), reading beyond the picture is not.
    const size_t readable = static_cast<size_t>(in.end - from[1]);
    int end = axis.out_size;
    while (end > 0 && static_cast<size_t>(axis.first[end - 1]) * 3 + reach > readable) --end;
    horizontal_two_rows(axis, taps, from, to, end);
    for (int i = 0; i < 2; ++i) horizontal_span_scalar(axis, from[i], to[i], end, axis.out_size);
  }
}

void vertical_avx2(const Axis& axis, const Rows& in, uint8_t* out) {
  constexpr size_t kBlock = 32;
  if (in.row_bytes < kBlock) return vertical_scalar(axis, in, out);
  const TapPairs taps(axis);
  std::vector<const uint8_t*> rows(2 * static_cast<size_t>(taps.per_output));
  for (int y = 0; y < axis.out_size; ++y, out += in.row_bytes) {
    for (size_t k = 0; k < rows.size(); ++k) {
      // Taps beyond the last have weight 0 and may read any row.
      rows[k] = in.row(std::min(axis.first[y] + static_cast<int>(k), in.height - 1));
    }
    auto block = [&](size_t offset) {
      const __m256i bytes = vertical_block(rows.data(), taps.of(y), taps.per_output, offset);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + offset), bytes);
    };
    size_t offset = 0;
    for (; offset + kBlock <= in.row_bytes; offset += kBlock) block(offset);
    if (offset < in.row_bytes) block(in.row_bytes - kBlock);  // overlaps the one before
  }
}

}  // namespace shardloom::data::resample

#endif
