#include <gtest/gtest.h>

#include "shardloom/base/error.h"
#include "tests/data_image/cases.h"

namespace shardloom::data {
namespace {

TEST(Tiles, GridsAreThoseOfTheReference) {
  const std::vector<Json> rows = table_rows("grids.json");
  ASSERT_GE(rows.size(), 400u);
  for (const Json& row : rows) {
    SCOPED_TRACE(row.dump());
    const TileOptions options{.image_size = row.at("image_size"),
                              .min_tiles = row.at("min_tiles"),
                              .max_tiles = row.at("max_tiles")};
    const TileGrid grid = choose_grid(row.at("width"), row.at("height"), options);
    EXPECT_EQ(grid.columns, row.at("columns"));
    EXPECT_EQ(grid.rows, row.at("rows"));
  }
}

TEST(Tiles, PixelsAreThoseOfTheReference) {
  for (const Json& row : table_rows("tiles.json")) {
    SCOPED_TRACE(row.dump());
    const TileOptions options{.image_size = row.at("image_size"),
                              .min_tiles = row.at("min_tiles"),
                              .max_tiles = row.at("max_tiles"),
                              .use_thumbnail = row.at("use_thumbnail")};
    const RgbImage image = make_content(row.at("width"), row.at("height"), row.at("seed"));
    std::vector<std::string> hashes;
    for (const RgbImage& tile : make_tiles(image, options)) hashes.push_back(sha256(tile));
    EXPECT_EQ(hashes, row.at("tiles_sha256").get<std::vector<std::string>>());
    EXPECT_EQ(count_tiles(image.width, image.height, options), static_cast<int>(hashes.size()));
  }
}

TEST(Tiles, ThumbnailIsCountedOnlyWithSeveralTiles) {
  EXPECT_EQ(count_tiles(640, 480, {.max_tiles = 12}), 13);
  EXPECT_EQ(count_tiles(640, 480, {.max_tiles = 12, .use_thumbnail = false}), 12);
  EXPECT_EQ(count_tiles(640, 480, {.max_tiles = 1}), 1);
  EXPECT_EQ(count_tiles(448, 448, {.max_tiles = 12}), 1);
}

TEST(Tiles, OptionsWithoutSenseAreRefused) {
  EXPECT_THROW(choose_grid(10, 10, {.min_tiles = 0}), InternalError);
  EXPECT_THROW(choose_grid(10, 10, {.min_tiles = 3, .max_tiles = 2}), InternalError);
  EXPECT_THROW(choose_grid(0, 10, {}), InternalError);
}

TEST(Crop, IsACopyOfTheRectangle) {
  const RgbImage image = make_content(9, 6, 0);
  const RgbImage part = crop(image, 2, 1, 4, 3);
  ASSERT_EQ(part.pixels.size(), 36u);
  for (int y = 0; y < 3; ++y) {
    for (int i = 0; i < 12; ++i) {
      EXPECT_EQ(part.pixels[y * 12 + i], image.pixels[(y + 1) * 27 + 6 + i]);
    }
  }
  EXPECT_THROW(crop(image, 6, 0, 4, 3), InternalError);
  EXPECT_THROW(crop(image, -1, 0, 4, 3), InternalError);
}

}  // namespace
}  // namespace shardloom::data
