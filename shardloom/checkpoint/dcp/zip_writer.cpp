#include "shardloom/checkpoint/dcp/zip_writer.h"

#include <algorithm>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/dcp/crc32.h"
#include "shardloom/checkpoint/dcp/zip_format.h"

namespace shardloom::checkpoint::dcp {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint16_t kVersionNeeded = 45;  // zip64
constexpr uint16_t kFlags = kFlagUtf8 | kFlagDescriptor;
constexpr uint64_t kFieldHeadBytes = 4;

class Record {
 public:
  Record& u16(uint64_t value) { return put(value, 2); }
  Record& u32(uint64_t value) { return put(value, 4); }
  Record& u64(uint64_t value) { return put(value, 8); }
  Record& text(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Record& put(uint64_t value, size_t count) {
    for (size_t i = 0; i < count; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xFF);
    return *this;
  }

  std::string bytes_;
};

// Version, flags, method, time and date are the same in both headers of an entry.
Record& put_common(Record& record) {
  return record.u16(kVersionNeeded).u16(kFlags).u16(0).u16(0).u16(0);
}

}  // namespace

ZipWriter::ZipWriter(OutputFile& file) : file_(file), start_(file.bytes_written()) {}

void ZipWriter::add(std::string_view name, std::string_view data) {
  entries_.push_back({fmt::format("archive/{}", name), position(), data.size(), 0});
  write_header(false);
  write(data);
  end();
}

void ZipWriter::begin(std::string_view name, uint64_t size) {
  entries_.push_back({fmt::format("archive/{}", name), position(), size, 0});
  write_header(true);
}

void ZipWriter::write_header(bool is_aligned) {
  SHARDLOOM_CHECK(!is_open_, "an entry begins inside {}", entries_.back().name);
  const Entry& entry = entries_.back();
  Record extra;
  extra.u16(kZip64Field).u16(16).u64(entry.size).u64(entry.size);
  if (is_aligned) {
    const uint64_t end = file_.bytes_written() + kLocalHeaderBytes + entry.name.size() +
                         extra.bytes().size() + kFieldHeadBytes;
    const uint64_t padding = (kAlignment - end % kAlignment) % kAlignment;
    extra.u16(kPaddingField).u16(padding).text(std::string(padding, 'Z'));
  }
  Record header;
  header.u32(kLocalHeaderMagic);
  put_common(header).u32(0).u32(kInZip64).u32(kInZip64);
  header.u16(entry.name.size()).u16(extra.bytes().size()).text(entry.name).text(extra.bytes());
  file_.write(header.bytes());
  remaining_ = entry.size;
  is_open_ = true;
}

void ZipWriter::write(std::string_view piece) {
  SHARDLOOM_CHECK(is_open_ && piece.size() <= remaining_, "{} bytes where {} are left",
                  piece.size(), remaining_);
  entries_.back().crc = crc32_of(piece, entries_.back().crc);
  file_.write(piece);
  remaining_ -= piece.size();
}

void ZipWriter::end() {
  const Entry& entry = entries_.back();
  SHARDLOOM_CHECK(is_open_ && remaining_ == 0, "{} lacks {} bytes", entry.name, remaining_);
  Record descriptor;
  descriptor.u32(kDescriptorMagic).u32(entry.crc).u64(entry.size).u64(entry.size);
  file_.write(descriptor.bytes());
  is_open_ = false;
}

uint64_t ZipWriter::finish() {
  SHARDLOOM_CHECK(!is_open_, "{} is not ended", entries_.back().name);
  const uint64_t directory_offset = position();
  Record out;
  for (const Entry& entry : entries_) {
    out.u32(kDirectoryMagic).u16(kVersionNeeded);
    put_common(out).u32(entry.crc).u32(kInZip64).u32(kInZip64);
    out.u16(entry.name.size()).u16(kFieldHeadBytes + 24).u16(0).u16(0).u16(0).u32(0);
    out.u32(kInZip64).text(entry.name);
    out.u16(kZip64Field).u16(24).u64(entry.size).u64(entry.size).u64(entry.offset);
  }
  const uint64_t directory_bytes = out.bytes().size();
  const uint64_t count = entries_.size();
  out.u32(kZip64EndMagic).u64(kZip64EndBytes - 12).u16(kVersionNeeded).u16(kVersionNeeded);
  out.u32(0).u32(0).u64(count).u64(count).u64(directory_bytes).u64(directory_offset);
  out.u32(kZip64LocatorMagic).u32(0).u64(directory_offset + directory_bytes).u32(1);
  out.u32(kEndMagic).u16(0).u16(0).u16(count).u16(count).u32(directory_bytes);
  out.u32(std::min<uint64_t>(directory_offset, kInZip64)).u16(0);
  file_.write(out.bytes());
  return position();
}

}  // namespace shardloom::checkpoint::dcp
