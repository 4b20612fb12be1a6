#include <gtest/gtest.h>

#include <random>

#include "shardloom/base/error.h"
#include "shardloom/data/image/resample.h"
#include "tests/data_image/cases.h"

namespace shardloom::data {
namespace {

using resample::Path;

TEST(Resize, RandomSizesAreThoseOfPillow) {
  const std::vector<Json> rows = table_rows("resize.json");
  ASSERT_GE(rows.size(), 40u);
  for (const Json& row : rows) {
    SCOPED_TRACE(row.dump());
    const RgbImage image = make_content(row.at("width"), row.at("height"), row.at("seed"));
    for (const Path path : {Path::kScalar, Path::kFastest}) {
      const RgbImage out = resample::resize(image, row.at("out_width"), row.at("out_height"), path);
      EXPECT_EQ(sha256(out), row.at("sha256"));
    }
  }
}

TEST(Resize, ScalarAndFastestPathsAgree) {
  std::mt19937 random(5);
  for (int seed = 0; seed < 150; ++seed) {
    auto size = [&](int limit) { return static_cast<int>(1 + random() % limit); };
    const int limit = seed % 2 == 0 ? 24 : 130;
    const RgbImage image = make_content(size(limit), size(limit), seed);
    const int width = seed % 5 == 0 ? image.width : size(limit);
    const int height = seed % 7 == 0 ? image.height : size(limit);
    SCOPED_TRACE(fmt::format("{} x {} -> {} x {}", image.width, image.height, width, height));
    const RgbImage scalar = resample::resize(image, width, height, Path::kScalar);
    const RgbImage fastest = resample::resize(image, width, height, Path::kFastest);
    ASSERT_EQ(scalar.pixels, fastest.pixels);
  }
}

TEST(Resize, SameSizeIsACopy) {
  const RgbImage image = make_content(13, 7, 0);
  const RgbImage out = resize_bicubic(image, 13, 7);
  EXPECT_EQ(out.pixels, image.pixels);
}

TEST(Resize, SizesBelowOneAreRefused) {
  const RgbImage image = make_content(4, 4, 0);
  EXPECT_THROW(resize_bicubic(image, 0, 4), InternalError);
  EXPECT_THROW(resize_bicubic(image, 4, -1), InternalError);
}

}  // namespace
}  // namespace shardloom::data
