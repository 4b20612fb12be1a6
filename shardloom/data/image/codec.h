// What the decoders of one format share. Each takes the whole file; `place` (a path) starts every
// error text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shardloom/data/image/image.h"

namespace shardloom::data::codec {

inline constexpr uint64_t kMaxPixels = uint64_t{1} << 28;
// Resizing needs memory for each pixel of a side; no JPEG or GIF can have a longer one.
inline constexpr uint64_t kMaxSide = 65535;

// Throws DataError when a side is 0 or longer than kMaxSide, or there are more than kMaxPixels
// pixels; called before anything is allocated.
ImageSize checked_size(uint64_t width, uint64_t height, const std::string& place);

// All black.
RgbImage new_image(ImageSize size);

// Throws DataError "<place>: damaged <format> picture: <reason>; ...".
[[noreturn]] void throw_damaged(const std::string& place,
                                std::string_view format,
                                std::string_view reason);
// The same for pictures that are whole, but of a kind that is not read.
[[noreturn]] void throw_unsupported(const std::string& place,
                                    std::string_view format,
                                    std::string_view reason);

inline uint8_t byte_at(std::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]);
}
inline uint32_t little16(std::string_view bytes, size_t at) {
  return byte_at(bytes, at) | uint32_t{byte_at(bytes, at + 1)} << 8;
}
inline uint32_t little32(std::string_view bytes, size_t at) {
  return little16(bytes, at) | little16(bytes, at + 2) << 16;
}
inline uint32_t big16(std::string_view bytes, size_t at) {
  return uint32_t{byte_at(bytes, at)} << 8 | byte_at(bytes, at + 1);
}
inline uint32_t big32(std::string_view bytes, size_t at) {
  return big16(bytes, at) << 16 | big16(bytes, at + 2);
}

ImageSize jpeg_size(std::string_view bytes, const std::string& place);
RgbImage decode_jpeg(std::string_view bytes, const std::string& place);

ImageSize png_size(std::string_view bytes, const std::string& place);
// scale_16bit: 16-bit gray keeps its high byte; otherwise it is clipped at 255.
RgbImage decode_png(std::string_view bytes, const std::string& place, bool scale_16bit);

ImageSize webp_size(std::string_view bytes, const std::string& place);
RgbImage decode_webp(std::string_view bytes, const std::string& place);

ImageSize gif_size(std::string_view bytes, const std::string& place);
RgbImage decode_gif(std::string_view bytes, const std::string& place);

ImageSize bmp_size(std::string_view bytes, const std::string& place);
RgbImage decode_bmp(std::string_view bytes, const std::string& place);

}  // namespace shardloom::data::codec
