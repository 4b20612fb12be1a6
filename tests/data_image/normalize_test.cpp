#include <gtest/gtest.h>

#include "shardloom/base/files.h"
#include "tests/data_image/cases.h"

namespace shardloom::data {
namespace {

// From file bytes to the float32 values that go into the model, bit for bit.
TEST(Normalize, ChainFromFileToFloatsIsThatOfPillowAndNumpy) {
  std::vector<float> floats(size_t{3} * 448 * 448);
  for (const Case& one : all_cases()) {
    if (one.refused()) continue;
    SCOPED_TRACE(one.name);
    const RgbImage image = resize_bicubic(decode_rgb(read_file(one.path), one.path), 448, 448);
    EXPECT_EQ(sha256(image), one.expected.at("r448_sha256"));
    normalize_to_chw(image, floats.data());
    const auto* bytes = reinterpret_cast<const uint8_t*>(floats.data());
    EXPECT_EQ(sha256({bytes, floats.size() * sizeof(float)}), one.expected.at("norm448_sha256"));
  }
}

// All levels of all channels, at sizes around the widths of vector registers.
TEST(Normalize, EveryLevelIsTheFloatFormula) {
  const float mean[3] = {0.485f, 0.456f, 0.406f};
  const float std[3] = {0.229f, 0.224f, 0.225f};
  for (const int width : {1, 7, 8, 9, 31, 33, 256}) {
    RgbImage image{width, 1, {}};
    for (int level = 0; level < 256; ++level) {
      image.pixels.clear();
      for (int i = 0; i < 3 * width; ++i) {
        image.pixels.push_back(static_cast<uint8_t>(level + i / 3 * 5));
      }
      std::vector<float> out(size_t{3} * width);
      normalize_to_chw(image, out.data());
      for (int c = 0; c < 3; ++c) {
        for (int x = 0; x < width; ++x) {
          const volatile float unit = static_cast<float>(image.pixels[3 * x]) / 255.0f;
          const volatile float centered = unit - mean[c];
          ASSERT_EQ(out[c * width + x], centered / std[c]) << level << " " << c << " " << x;
        }
      }
    }
  }
}

}  // namespace
}  // namespace shardloom::data
