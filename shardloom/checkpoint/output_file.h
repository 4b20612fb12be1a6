// A file that appears whole or not at all: it is written as path + ".tmp", flushed to disk and
// renamed. For big files that are written in pieces (write_file_atomically of base takes one
// string).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace shardloom::checkpoint {

// Errors are CheckpointError with the path, the bytes written and, when the disk is full, the bytes
// that are free.
class OutputFile {
 public:
  // `expected_bytes` is for messages only; 0 when unknown.
  explicit OutputFile(std::filesystem::path path, uint64_t expected_bytes = 0);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  // Removes the temporary file unless commit() was reached.
  ~OutputFile();

  void write(std::string_view bytes);
  uint64_t bytes_written() const { return bytes_written_; }

  // Flushes to disk, closes, gives the file its name and flushes the folder's entry.
  void commit();

 private:
  void send_to_disk();
  [[noreturn]] void fail(const char* action) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  uint64_t expected_bytes_;
  uint64_t bytes_written_ = 0;
  uint64_t bytes_sent_ = 0;  // that the disk has been told to write
  int fd_ = -1;
};

// fsync of a file, or of a folder, so that renames in it last; throws CheckpointError.
void sync_path(const std::filesystem::path& path);

}  // namespace shardloom::checkpoint
