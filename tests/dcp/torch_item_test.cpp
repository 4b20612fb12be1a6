// Single items: torch.save archives made by PyTorch and by our writer, whole and damaged.
#include "shardloom/checkpoint/dcp/torch_item.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/checkpoint/dcp/crc32.h"
#include "shardloom/checkpoint/dcp/pickle_writer.h"
#include "shardloom/checkpoint/dcp/zip_writer.h"
#include "tests/dcp/samples.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::checkpoint::dcp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Entries = std::vector<std::pair<std::string, std::string>>;

std::string archive_of(const Entries& entries) {
  const TemporaryFolder folder;
  OutputFile file(folder.path() / "x");
  ZipWriter zip(file);
  for (const auto& [name, data] : entries) zip.add(name, data);
  zip.finish();
  file.commit();
  return read_file(folder.path() / "x");
}

Entries tensor_entries(DType dtype, const std::vector<int64_t>& shape, const std::string& data) {
  return {{"data.pkl", tensor_item_pickle(dtype, shape)},
          {"byteorder", "little"},
          {"data/0", data},
          {"version", "3\n"}};
}

std::string tensor_error(const Entries& entries) {
  return error_of([&] { read_tensor_item(archive_of(entries), "item"); });
}

TEST(TorchItem, OwnItemsOfEveryDtype) {
  for (const std::string& name : dtype_names()) {
    const DType dtype = parse_dtype(name).value();
    if (dtype_bits(dtype) < 8) {
      EXPECT_THAT(error_of([&] { tensor_item_pickle(dtype, {4}); }),
                  AllOf(HasSubstr(name), HasSubstr("cannot be kept in a PyTorch checkpoint")));
      continue;
    }
    const std::string data(6 * dtype_bits(dtype) / 8, 'x');
    const std::string bytes = archive_of(tensor_entries(dtype, {2, 3}, data));
    const TensorItem item = read_tensor_item(bytes, "item");
    EXPECT_EQ(item.dtype, dtype);
    EXPECT_THAT(item.shape, ElementsAre(2, 3));
    EXPECT_THAT(item.strides, ElementsAre(3, 1));
    EXPECT_EQ(item.data, data);
    item.check_crc();
  }
}

TEST(TorchItem, ScalarAndEmpty) {
  const std::string scalar = archive_of(tensor_entries(DType::kF32, {}, "1234"));
  EXPECT_EQ(read_tensor_item(scalar, "item").data, "1234");
  const std::string empty = archive_of(tensor_entries(DType::kF32, {0, 3}, ""));
  EXPECT_THAT(read_tensor_item(empty, "item").shape, ElementsAre(0, 3));
}

// As torch.save writes x[1:, 1:3].t() of a 3x4 tensor: the whole storage, an offset, odd strides.
std::string view_pickle(int64_t offset, std::vector<int64_t> shape, std::vector<int64_t> strides) {
  PickleWriter pickle;
  pickle.global("torch._utils _rebuild_tensor_v2");
  pickle.mark();
  pickle.mark();
  pickle.text("storage");
  pickle.global("torch ByteStorage");
  pickle.text("0");
  pickle.text("cpu");
  pickle.integer(12);
  pickle.tuple();
  pickle.persistent_id();
  pickle.integer(offset);
  pickle.int_tuple(shape);
  pickle.int_tuple(strides);
  pickle.boolean(false);
  pickle.none();
  pickle.tuple();
  pickle.reduce();
  return std::move(pickle).finish();
}

TEST(TorchItem, ViewsAndTheirBounds) {
  const auto entries = [](const std::string& pickle) {
    return Entries{{"data.pkl", pickle}, {"data/0", "abcdefghijkl"}, {"version", "3"}};
  };
  const std::string bytes = archive_of(entries(view_pickle(5, {2, 2}, {1, 4})));
  const TensorItem item = read_tensor_item(bytes, "item");
  EXPECT_EQ(item.data, "fghijkl");
  EXPECT_THAT(item.strides, ElementsAre(1, 4));
  EXPECT_EQ(tensor_error(entries(view_pickle(7, {2, 2}, {1, 3}))), "no error");
  EXPECT_THAT(tensor_error(entries(view_pickle(8, {2, 2}, {1, 3}))),
              AllOf(HasSubstr("shape [2, 2], strides [1, 3], offset 8"),
                    HasSubstr("past the storage of 12 elements")));
  EXPECT_THAT(tensor_error(entries(view_pickle(0, {2, 2}, {1, INT64_MAX}))), HasSubstr("past"));
  EXPECT_THAT(tensor_error(entries(view_pickle(0, {INT64_MAX, 2}, {0, 0}))), HasSubstr("past"));
  EXPECT_THAT(tensor_error(entries(view_pickle(-1, {1}, {1}))), HasSubstr("do not fit together"));
  EXPECT_THAT(tensor_error(entries(view_pickle(0, {1}, {1, 1}))), HasSubstr("do not fit together"));
  EXPECT_THAT(tensor_error(entries(view_pickle(0, {-1}, {1}))), HasSubstr("negative"));
}

