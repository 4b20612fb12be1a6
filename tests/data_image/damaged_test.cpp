#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "tests/data_image/cases.h"

namespace shardloom::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string error_of(const std::string& bytes, const std::string& place) {
  try {
    decode_rgb(bytes, place);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Damaged, IsRefusedWithPlaceAndReason) {
  int num_checked = 0;
  for (const Case& one : all_cases()) {
    if (!one.refused()) continue;
    SCOPED_TRACE(one.name);
    const std::string place = "train.jsonl:7: " + one.name;
    const std::string error = error_of(read_file(one.path), place);
    EXPECT_THAT(error, StartsWith(place + ": "));
    EXPECT_THAT(error, HasSubstr(one.expected.at("error").get<std::string>()));
    ++num_checked;
  }
  EXPECT_EQ(num_checked, 23);
}

TEST(Damaged, GiantSizesAreRefusedFromTheHeaderToo) {
  for (const Case& one : cases_of("giant")) {
    SCOPED_TRACE(one.name);
    EXPECT_THROW(read_image_size(read_file(one.path), one.path), DataError);
  }
}

// Resizing needs memory for each pixel of a side: a file of 1 KB must not ask for gigabytes.
TEST(Damaged, LongSidesAreRefusedFromTheHeader) {
  for (const auto& [width, height] : {std::pair{1 << 25, 1}, {1, 1 << 16}}) {
    std::string bytes = "BM" + std::string(52, '\0');
    bytes[10] = 54;
    bytes[14] = 40;
    std::memcpy(&bytes[18], &width, 4);
    std::memcpy(&bytes[22], &height, 4);
    bytes[26] = 1;
    bytes[28] = 24;
    EXPECT_THAT(error_of(bytes, "long.bmp"), AllOf(HasSubstr("long.bmp"), HasSubstr("65535 a")));
  }
}

// Every cut of every small file is either a picture of the right size or a DataError.
TEST(Damaged, CutFilesNeverCrash) {
  for (const Case& one : all_cases()) {
    const std::string bytes = read_file(one.path);
    if (bytes.size() > 3000) continue;
    SCOPED_TRACE(one.name);
    for (size_t size = 0; size < bytes.size(); ++size) {
      try {
        const RgbImage image = decode_rgb(bytes.substr(0, size), one.name);
        ASSERT_EQ(image.width, one.expected.value("width", 0)) << size;
      } catch (const DataError&) {
      }
    }
  }
}

// Flipped bytes too; what comes out is not checked, that nothing breaks is (most useful with
// sanitizers).
TEST(Damaged, FlippedBytesNeverCrash) {
  for (const Case& one : all_cases()) {
    const std::string bytes = read_file(one.path);
    if (bytes.size() > 1500) continue;
    SCOPED_TRACE(one.name);
    for (size_t at = 0; at < bytes.size(); ++at) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
      try {
        const ImageSize size = read_image_size(flipped, one.name);
        if (int64_t{size.width} * size.height > 1 << 20) continue;
        const RgbImage image = decode_rgb(flipped, one.name);
        ASSERT_EQ(image.pixels.size(), size_t{3} * size.width * size.height);
      } catch (const DataError&) {
      }
    }
  }
}

}  // namespace
}  // namespace shardloom::data
