#include <algorithm>
#include <memory>

#include "shardloom/base/error.h"
#include "shardloom/data/image/codec.h"
#include "shardloom/data/image/resample.h"

namespace shardloom::data {
namespace resample {
namespace {

#ifdef __AVX2__
constexpr auto kHorizontalFastest = horizontal_avx2;
constexpr auto kVerticalFastest = vertical_avx2;
#else
constexpr auto kHorizontalFastest = horizontal_scalar;
constexpr auto kVerticalFastest = vertical_scalar;
#endif

Rows rows_of(const RgbImage& image) {
  const uint8_t* data = image.pixels.data();
  const size_t row_bytes = size_t{3} * image.width;
  return {data, data + image.pixels.size(), row_bytes, row_bytes, image.height};
}

}  // namespace

RgbImage resize(const RgbImage& image, int width, int height, Path path) {
  SHARDLOOM_CHECK(width > 0 && height > 0, "resize to {} x {}", width, height);
  SHARDLOOM_CHECK(image.width > 0 && image.height > 0, "resize of an empty picture");
  const auto horizontal = path == Path::kScalar ? horizontal_scalar : kHorizontalFastest;
  const auto vertical = path == Path::kScalar ? vertical_scalar : kVerticalFastest;
  if (image.width == width && image.height == height) return image;

  Rows rows = rows_of(image);
  std::unique_ptr<uint8_t[]> between;
  if (image.width != width) {
    const size_t row_bytes = size_t{3} * width;
    size_t stride = (row_bytes + kRowSlack + 63) / 64 * 64;
    if (stride % 1024 == 0)
      stride += 64;  // rows a power of two apart compete for the same cache lines
    const size_t size = stride * image.height;
    between = std::make_unique_for_overwrite<uint8_t[]>(size);
    horizontal(plan_axis(image.width, width), rows, between.get(), stride);
    rows = {between.get(), between.get() + size, stride, row_bytes, image.height};
  }
  RgbImage out = codec::new_image({width, height});
  if (image.height != height) {
    vertical(plan_axis(image.height, height), rows, out.pixels.data());
  } else {
    for (int y = 0; y < height; ++y) {
      std::copy_n(rows.row(y), rows.row_bytes, &out.pixels[y * rows.row_bytes]);
    }
  }
  return out;
}

}  // namespace resample

RgbImage resize_bicubic(const RgbImage& image, int width, int height) {
  return resample::resize(image, width, height, resample::Path::kFastest);
}

}  // namespace shardloom::data