TEST(TorchItem, FormatIsChecked) {
  Entries entries = tensor_entries(DType::kF32, {1}, "1234");
  entries[1].second = "big";
  EXPECT_THAT(tensor_error(entries), HasSubstr("byte order \"big\"; only little is read"));
  entries[1].second = "little";
  entries[3].second = "11\n";
  EXPECT_THAT(tensor_error(entries), HasSubstr("archive version \"11\"; 1 to 10 are read"));
  entries.pop_back();
  EXPECT_THAT(tensor_error(entries), HasSubstr("no entry version"));
  EXPECT_THAT(tensor_error(tensor_entries(DType::kF32, {1}, "123")),
              HasSubstr("data/0 has 3 bytes, the tensor says 1 elements of F32"));
  EXPECT_THAT(tensor_error({{"data.pkl", value_item_pickle(7)}, {"version", "3"}}),
              HasSubstr("item: holds the int 7, not a tensor"));
}

TEST(TorchItem, ValueThatIsATensorIsNamed) {
  const std::string bytes = archive_of(tensor_entries(DType::kF32, {1}, "1234"));
  EXPECT_THAT(error_of([&] { read_value_item(bytes, "item"); }),
              HasSubstr("item: holds an object of torch._utils _rebuild_tensor_v2"));
}

TEST(ZipArchive, EveryCutIsAnError) {
  const std::string whole = archive_of(tensor_entries(DType::kF32, {2}, "12345678"));
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THAT(
        error_of([&] { read_tensor_item(std::string_view(whole).substr(0, length), "item"); }),
        HasSubstr("item: not a whole torch.save archive"))
        << length;
  }
}

TEST(ZipArchive, DamageIsNamed) {
  const std::string whole = archive_of(tensor_entries(DType::kF32, {2}, "12345678"));
  const auto with = [&](size_t at, char byte) {
    std::string damaged = whole;
    damaged[at] = byte;
    return error_of([&] {
      const ZipArchive archive(damaged, "item");
      archive.check_crc(archive.get("data/0"));
    });
  };
  const size_t directory = whole.find("PK\x01\x02");
  ASSERT_NE(directory, std::string::npos);
  EXPECT_THAT(with(0, 'Q'), HasSubstr("archive/data.pkl has a wrong signature"));
  EXPECT_THAT(with(30, 'b'), HasSubstr("gives another name"));
  EXPECT_THAT(with(directory + 10, 8), HasSubstr("archive/data.pkl is compressed"));
  EXPECT_THAT(with(directory + 8, 1), HasSubstr("archive/data.pkl is encrypted"));
  EXPECT_THAT(with(directory, 'Q'), HasSubstr("entry 0 of the directory is damaged"));
  EXPECT_THAT(with(whole.find("12345678") + 3, 'x'),
              AllOf(HasSubstr("item: the data of data/0 is damaged"), HasSubstr("CRC-32")));
}

TEST(ZipWriter, DataBeginsAtAMultipleOf64OfTheFile) {
  const TemporaryFolder folder;
  OutputFile file(folder.path() / "x");
  for (int i = 0; i < 5; ++i) {
    file.write(std::string(static_cast<size_t>(i) * 13, '.'));
    ZipWriter zip(file);
    zip.begin("data/0", 8);
    zip.write("1234");
    zip.write("5678");
    zip.end();
    zip.finish();
  }
  file.commit();
  const std::string bytes = read_file(folder.path() / "x");
  int found = 0;
  for (size_t at = bytes.find("12345678"); at != std::string::npos;
       at = bytes.find("12345678", at + 1), ++found) {
    EXPECT_EQ(at % 64, 0U);
  }
  EXPECT_EQ(found, 5);
}

TEST(ZipWriter, CountsTheBytesOfAnEntry) {
  const TemporaryFolder folder;
  OutputFile file(folder.path() / "x");
  ZipWriter zip(file);
  zip.begin("data/0", 4);
  EXPECT_THROW(zip.write("12345"), InternalError);
  zip.write("123");
  EXPECT_THROW(zip.end(), InternalError);
  EXPECT_THROW(zip.finish(), InternalError);
  EXPECT_THROW(zip.begin("data/1", 4), InternalError);
}

TEST(Crc32, KnownValueInOneOrTwoPieces) {
  EXPECT_EQ(crc32_of("123456789"), 0xCBF43926U);
  EXPECT_EQ(crc32_of("6789", crc32_of("12345")), 0xCBF43926U);
}

// Bit by bit, as the polynomial says.
uint32_t slow_crc(std::string_view bytes, uint32_t crc) {
  crc = ~crc;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

TEST(Crc32, EveryLengthStartAndOffset) {
  std::string bytes(1200, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i * 31 + i / 7);
  const std::string_view all = bytes;
  for (size_t size = 0; size < 1100; ++size) {
    const std::string_view part = all.substr(size % 17, size);
    const auto start = static_cast<uint32_t>(size * 2654435761U);
    ASSERT_EQ(crc32_of(part, start), slow_crc(part, start)) << size;
  }
}

}  // namespace
}  // namespace shardloom::checkpoint::dcp
