// Writes one torch.save archive to the end of a file, in one pass: the data of an entry may come in
// pieces, its CRC follows it. Every entry is in zip64 form, whatever its size.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/checkpoint/output_file.h"

namespace shardloom::checkpoint::dcp {

class ZipWriter {
 public:
  // The archive begins where the file ends now.
  explicit ZipWriter(OutputFile& file);

  // A small entry as a whole; `name` is without the archive's folder.
  void add(std::string_view name, std::string_view data);

  // An entry in pieces: begin, write as often as convenient, end. Exactly `size` bytes must come.
  // The data begins at a multiple of 64 bytes of the file.
  void begin(std::string_view name, uint64_t size);
  void write(std::string_view piece);
  void end();

  // Writes the directory; returns the length of the archive.
  uint64_t finish();

 private:
  struct Entry {
    std::string name;
    uint64_t offset;  // of its header, from the beginning of the archive
    uint64_t size;
    uint32_t crc;
  };

  uint64_t position() const { return file_.bytes_written() - start_; }
  void write_header(bool is_aligned);

  OutputFile& file_;
  uint64_t start_;
  std::vector<Entry> entries_;
  uint64_t remaining_ = 0;  // of the entry that is being written
  bool is_open_ = false;
};

}  // namespace shardloom::checkpoint::dcp
