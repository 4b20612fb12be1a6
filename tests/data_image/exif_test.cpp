#include <gtest/gtest.h>

#include "shardloom/base/files.h"
#include "tests/data_image/cases.h"

namespace shardloom::data {
namespace {

TEST(Exif, OrientationIsAppliedOnlyWhenAskedFor) {
  const std::vector<Case> cases = cases_of("exif");
  ASSERT_GE(cases.size(), 11u);
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    const std::string bytes = read_file(one.path);
    EXPECT_EQ(sha256(decode_rgb(bytes, one.path)), one.expected.at("rgb_sha256"));

    const DecodeOptions upright{.apply_exif_orientation = true};
    const Json& expected = one.expected.at("upright");
    const RgbImage image = decode_rgb(bytes, one.path, upright);
    EXPECT_EQ(image.width, expected.at("width"));
    EXPECT_EQ(image.height, expected.at("height"));
    EXPECT_EQ(sha256(image), expected.at("rgb_sha256"));
    const ImageSize size = read_image_size(bytes, one.path, upright);
    EXPECT_EQ(size.width, expected.at("width"));
    EXPECT_EQ(size.height, expected.at("height"));
  }
}

TEST(Exif, FilesWithoutATagStayAsTheyAre) {
  for (const char* folder : {"formats", "jpeg", "palette"}) {
    for (const Case& one : cases_of(folder)) {
      SCOPED_TRACE(one.name);
      const RgbImage image =
          decode_rgb(read_file(one.path), one.path, {.apply_exif_orientation = true});
      EXPECT_EQ(sha256(image), one.expected.at("rgb_sha256"));
    }
  }
}

}  // namespace
}  // namespace shardloom::data
