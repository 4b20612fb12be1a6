#include "shardloom/data/image/exif.h"

#include <algorithm>
#include <utility>

#include "shardloom/data/image/codec.h"

namespace shardloom::data::codec {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kTypeShort = 3;
constexpr std::string_view kExifPrefix("Exif\0\0", 6);

bool starts_with(std::string_view bytes, std::string_view prefix) {
  return bytes.substr(0, prefix.size()) == prefix;
}

// Payload of the first APP1 segment with EXIF data; empty when there is none before the pixels.
std::string_view jpeg_exif(std::string_view bytes) {
  size_t at = 2;
  while (at + 4 <= bytes.size() && byte_at(bytes, at) == 0xff) {
    const uint8_t marker = byte_at(bytes, at + 1);
    if (marker == 0xff) {  // a fill byte
      ++at;
      continue;
    }
    if (marker == 0xda || marker == 0xd9) break;
    const size_t length = big16(bytes, at + 2);
    if (length < 2) break;
    const std::string_view payload = bytes.substr(at + 4, length - 2);
    if (marker == 0xe1 && starts_with(payload, kExifPrefix)) return payload;
    at += 2 + length;
    if (at > bytes.size()) break;
  }
  return {};
}

std::string_view png_exif(std::string_view bytes) {
  size_t at = 8;
  while (at + 12 <= bytes.size()) {
    const size_t length = big32(bytes, at);
    if (length > bytes.size() - at - 12) break;
    if (bytes.substr(at + 4, 4) == "eXIf") return bytes.substr(at + 8, length);
    at += 12 + length;
  }
  return {};
}

std::string_view webp_exif(std::string_view bytes) {
  size_t at = 12;
  while (at + 8 <= bytes.size()) {
    const size_t length = little32(bytes, at + 4);
    if (length > bytes.size() - at - 8) break;
    if (bytes.substr(at, 4) == "EXIF") return bytes.substr(at + 8, length);
    at += 8 + length + (length & 1);
  }
  return {};
}

// Looks the tag up in the first directory of a TIFF structure.
int tiff_orientation(std::string_view tiff) {
  if (starts_with(tiff, kExifPrefix)) tiff.remove_prefix(kExifPrefix.size());
  if (tiff.size() < 8) return 1;
  const bool little = starts_with(tiff, "II");
  if (!little && !starts_with(tiff, "MM")) return 1;
  auto u16 = [&](size_t at) { return little ? little16(tiff, at) : big16(tiff, at); };
  const size_t directory = little ? little32(tiff, 4) : big32(tiff, 4);
  if (directory > tiff.size() - 2) return 1;
  const size_t num_entries = u16(directory);
  for (size_t i = 0; i < num_entries; ++i) {
    const size_t entry = directory + 2 + 12 * i;
    if (entry + 12 > tiff.size()) break;
    if (u16(entry) != kOrientationTag || u16(entry + 2) != kTypeShort) continue;
    const int orientation = static_cast<int>(u16(entry + 8));
    return orientation >= 1 && orientation <= 8 ? orientation : 1;
  }
  return 1;
}

}  // namespace

int find_orientation(ImageFormat format, std::string_view bytes) {
  switch (format) {
    case ImageFormat::kJpeg:
      return tiff_orientation(jpeg_exif(bytes));
    case ImageFormat::kPng:
      return tiff_orientation(png_exif(bytes));
    case ImageFormat::kWebp:
      return tiff_orientation(webp_exif(bytes));
    default:
      return 1;
  }
}

RgbImage orient(RgbImage image, int orientation) {
  if (orientation == 1) return image;
  const bool swap = swaps_sides(orientation);
  const bool flip_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool flip_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  RgbImage out =
      new_image(swap ? ImageSize{image.height, image.width} : ImageSize{image.width, image.height});
  uint8_t* target = out.pixels.data();
  for (int y = 0; y < out.height; ++y) {
    for (int x = 0; x < out.width; ++x, target += 3) {
      const int along_x = swap ? y : x;
      const int along_y = swap ? x : y;
      const size_t from_x = flip_x ? image.width - 1 - along_x : along_x;
      const size_t from_y = flip_y ? image.height - 1 - along_y : along_y;
      std::copy_n(&image.pixels[(from_y * image.width + from_x) * 3], 3, target);
    }
  }
  return out;
}

}  // namespace shardloom::data::codec
