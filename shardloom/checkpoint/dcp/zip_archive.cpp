#include "shardloom/checkpoint/dcp/zip_archive.h"

#include <fmt/format.h>

#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/dcp/crc32.h"
#include "shardloom/checkpoint/dcp/zip_format.h"

namespace shardloom::checkpoint::dcp {
namespace {

// The caller has checked that the bytes are there.
uint64_t little_endian(std::string_view bytes, size_t offset, size_t count) {
  uint64_t value = 0;
  for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[offset + i]);
  return value;
}

uint16_t u16(std::string_view bytes, size_t offset) {
  return static_cast<uint16_t>(little_endian(bytes, offset, 2));
}

uint32_t u32(std::string_view bytes, size_t offset) {
  return static_cast<uint32_t>(little_endian(bytes, offset, 4));
}

uint64_t u64(std::string_view bytes, size_t offset) { return little_endian(bytes, offset, 8); }

// Replaces each of the values that says so by the next of the zip64 field; false when the field
// holds too few.
bool take_zip64(std::string_view extra, std::initializer_list<uint64_t*> values) {
  std::string_view field;
  while (extra.size() >= 4) {
    const uint16_t id = u16(extra, 0);
    const uint16_t size = u16(extra, 2);
    extra.remove_prefix(4);
    if (size > extra.size()) return false;
    if (id == kZip64Field) field = extra.substr(0, size);
    extra.remove_prefix(size);
  }
  for (uint64_t* value : values) {
    if (*value != kInZip64) continue;
    if (field.size() < 8) return false;
    *value = u64(field, 0);
    field.remove_prefix(8);
  }
  return true;
}

}  // namespace

ZipArchive::ZipArchive(std::string_view bytes, std::string place)
    : bytes_(bytes), place_(std::move(place)) {
  const Directory where = find_directory();
  std::string_view directory = range(where.offset, where.size, "the directory");
  if (where.entries > where.size / kDirectoryEntryBytes) {
    fail(fmt::format("{} entries in a directory of {} bytes", where.entries, where.size));
  }
  entries_.reserve(where.entries);
  for (uint64_t i = 0; i < where.entries; ++i) read_entry(directory, where.offset);
}

void ZipArchive::fail(const std::string& cause) const {
  throw CheckpointError("{}: not a whole torch.save archive: {}", place_, cause);
}

std::string_view ZipArchive::range(uint64_t offset, uint64_t length, const char* what) const {
  if (offset > bytes_.size() || length > bytes_.size() - offset) {
    fail(fmt::format("{} ({} bytes at {}) runs past the end at {}", what, length, offset,
                     bytes_.size()));
  }
  return bytes_.substr(offset, length);
}

ZipArchive::Directory ZipArchive::find_directory() const {
  // torch.save writes no comment, so the end record is the last thing.
  if (bytes_.size() < kEndBytes || u32(bytes_, bytes_.size() - kEndBytes) != kEndMagic) {
    fail("it has no end record");
  }
  const uint64_t end_offset = bytes_.size() - kEndBytes;
  const std::string_view end = bytes_.substr(end_offset);
  Directory found{u16(end, 10), u32(end, 16), u32(end, 12)};
  if (end_offset >= kZip64LocatorBytes &&
      u32(bytes_, end_offset - kZip64LocatorBytes) == kZip64LocatorMagic) {
    const uint64_t offset = u64(bytes_, end_offset - kZip64LocatorBytes + 8);
    const std::string_view zip64 = range(offset, kZip64EndBytes, "the zip64 end record");
    if (u32(zip64, 0) != kZip64EndMagic) fail("the zip64 end record has a wrong signature");
    found = {u64(zip64, 32), u64(zip64, 48), u64(zip64, 40)};
  }
  return found;
}

void ZipArchive::read_entry(std::string_view& directory, uint64_t directory_offset) {
  if (directory.size() < kDirectoryEntryBytes || u32(directory, 0) != kDirectoryMagic) {
    fail(fmt::format("entry {} of the directory is damaged", entries_.size()));
  }
  const uint64_t name_bytes = u16(directory, 28);
  const uint64_t extra_bytes = u16(directory, 30);
  const uint64_t total = kDirectoryEntryBytes + name_bytes + extra_bytes + u16(directory, 32);
  if (total > directory.size()) {
    fail(fmt::format("entry {} of the directory runs past its end", entries_.size()));
  }
  const std::string_view name = directory.substr(kDirectoryEntryBytes, name_bytes);
  const std::string_view extra = directory.substr(kDirectoryEntryBytes + name_bytes, extra_bytes);
  if (u16(directory, 10) != 0) fail(fmt::format("{} is compressed", name));
  if ((u16(directory, 8) & kFlagEncrypted) != 0) fail(fmt::format("{} is encrypted", name));
  uint64_t stored_size = u32(directory, 20);
  uint64_t size = u32(directory, 24);
  uint64_t offset = u32(directory, 42);
  if (!take_zip64(extra, {&size, &stored_size, &offset}) || size != stored_size) {
    fail(fmt::format("the sizes of {} are damaged", name));
  }
  ZipEntry entry;
  entry.crc = u32(directory, 16);
  read_local_header(entry, name, offset, size, directory_offset);
  entries_.push_back(entry);
  directory.remove_prefix(total);
}

void ZipArchive::read_local_header(
    ZipEntry& entry, std::string_view full_name, uint64_t offset, uint64_t size, uint64_t end) {
  const std::string_view header = range(offset, kLocalHeaderBytes, "a header");
  if (u32(header, 0) != kLocalHeaderMagic) {
    fail(fmt::format("the header of {} has a wrong signature", full_name));
  }
  const uint64_t name_bytes = u16(header, 26);
  if (range(offset + kLocalHeaderBytes, name_bytes, "a name") != full_name) {
    fail(fmt::format("the header of {} gives another name", full_name));
  }
  const uint64_t data_offset = offset + kLocalHeaderBytes + name_bytes + u16(header, 28);
  entry.data = range(data_offset, size, "an entry");
  if (data_offset + size > end) fail(fmt::format("{} runs into the directory", full_name));
  if (entries_.empty()) folder_ = full_name.substr(0, full_name.find('/') + 1);
  if (!full_name.starts_with(folder_)) {
    fail(fmt::format("{} is not in the folder {}", full_name, folder_));
  }
  entry.name = full_name.substr(folder_.size());
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  for (const ZipEntry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

const ZipEntry& ZipArchive::get(std::string_view name) const {
  const ZipEntry* entry = find(name);
  if (entry == nullptr) fail(fmt::format("it has no entry {}", name));
  return *entry;
}

void ZipArchive::check_crc(const ZipEntry& entry, const PieceDone& done) const {
  constexpr size_t kPieceBytes = size_t{64} << 20;
  uint32_t crc = 0;
  for (size_t at = 0; at < entry.data.size(); at += kPieceBytes) {
    const std::string_view piece = entry.data.substr(at, kPieceBytes);
    crc = crc32_of(piece, crc);
    if (done) done(piece);
  }
  compare_crc(entry, crc);
}

void ZipArchive::compare_crc(const ZipEntry& entry, uint32_t crc) const {
  if (crc != entry.crc) {
    throw CheckpointError(
        "{}: the data of {} is damaged: CRC-32 {:08x}, {:08x} was written; restore the file from a "
        "copy or use an earlier checkpoint",
        place_, entry.name, crc, entry.crc);
  }
}

}  // namespace shardloom::checkpoint::dcp
