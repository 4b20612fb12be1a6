#include "shardloom/checkpoint/dcp/transpose.h"

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace shardloom::checkpoint::dcp {
namespace {

// Of one row of a block. Blocks pass through two small dense buffers: the strides of big matrices
// are often multiples of 4 KiB, which would put all rows of a block into one set of the L1 cache.
constexpr int64_t kRowBytes = 128;

// Bytes without a type: the data of an item has any alignment.
template <typename T>
T load(const char* data, int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void transpose_block(const char* source,
                     int64_t source_stride,
                     char* target,
                     int64_t target_stride,
                     int64_t rows,
                     int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const T value = load<T>(source, c * source_stride + r);
      std::memcpy(target + (r * target_stride + c) * static_cast<int64_t>(sizeof(T)), &value,
                  sizeof(T));
    }
  }
}

#if defined(__SSE2__)

// 8 x 8 elements of 2 bytes.
void transpose_8x8(const char* source, int64_t source_bytes, char* target, int64_t target_bytes) {
  __m128i row[8], pair[8], quad[8];
  for (int i = 0; i < 8; ++i) {
    row[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i * source_bytes));
  }
  for (int i = 0; i < 4; ++i) {
    pair[i] = _mm_unpacklo_epi16(row[2 * i], row[2 * i + 1]);
    pair[i + 4] = _mm_unpackhi_epi16(row[2 * i], row[2 * i + 1]);
  }
  for (int half = 0; half < 8; half += 4) {
    quad[half] = _mm_unpacklo_epi32(pair[half], pair[half + 1]);
    quad[half + 1] = _mm_unpackhi_epi32(pair[half], pair[half + 1]);
    quad[half + 2] = _mm_unpacklo_epi32(pair[half + 2], pair[half + 3]);
    quad[half + 3] = _mm_unpackhi_epi32(pair[half + 2], pair[half + 3]);
  }
  const auto store = [&](int r, __m128i value) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + r * target_bytes), value);
  };
  for (int half = 0; half < 8; half += 4) {
    store(half, _mm_unpacklo_epi64(quad[half], quad[half + 2]));
    store(half + 1, _mm_unpackhi_epi64(quad[half], quad[half + 2]));
    store(half + 2, _mm_unpacklo_epi64(quad[half + 1], quad[half + 3]));
    store(half + 3, _mm_unpackhi_epi64(quad[half + 1], quad[half + 3]));
  }
}

template <>
void transpose_block<uint16_t>(const char* source,
                               int64_t source_stride,
                               char* target,
                               int64_t target_stride,
                               int64_t rows,
                               int64_t columns) {
  const int64_t even_rows = rows / 8 * 8, even_columns = columns / 8 * 8;
  for (int64_t c = 0; c < even_columns; c += 8) {
    for (int64_t r = 0; r < even_rows; r += 8) {
      transpose_8x8(source + 2 * (c * source_stride + r), 2 * source_stride,
                    target + 2 * (r * target_stride + c), 2 * target_stride);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = r < even_rows ? even_columns : 0; c < columns; ++c) {
      std::memcpy(target + 2 * (r * target_stride + c), source + 2 * (c * source_stride + r), 2);
    }
  }
}

#endif

template <typename T>
constexpr int64_t kSide = kRowBytes / static_cast<int64_t>(sizeof(T));

// Inlined, so that the sizes of whole blocks are constants.
template <typename T>
[[gnu::always_inline]] inline void move_block(const char* source,
                                              int64_t source_stride,
                                              char* target,
                                              int64_t target_stride,
                                              int64_t rows,
                                              int64_t columns) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  alignas(64) char in[kSide<T> * kRowBytes];
  alignas(64) char out[kSide<T> * kRowBytes];
  for (int64_t c = 0; c < columns; ++c) {
    std::memcpy(in + c * kRowBytes, source + c * source_stride * kBytes,
                static_cast<size_t>(rows * kBytes));
  }
  transpose_block<T>(in, kSide<T>, out, kSide<T>, rows, columns);
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(target + r * target_stride * kBytes, out + r * kRowBytes,
                static_cast<size_t>(columns * kBytes));
  }
}

template <typename T>
void transpose_blocks(const char* source,
                      int64_t source_stride,
                      char* target,
                      int64_t target_stride,
                      int64_t rows,
                      int64_t columns) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  constexpr int64_t kBlock = kSide<T>;
  for (int64_t c = 0; c < columns; c += kBlock) {
    for (int64_t r = 0; r < rows; r += kBlock) {
      const char* from = source + (c * source_stride + r) * kBytes;
      char* to = target + (r * target_stride + c) * kBytes;
      if (rows - r >= kBlock && columns - c >= kBlock) {
        move_block<T>(from, source_stride, to, target_stride, kBlock, kBlock);
      } else {
        move_block<T>(from, source_stride, to, target_stride, std::min(kBlock, rows - r),
                      std::min(kBlock, columns - c));
      }
    }
  }
}

}  // namespace

bool transpose(const char* source,
               int64_t source_stride,
               char* target,
               int64_t target_stride,
               int64_t rows,
               int64_t columns,
               uint64_t element_bytes) {
  switch (element_bytes) {
    case 1:
      transpose_blocks<uint8_t>(source, source_stride, target, target_stride, rows, columns);
      return true;
    case 2:
      transpose_blocks<uint16_t>(source, source_stride, target, target_stride, rows, columns);
      return true;
    case 4:
      transpose_blocks<uint32_t>(source, source_stride, target, target_stride, rows, columns);
      return true;
    case 8:
      transpose_blocks<uint64_t>(source, source_stride, target, target_stride, rows, columns);
      return true;
    default:
      return false;
  }
}

}  // namespace shardloom::checkpoint::dcp
