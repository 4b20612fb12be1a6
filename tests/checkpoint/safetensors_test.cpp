// Reader of safetensors files: the cases of real broken files, and made ones for the kinds they
// leave out.
#include "shardloom/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <limits>

#include "shardloom/base/error.h"
#include "shardloom/base/json.h"

namespace shardloom::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::filesystem::path kCases =
    std::filesystem::path(SHARDLOOM_TEST_DATA) / "checkpoint" / "safetensors";

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "no error";
}

std::string open_error(const std::filesystem::path& path) {
  return error_of([&] { SafetensorsFile file(path); });
}

template <typename T>
std::vector<T> values(const SafetensorsFile& file, const std::string& name) {
  const std::string_view bytes = file.data(name);
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::string with_length(uint64_t length, const std::string& rest) {
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + rest;
}

std::string file_content(const std::string& header, size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, '\0'));
}

std::string parse_error(const std::string& content) {
  return error_of([&] { parse_safetensors(content, "x.safetensors"); });
}

TEST(SafetensorsCases, AcceptsAndRefusesAsListed) {
  const Json expected = read_json_file(kCases / "expected.json", ExitCode::kData).at("files");
  ASSERT_EQ(expected.size(), 21U);
  for (const auto& [name, entry] : expected.items()) {
    const bool accepted = open_error(kCases / name) == "no error";
    const bool right = entry.at("right").get<std::string>().starts_with("accept");
    EXPECT_EQ(accepted, right) << name << ": " << open_error(kCases / name);
  }
}

struct BadFile {
  const char* name;
  const char* cause;
};

class SafetensorsBadFile : public ::testing::TestWithParam<BadFile> {};

TEST_P(SafetensorsBadFile, ErrorNamesFileAndCause) {
  const std::filesystem::path path = kCases / GetParam().name;
  EXPECT_THAT(open_error(path), AllOf(HasSubstr(path.string()), HasSubstr(GetParam().cause)));
}

INSTANTIATE_TEST_SUITE_P(
    Cases,
    SafetensorsBadFile,
    ::testing::Values(
        BadFile{"truncated_data.safetensors", "5 bytes shorter than its header says"},
        BadFile{"trailing_bytes.safetensors", "3 bytes at the end are not covered"},
        BadFile{"truncated_header.safetensors", "runs past the end of the file (20 bytes)"},
        BadFile{"only_7_bytes.safetensors", "7 bytes are too short"},
        BadFile{"empty.safetensors", "the file is empty"},
        BadFile{"header_len_off_by_one.safetensors", "not valid JSON"},
        BadFile{"hole.safetensors", "hole of 4 bytes before the data of tensor \"b\""},
        BadFile{"size_shape_mismatch.safetensors",
                "\"a\": data_offsets [0, 16] give 16 bytes, but shape [2, 3] of F32 needs 24"},
        BadFile{"negative_dim.safetensors", "\"a\": shape holds the negative size -2"},
        BadFile{"unknown_dtype.safetensors", "\"a\": dtype \"F33\" is unknown (did you mean F32?)"},
        BadFile{"blank_dtype.safetensors", "\"lm_head.weight\": dtype is empty"},
        BadFile{"not_json.safetensors", "the header is not JSON"},
        BadFile{"pickle_renamed.safetensors", "looks like a Python pickle"},
        BadFile{"lfs_pointer.safetensors", "looks like a git-lfs pointer"},
        BadFile{"not_there.safetensors", "No such file"}),
    [](const auto& info) {
      const std::string name = info.param.name;
      return name.substr(0, name.find('.'));
    });

TEST(SafetensorsFile, ReadsValues) {
  const SafetensorsFile file(kCases / "ok.safetensors");
  ASSERT_EQ(file.tensors().size(), 1U);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[0].dtype, DType::kF32);
  EXPECT_THAT(file.tensors()[0].shape, ElementsAre(2, 2));
  EXPECT_THAT(values<float>(file, "a"), ElementsAre(0, 1, 2, 3));
}

TEST(SafetensorsFile, OrdersTensorsByTheirData) {
  const SafetensorsFile file(kCases / "ok_reordered.safetensors");
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[1].name, "b");
  EXPECT_THAT(values<uint16_t>(file, "b"), ElementsAre(0x3F80, 0x4000));  // BF16 1 and 2
}

