// One program at a time in a folder.
#pragma once

#include <chrono>
#include <filesystem>

namespace shardloom::checkpoint {

// Held until it is destroyed or the process ends, however it ends; leaves no file. File systems
// without locks of folders (NFS) give it to everybody.
class FolderLock {
 public:
  // Waits so long for a process that is about to end; then throws CheckpointError.
  explicit FolderLock(const std::filesystem::path& folder, std::chrono::milliseconds patience = {});
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  int fd_;
};

}  // namespace shardloom::checkpoint
