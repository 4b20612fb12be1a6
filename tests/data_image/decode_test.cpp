#include <gtest/gtest.h>

#include "shardloom/base/files.h"
#include "tests/data_image/cases.h"

namespace shardloom::data {
namespace {

TEST(Decode, PixelsAreThoseOfPillow) {
  int num_checked = 0;
  for (const Case& one : all_cases()) {
    if (one.refused()) continue;
    SCOPED_TRACE(one.name);
    RgbImage image;
    ASSERT_NO_THROW(image = decode_rgb(read_file(one.path), one.path));
    EXPECT_EQ(image.width, one.expected.at("width"));
    EXPECT_EQ(image.height, one.expected.at("height"));
    ASSERT_EQ(image.pixels.size(), size_t{3} * image.width * image.height);
    EXPECT_EQ(sha256(image), one.expected.at("rgb_sha256"));
    ++num_checked;
  }
  EXPECT_GE(num_checked, 80);
}

TEST(Decode, SizeFromTheHeaderIsThatOfThePicture) {
  for (const Case& one : all_cases()) {
    if (one.refused()) continue;
    SCOPED_TRACE(one.name);
    const ImageSize size = read_image_size(read_file(one.path), one.path);
    EXPECT_EQ(size.width, one.expected.at("width"));
    EXPECT_EQ(size.height, one.expected.at("height"));
  }
}

TEST(Decode, SixteenBitGrayIsClippedUnlessScalingIsAskedFor) {
  int num_checked = 0;
  for (const Case& one : cases_of("depth")) {
    if (!one.expected.contains("high_byte_rgb_sha256")) continue;
    SCOPED_TRACE(one.name);
    const RgbImage scaled = decode_rgb(read_file(one.path), one.path, {.scale_16bit = true});
    EXPECT_EQ(sha256(scaled), one.expected.at("high_byte_rgb_sha256"));
    ++num_checked;
  }
  EXPECT_EQ(num_checked, 3);
}

// A jump (0, 2, right, up) leaves entry 0 behind; Pillow 12.0 misreads it, so the values are not in
// expected.json.
TEST(Decode, RunLengthJumpsLeaveTheFirstEntry) {
  auto file = [](const std::string& runs) {
    const std::string bytes = read_file(SHARDLOOM_TEST_DATA "/images/formats/bmp_rle8.bmp");
    const auto pixels_at = static_cast<uint8_t>(bytes[10]);
    return bytes.substr(0, pixels_at) + runs;
  };
  using namespace std::string_literals;
  const std::string jump = file("\2\5\0\2\3\1\2\7\0\0\7\1\0\1"s);
  const std::string plain = file("\2\5\5\0\0\0\5\0\2\7\0\0\7\1\0\1"s);
  EXPECT_EQ(decode_rgb(jump, "jump").pixels, decode_rgb(plain, "plain").pixels);
}

}  // namespace
}  // namespace shardloom::data
