// The EXIF orientation tag (1 to 8) of JPEG, PNG and WebP files, and its application to pixels.
#pragma once

#include <string_view>

#include "shardloom/data/image/image.h"

namespace shardloom::data::codec {

enum class ImageFormat { kUnknown, kJpeg, kPng, kWebp, kGif, kBmp };

// 1 (upright) when the file has no tag, or one that makes no sense.
int find_orientation(ImageFormat format, std::string_view bytes);

inline bool swaps_sides(int orientation) { return orientation >= 5; }

// The upright picture, as Pillow's ImageOps.exif_transpose gives it.
RgbImage orient(RgbImage image, int orientation);

}  // namespace shardloom::data::codec
