// Files: read whole, map read-only, write so that a reader never sees half a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace shardloom {

// A file mapped read-only. Movable; unmaps on destruction. Throws std::system_error with the path
// in its text.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const char* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view view() const { return {data_, size_}; }

  // Tells the kernel that [offset, offset+length) will not be read again soon (keeps RSS low while
  // streaming).
  void drop_pages(size_t offset, size_t length) const;

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// Whole content, of a pipe too. Throws std::system_error with the path in its text when it cannot
// be read.
std::string read_file(const std::filesystem::path& path);

// Writes path + ".tmp", flushes it to disk, renames. Throws std::system_error; on failure the old
// file stays and the new one goes.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// fsync, again after a signal. False with errno.
bool flush_to_disk(int fd);

// Flushes a file or folder entry to disk (fsync). Throws std::system_error.
void sync_to_disk(const std::filesystem::path& path);

// "git-lfs pointer", "HTML page", "pickle/zip (PyTorch .bin)", ...: what a file really is when its
// content is not what the name promises; empty when nothing is recognised.
std::string describe_foreign_content(std::string_view head);

}  // namespace shardloom
