// A file that grows by whole records for as long as a run lasts.
#pragma once

#include <filesystem>
#include <string_view>

namespace shardloom::trainer {

class AppendFile {
 public:
  // Creates the folder and the file where needed. Throws ConfigError: the metrics folder is a
  // setting.
  explicit AppendFile(std::filesystem::path path);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  // Hands the record to the system at once, so that readers and a crash of this process find it
  // whole. A failure (a full disk, say) is reported once and ends the writing, but not the run:
  // metrics are not worth a training.
  void append(std::string_view record);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace shardloom::trainer
