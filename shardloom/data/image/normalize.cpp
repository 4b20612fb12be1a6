#include <array>

#include "shardloom/data/image/image.h"

namespace shardloom::data {
namespace {

using Table = std::array<float, 256>;

// Every operation in float32, as torchvision's ToTensor and Normalize do them.
Table normalized_levels(float mean, float std) {
  Table table{};
  for (int level = 0; level < 256; ++level) {
    table[level] = (static_cast<float>(level) / 255.0f - mean) / std;
  }
  return table;
}

}  // namespace

void normalize_to_chw(const RgbImage& image, float* out) {
  static const std::array<Table, 3> tables = {normalized_levels(0.485f, 0.229f),
                                              normalized_levels(0.456f, 0.224f),
                                              normalized_levels(0.406f, 0.225f)};
  const size_t num_pixels = static_cast<size_t>(image.width) * image.height;
  const uint8_t* pixel = image.pixels.data();
  for (size_t i = 0; i < num_pixels; ++i, pixel += 3) {
    out[i] = tables[0][pixel[0]];
    out[num_pixels + i] = tables[1][pixel[1]];
    out[2 * num_pixels + i] = tables[2][pixel[2]];
  }
}

}  // namespace shardloom::data
