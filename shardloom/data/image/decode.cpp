#include <array>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/data/image/codec.h"
#include "shardloom/data/image/exif.h"

namespace shardloom::data {
namespace {

using codec::ImageFormat;

ImageFormat sniff(std::string_view bytes) {
  auto has = [&](size_t at, std::string_view magic) {
    return bytes.size() >= at + magic.size() && bytes.substr(at, magic.size()) == magic;
  };
  if (has(0, "\xff\xd8\xff")) return ImageFormat::kJpeg;
  if (has(0, "\x89PNG\r\n\x1a\n")) return ImageFormat::kPng;
  if (has(0, "RIFF") && has(8, "WEBP")) return ImageFormat::kWebp;
  if (has(0, "GIF87a") || has(0, "GIF89a")) return ImageFormat::kGif;
  if (has(0, "BM")) return ImageFormat::kBmp;
  return ImageFormat::kUnknown;
}

// Names what the file is instead of a picture we read, as far as its first bytes tell.
std::string describe_unknown(std::string_view bytes) {
  if (std::string foreign = describe_foreign_content(bytes); !foreign.empty()) return foreign;
  if (bytes.substr(0, 4) == std::string_view("II*\0", 4) ||
      bytes.substr(0, 4) == std::string_view("MM\0*", 4)) {
    return "a TIFF picture";
  }
  if (bytes.size() >= 12 && bytes.substr(4, 4) == "ftyp") return "an AVIF, HEIF or video file";
  std::string head;
  for (size_t i = 0; i < std::min<size_t>(bytes.size(), 8); ++i) {
    head += fmt::format("{}{:02x}", i == 0 ? "" : " ", codec::byte_at(bytes, i));
  }
  return fmt::format("a file of {} bytes that starts with {}", bytes.size(), head);
}

ImageFormat require_format(std::string_view bytes, const std::string& place) {
  if (bytes.empty()) {
    throw DataError("{}: the picture file is empty (0 bytes); replace it", place);
  }
  const ImageFormat format = sniff(bytes);
  if (format == ImageFormat::kUnknown) {
    throw DataError(
        "{}: not a picture that can be read, but {}; JPEG, PNG, WebP, GIF and BMP are "
        "supported",
        place, describe_unknown(bytes));
  }
  return format;
}

}  // namespace

namespace codec {

ImageSize checked_size(uint64_t width, uint64_t height, const std::string& place) {
  if (width == 0 || height == 0) {
    throw DataError("{}: the picture claims to be {} x {} pixels; replace the file", place, width,
                    height);
  }
  if (width > kMaxSide || height > kMaxSide || width * height > kMaxPixels) {
    throw DataError(
        "{}: the picture claims to be {} x {} pixels, more than the limit of {} a side and {} in "
        "all; make it smaller",
        place, width, height, kMaxSide, kMaxPixels);
  }
  return {static_cast<int>(width), static_cast<int>(height)};
}

RgbImage new_image(ImageSize size) {
  RgbImage image{size.width, size.height, {}};
  image.pixels.resize(size_t{3} * size.width * size.height);
  return image;
}

void throw_damaged(const std::string& place, std::string_view format, std::string_view reason) {
  throw DataError("{}: damaged {} picture: {}; replace the file or remove the sample", place,
                  format, reason);
}

void throw_unsupported(const std::string& place, std::string_view format, std::string_view reason) {
  throw DataError("{}: this kind of {} picture is not supported: {}; convert it to JPEG or PNG",
                  place, format, reason);
}

}  // namespace codec

RgbImage decode_rgb(std::string_view bytes,
                    const std::string& place,
                    const DecodeOptions& options) {
  const ImageFormat format = require_format(bytes, place);
  RgbImage image;
  switch (format) {
    case ImageFormat::kJpeg:
      image = codec::decode_jpeg(bytes, place);
      break;
    case ImageFormat::kPng:
      image = codec::decode_png(bytes, place, options.scale_16bit);
      break;
    case ImageFormat::kWebp:
      image = codec::decode_webp(bytes, place);
      break;
    case ImageFormat::kGif:
      image = codec::decode_gif(bytes, place);
      break;
    case ImageFormat::kBmp:
      image = codec::decode_bmp(bytes, place);
      break;
    case ImageFormat::kUnknown:
      break;
  }
  if (!options.apply_exif_orientation) return image;
  return codec::orient(std::move(image), codec::find_orientation(format, bytes));
}

ImageSize read_image_size(std::string_view bytes,
                          const std::string& place,
                          const DecodeOptions& options) {
  const ImageFormat format = require_format(bytes, place);
  ImageSize size;
  switch (format) {
    case ImageFormat::kJpeg:
      size = codec::jpeg_size(bytes, place);
      break;
    case ImageFormat::kPng:
      size = codec::png_size(bytes, place);
      break;
    case ImageFormat::kWebp:
      size = codec::webp_size(bytes, place);
      break;
    case ImageFormat::kGif:
      size = codec::gif_size(bytes, place);
      break;
    case ImageFormat::kBmp:
      size = codec::bmp_size(bytes, place);
      break;
    case ImageFormat::kUnknown:
      break;
  }
  const bool swap =
      options.apply_exif_orientation && codec::swaps_sides(codec::find_orientation(format, bytes));
  return swap ? ImageSize{size.height, size.width} : size;
}

}  // namespace shardloom::data