TEST(SafetensorsFile, ReadsScalarAndEmptyTensors) {
  const SafetensorsFile file(kCases / "ok_scalar_and_empty.safetensors");
  EXPECT_THAT(file.find("s")->shape, IsEmpty());
  EXPECT_EQ(values<float>(file, "s").size(), 1U);
  EXPECT_THAT(file.find("e")->shape, ElementsAre(0, 4));
  EXPECT_THAT(file.data("e"), IsEmpty());
}

TEST(SafetensorsFile, ReadsEightBitAndIntegerTensors) {
  const SafetensorsFile file(kCases / "f8_and_i64.safetensors");
  EXPECT_EQ(file.find("f")->dtype, DType::kF8E4M3);
  EXPECT_THAT(values<uint8_t>(file, "f"), ElementsAre(0x38, 0x40, 0x44, 0xB8));  // 1, 2, 3, -1
  EXPECT_THAT(values<int64_t>(file, "i"), ElementsAre(-7));
}

TEST(SafetensorsFile, MetadataIsNoTensor) {
  const SafetensorsFile file(kCases / "ok_metadata.safetensors");
  EXPECT_EQ(file.tensors().size(), 1U);
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST(SafetensorsFile, StaysValidWhenMovedAndAfterDroppingPages) {
  SafetensorsFile first(kCases / "ok.safetensors");
  const SafetensorsFile file = std::move(first);
  file.drop_pages(*file.find("a"));
  EXPECT_THAT(values<float>(file, "a"), ElementsAre(0, 1, 2, 3));
}

TEST(SafetensorsFile, UnknownNameGivesTheNearest) {
  const SafetensorsFile file(kCases / "ok_reordered.safetensors");
  EXPECT_EQ(file.find("nothing"), nullptr);
  EXPECT_THAT(error_of([&] { file.data("B"); }),
              AllOf(HasSubstr("no tensor \"B\""), HasSubstr("did you mean b?")));
}

TEST(SafetensorsHeader, RefusesOverlap) {
  EXPECT_THAT(parse_error(file_content(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                       R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                                       12)),
              HasSubstr("\"a\" and \"b\" overlap"));
}

TEST(SafetensorsHeader, RefusesTwoTensorsOnTheSameBytes) {
  EXPECT_THAT(parse_error(file_content(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                       R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                                       8)),
              HasSubstr("overlap"));
}

TEST(SafetensorsHeader, RefusesDuplicateKey) {
  const std::string entry = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(parse_error(file_content("{" + entry + "," + entry + "}", 1)),
              HasSubstr("duplicate JSON key \"a\""));
}

TEST(SafetensorsHeader, RefusesHugeHeaderLengths) {
  for (const uint64_t length : {uint64_t{1} << 62, std::numeric_limits<uint64_t>::max(),
                                std::numeric_limits<uint64_t>::max() - 7, kMaxHeaderBytes + 1}) {
    EXPECT_THAT(parse_error(with_length(length, "{}")), HasSubstr("over the limit"));
  }
  EXPECT_THAT(parse_error(with_length(kMaxHeaderBytes, "{}")), HasSubstr("runs past the end"));
}

TEST(SafetensorsHeader, RefusesShapesWhoseProductOverflows) {
  for (const char* shape :
       {"[4294967296,4294967296]", "[2305843009213693952]", "[9223372036854775807,2]",
        "[3037000500,3037000500,3037000500]", "[18446744073709551615]", "[18446744073709551616]"}) {
    const std::string header =
        fmt::format(R"({{"a":{{"dtype":"F64","shape":{},"data_offsets":[0,0]}}}})", shape);
    EXPECT_THAT(parse_error(file_content(header, 0)), HasSubstr("tensor \"a\": shape")) << shape;
  }
}

TEST(SafetensorsHeader, RefusesOffsetsThatDoNotMakeSense) {
  const auto error_with = [](const char* offsets) {
    return parse_error(file_content(
        fmt::format(R"({{"a":{{"dtype":"U8","shape":[0],"data_offsets":{}}}}})", offsets), 4));
  };
  EXPECT_THAT(error_with("[4,0]"), HasSubstr("ends before it begins"));
  EXPECT_THAT(error_with("[-4,0]"), HasSubstr("negative size -4"));
  EXPECT_THAT(error_with("[0.5,1]"), HasSubstr("not a whole number"));
  EXPECT_THAT(error_with("[0]"), HasSubstr("not a list of two numbers"));
  EXPECT_THAT(error_with("\"0,4\""), HasSubstr("not a list of two numbers"));
  EXPECT_THAT(error_with("[18446744073709551615,18446744073709551615]"), HasSubstr("hole"));
  EXPECT_THAT(error_with("[0,18446744073709551615]"), HasSubstr("needs 0"));
  EXPECT_THAT(error_with("[0,1e999]"), HasSubstr("x.safetensors"));
}

TEST(SafetensorsHeader, RefusesMissingOrMistypedFields) {
  const auto error_with = [](const char* entry) {
    return parse_error(file_content(fmt::format(R"({{"a":{}}})", entry), 0));
  };
  EXPECT_THAT(error_with("[]"), HasSubstr("tensor \"a\" is not described by an object"));
  EXPECT_THAT(error_with("{}"), HasSubstr("dtype is missing"));
  EXPECT_THAT(error_with(R"({"dtype":3})"), HasSubstr("dtype is not a string"));
  EXPECT_THAT(error_with(R"({"dtype":"U8"})"), HasSubstr("shape is missing"));
  EXPECT_THAT(error_with(R"({"dtype":"U8","shape":3})"), HasSubstr("shape is not a list"));
  EXPECT_THAT(error_with(R"({"dtype":"U8","shape":[0]})"), HasSubstr("data_offsets is missing"));
  EXPECT_THAT(error_with(R"({"dtype":"F4","shape":[1],"data_offsets":[0,1]})"),
              HasSubstr("no whole number of bytes"));
}

TEST(SafetensorsHeader, RefusesWhatOnlyLooksLikeAnObject) {
  EXPECT_THAT(parse_error(file_content("[]", 0)), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(parse_error(file_content("", 0)), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(parse_error(file_content(" {}", 0)), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(parse_error(file_content("\xEF\xBB\xBF{}", 0)), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(parse_error(file_content(std::string("{}\0x", 4), 0)), HasSubstr("zero byte at 2"));
  EXPECT_THAT(parse_error(file_content("{} x", 0)), HasSubstr("not valid JSON"));
  EXPECT_THAT(parse_error(file_content("{\"a\xFF\":1}", 0)), HasSubstr("not valid JSON"));
}

TEST(SafetensorsHeader, RefusesMetadataThatIsNotText) {
  EXPECT_THAT(parse_error(file_content(R"({"__metadata__":[]})", 0)), HasSubstr("__metadata__"));
  EXPECT_THAT(parse_error(file_content(R"({"__metadata__":{"n":1}})", 0)),
              HasSubstr("__metadata__.n is not a string"));
}

TEST(SafetensorsHeader, NamesWebPagesAndArchives) {
  EXPECT_THAT(parse_error("<!DOCTYPE html><html>Not found</html>"), HasSubstr("an HTML page"));
  EXPECT_THAT(parse_error(std::string("PK\x03\x04\x14\x00\x00\x00"
                                      "data",
                                      12)),
              HasSubstr("a zip archive"));
}

TEST(DType, NamesRoundTrip) {
  for (const std::string& name : dtype_names()) {
    ASSERT_TRUE(parse_dtype(name).has_value()) << name;
    EXPECT_EQ(dtype_name(*parse_dtype(name)), name);
  }
  EXPECT_FALSE(parse_dtype("f32").has_value());
}

TEST(DType, BytesOfTensors) {
  EXPECT_EQ(tensor_bytes(DType::kBF16, {3, 5}), 30U);
  EXPECT_EQ(tensor_bytes(DType::kF32, {}), 4U);
  EXPECT_EQ(tensor_bytes(DType::kF64, {0, 7}), 0U);
  EXPECT_EQ(tensor_bytes(DType::kF4, {6}), 3U);
  EXPECT_FALSE(tensor_bytes(DType::kF4, {3}).has_value());
  EXPECT_FALSE(tensor_bytes(DType::kU8, {-1}).has_value());
  EXPECT_FALSE(tensor_bytes(DType::kU8, {int64_t{1} << 62}).has_value());
}

}  // namespace
}  // namespace shardloom::checkpoint
