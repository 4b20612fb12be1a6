// Items that are read piece by piece straight into the caller's memory: several pieces and a rest,
// at addresses that are no page's beginning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/checkpoint/dcp/rank_writer.h"
#include "shardloom/checkpoint/dcp/reader.h"
#include "shardloom/checkpoint/input_file.h"
#include "tests/dcp/samples.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::checkpoint::dcp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kBytes = (size_t{3} << 20) + 1237;
constexpr char kGuard = '#';

class LargeItem : public ::testing::Test {
 protected:
  void SetUp() override {
    uint32_t state = 1;
    for (char& byte : content_)
      byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
    RankWriter writer(folder_.path(), 0);
    const auto size = static_cast<int64_t>(kBytes);
    writer.add_tensor({"w", DType::kU8, {size}}, {{0}, {size}}, {"w"},
                      [&](const RankWriter::Sink& sink) { sink(content_); });
    write_metadata(folder_.path(), writer.finish());
  }

  // Reads the tensor to `shift` bytes behind the beginning of a buffer that is larger.
  std::string read(const Reader& reader, size_t shift) const {
    std::string buffer(kBytes + 2 * shift, kGuard);
    const auto size = static_cast<int64_t>(kBytes);
    reader.read_box("w", {{0}, {size}}, {buffer.data() + shift, kBytes, DType::kU8, {}});
    EXPECT_EQ(buffer.substr(0, shift), std::string(shift, kGuard));
    EXPECT_EQ(buffer.substr(shift + kBytes), std::string(shift, kGuard));
    return buffer.substr(shift, kBytes);
  }

  TemporaryFolder folder_;
  std::string content_ = std::string(kBytes, '\0');
};

TEST_F(LargeItem, ComesWholeToAnyAddress) {
  for (const size_t shift : {0, 1, 4095, 10000}) {
    const Reader reader(folder_.path(), {.verify_crc = true});
    EXPECT_TRUE(read(reader, shift) == content_) << shift;
    // Checked once; from then on the bytes are copied.
    EXPECT_TRUE(read(reader, shift) == content_) << shift;
  }
}

TEST_F(LargeItem, FlippedBitInAnyPieceIsFound) {
  const auto file = folder_.path() / "__0_0.distcp";
  const std::string whole = read_file(file);
  const size_t begin = whole.find(content_);
  ASSERT_NE(begin, std::string::npos);
  for (const size_t at : {size_t{0}, kBytes / 2, kBytes - 1}) {
    std::string damaged = whole;
    damaged[begin + at] ^= 0x10;
    folder_.write("__0_0.distcp", damaged);
    const Reader reader(folder_.path(), {.verify_crc = true});
    const std::string text = error_of([&] { read(reader, 3); });
    EXPECT_THAT(text, AllOf(HasSubstr("__0_0.distcp: \"w\""), HasSubstr("CRC-32"))) << at;
  }
}

TEST_F(LargeItem, FileThatVanishesIsNamed) {
  const Reader reader(folder_.path(), {.verify_crc = true});
  std::filesystem::remove(folder_.path() / "__0_0.distcp");
  EXPECT_THAT(error_of([&] { read(reader, 0); }),
              AllOf(HasSubstr("cannot open"), HasSubstr("__0_0.distcp: No such file")));
}

TEST(InputFile, EndOfFileInsideARangeIsAnError) {
  const TemporaryFolder folder;
  const InputFile file(folder.write("short", "0123456789"));
  std::string target(8, kGuard);
  file.read_at(2, target.data(), target.size());
  EXPECT_EQ(target, "23456789");
  EXPECT_THAT(error_of([&] { file.read_at(3, target.data(), target.size()); }),
              HasSubstr("short became shorter while it was read"));
}

}  // namespace
}  // namespace shardloom::checkpoint::dcp
