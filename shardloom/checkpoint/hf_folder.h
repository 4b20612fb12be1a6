// Reader of Hugging Face model folders: one model.safetensors, or shards named by
// model.safetensors.index.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/checkpoint/hf_index.h"
#include "shardloom/checkpoint/safetensors.h"

namespace shardloom::checkpoint {

// True when the folder has one of these two files (tells it from a DCP folder).
bool is_hf_folder(const std::filesystem::path& folder);

struct TensorLocation {
  const SafetensorsFile* file = nullptr;
  const TensorInfo* info = nullptr;

  std::string_view data() const { return file->data(*info); }
  void drop_pages() const { file->drop_pages(*info); }
};

// A tensor that is in a shard while the index does not name it there; it is never loaded.
struct StrayTensor {
  std::string name;
  std::filesystem::path file;
};

// Opened as a whole: when open() returns, every tensor of the index is known to be in the file the
// index gives, with a checked header; no tensor data has been read. With an index, the index alone
// decides which file a tensor comes from. A model.safetensors beside an index that does not name it
// is an error: programs differ in which one they take.
class HfFolder {
 public:
  // Throws CheckpointError that counts all missing files, or all missing tensors.
  static HfFolder open(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, TensorLocation, std::less<>>& tensors() const { return tensors_; }

  // nullptr when the folder has no such tensor.
  const TensorLocation* find(std::string_view name) const;
  // Throws CheckpointError with the nearest name.
  const TensorLocation& get(std::string_view name) const;

  // Oddities that do no harm to what is loaded, as sentences: stray tensors, files the index does
  // not name.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // For loads that must use every tensor.
  const std::vector<StrayTensor>& stray_tensors() const { return stray_tensors_; }

  // Bytes of all tensors().
  uint64_t total_bytes() const;

 private:
  explicit HfFolder(std::filesystem::path path) : path_(std::move(path)) {}
  void open_single_file();
  void open_index();
  void open_shards(const TensorsOfFile& tensors_of_file);
  void place_tensors(const TensorsOfFile& tensors_of_file);
  void find_stray_tensors();
  void find_unused_files();

  std::filesystem::path path_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;  // by file name
  std::map<std::string, TensorLocation, std::less<>> tensors_;
  std::vector<StrayTensor> stray_tensors_;
  std::vector<std::string> warnings_;
};

}  // namespace shardloom::checkpoint
