// The uncompressed zip archive that torch.save writes, as a range of bytes of a bigger file. The
// format: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shardloom::checkpoint::dcp {

struct ZipEntry {
  std::string_view name;  // without the archive's folder: "data.pkl", "data/0"
  std::string_view data;
  uint32_t crc = 0;  // CRC-32 that the archive gives
};

// Reads the directory at the end of the archive and checks it against the headers of the entries;
// the data itself is not touched. Errors are CheckpointError with the place and the cause.
class ZipArchive {
 public:
  // `bytes` is the whole archive and must outlive this object; `place` is its name in errors.
  ZipArchive(std::string_view bytes, std::string place);

  const std::string& place() const { return place_; }
  const std::vector<ZipEntry>& entries() const { return entries_; }

  // nullptr when there is none.
  const ZipEntry* find(std::string_view name) const;
  // Throws CheckpointError when there is none.
  const ZipEntry& get(std::string_view name) const;

  // Reads all its data; throws CheckpointError when it is not what was written. Calls `done`, if
  // any, with each piece that has been read.
  using PieceDone = std::function<void(std::string_view piece)>;
  void check_crc(const ZipEntry& entry, const PieceDone& done = {}) const;
  // The same for a caller who has read the data: `crc` is theirs.
  void compare_crc(const ZipEntry& entry, uint32_t crc) const;

 private:
  struct Directory {
    uint64_t entries;
    uint64_t offset;
    uint64_t size;
  };

  [[noreturn]] void fail(const std::string& cause) const;
  std::string_view range(uint64_t offset, uint64_t length, const char* what) const;
  Directory find_directory() const;
  // Reads one entry of the directory and removes it from the front of `directory`.
  void read_entry(std::string_view& directory, uint64_t directory_offset);
  void read_local_header(
      ZipEntry& entry, std::string_view full_name, uint64_t offset, uint64_t size, uint64_t end);

  std::string_view bytes_;
  std::string place_;
  std::string folder_;  // "archive/"
  std::vector<ZipEntry> entries_;
};

}  // namespace shardloom::checkpoint::dcp
