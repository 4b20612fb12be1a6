// Reads of big ranges of a file into memory of the caller's, past any mapping: one system call
// fills many pages, where a copy from a mapping takes a fault for each page of both sides.
#pragma once

#include <cstdint>
#include <filesystem>

namespace shardloom::checkpoint {

// Errors are CheckpointError with path and cause.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  // Exactly `size` bytes from `offset` on. Pages of `target` that were never written to are made
  // in one go.
  void read_at(uint64_t offset, char* target, size_t size) const;

 private:
  std::filesystem::path path_;
  int fd_;
};

}  // namespace shardloom::checkpoint
