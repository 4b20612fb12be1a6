#include <algorithm>

#include "shardloom/base/error.h"
#include "shardloom/data/image/codec.h"
#include "shardloom/data/image/image.h"

namespace shardloom::data {
namespace {

bool adds_thumbnail(const TileGrid& grid, const TileOptions& options) {
  return options.use_thumbnail && grid.columns * grid.rows > 1;
}

}  // namespace

RgbImage crop(const RgbImage& image, int left, int top, int width, int height) {
  SHARDLOOM_CHECK(left >= 0 && top >= 0 && width > 0 && height > 0 && width <= image.width - left &&
                      height <= image.height - top,
                  "crop of {} x {} at ({}, {}) from {} x {}", width, height, left, top, image.width,
                  image.height);
  RgbImage out = codec::new_image({width, height});
  const size_t row_bytes = size_t{3} * width;
  for (int y = 0; y < height; ++y) {
    const size_t from = (static_cast<size_t>(top + y) * image.width + left) * 3;
    std::copy_n(&image.pixels[from], row_bytes, &out.pixels[y * row_bytes]);
  }
  return out;
}

int count_tiles(int width, int height, const TileOptions& options) {
  const TileGrid grid = choose_grid(width, height, options);
  return grid.columns * grid.rows + (adds_thumbnail(grid, options) ? 1 : 0);
}

std::vector<RgbImage> make_tiles(const RgbImage& image, const TileOptions& options) {
  const TileGrid grid = choose_grid(image.width, image.height, options);
  const int size = options.image_size;
  RgbImage whole = resize_bicubic(image, size * grid.columns, size * grid.rows);
  std::vector<RgbImage> tiles;
  if (grid.columns * grid.rows == 1) {
    tiles.push_back(std::move(whole));
    return tiles;
  }
  for (int row = 0; row < grid.rows; ++row) {
    for (int column = 0; column < grid.columns; ++column) {
      tiles.push_back(crop(whole, column * size, row * size, size, size));
    }
  }
  if (adds_thumbnail(grid, options)) tiles.push_back(resize_bicubic(image, size, size));
  return tiles;
}

}  // namespace shardloom::data
