// Pictures as 8-bit RGB, exactly as Pillow's Image.open(path).convert("RGB") and Image.resize give
// them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardloom::data {

struct RgbImage {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> pixels;  // height * width * 3, row-major, RGB
};

struct DecodeOptions {
  bool apply_exif_orientation = false;  // Pillow's convert("RGB") ignores it
  bool scale_16bit = false;             // Pillow clips 16-bit gray at 255
};

// Decodes JPEG, PNG, WebP, GIF (first frame) or BMP, recognised by content. `place` (a path) starts
// error texts. Throws DataError: empty, unknown or damaged content, or a picture of more than 2^28
// pixels (checked before allocating).
RgbImage decode_rgb(std::string_view bytes,
                    const std::string& place,
                    const DecodeOptions& options = {});

// Bicubic (a = -0.5), antialiased, two uint8 passes: horizontal, then vertical (Pillow 12.0's
// Image.resize; bit-equal).
RgbImage resize_bicubic(const RgbImage& image, int width, int height);

// Copy of the rectangle [left, left+width) x [top, top+height).
RgbImage crop(const RgbImage& image, int left, int top, int width, int height);

struct TileOptions {
  int image_size = 448;
  int min_tiles = 1;
  int max_tiles = 1;
  bool use_thumbnail = true;
};

// InternVL's dynamic_preprocess: the grid whose aspect ratio is nearest, tiles row-major, then the
// thumbnail (of the original picture) when there is more than one tile. max_tiles 1 gives the whole
// picture resized to one tile.
struct TileGrid {
  int columns = 1;
  int rows = 1;
};
TileGrid choose_grid(int width, int height, const TileOptions& options);
// Number of tiles including the thumbnail, without decoding anything but the size.
int count_tiles(int width, int height, const TileOptions& options);
std::vector<RgbImage> make_tiles(const RgbImage& image, const TileOptions& options);

// float32 CHW: (pixel / 255 - mean) / std with the ImageNet constants; `out` has 3 * height * width
// values.
void normalize_to_chw(const RgbImage& image, float* out);

// Width and height of what decode_rgb returns, from the header only (no pixel is decoded). Throws
// DataError as it does.
struct ImageSize {
  int width = 0;
  int height = 0;
};
ImageSize read_image_size(std::string_view bytes,
                          const std::string& place,
                          const DecodeOptions& options = {});

}  // namespace shardloom::data
