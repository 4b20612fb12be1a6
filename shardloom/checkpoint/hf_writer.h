// Writer of Hugging Face model folders: shards, their index, and the files that go with a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/checkpoint/safetensors_writer.h"

namespace shardloom::checkpoint {

// Cuts the list, in its order, into files of at most max_bytes of data (a bigger tensor gets a file
// of its own). Each file's tensors are in file_order(). A pure function: ranks that must take part
// in gathering each tensor walk the same list as the rank that writes.
std::vector<std::vector<TensorSpec>> plan_shards(const std::vector<TensorSpec>& tensors,
                                                 uint64_t max_bytes);

struct HfWriteOptions {
  uint64_t max_shard_bytes = 4'000'000'000;
  bool replace = false;  // swap an existing folder out at the end instead of refusing it
  // Weights and config.json are in another layout than the folder that files are copied from: what
  // fits only that one (Python code, chat template, processor settings) is left out.
  bool other_layout = false;
};

// Everything is written to `folder` + ".tmp", which gets its name as the last step; what an
// earlier, killed run left there is removed. Errors are CheckpointError.
class HfFolderWriter {
 public:
  // Takes the next piece of the tensor's bytes (little-endian, row-major).
  using Sink = std::function<void(std::string_view)>;
  // Gives the bytes of one tensor, in pieces. Called once a tensor, in the order of plan_shards().
  using Provider = std::function<void(const TensorSpec&, const Sink&)>;

  // Throws at once when `folder` exists and is not empty, unless options.replace is set.
  HfFolderWriter(std::filesystem::path folder,
                 std::vector<TensorSpec> tensors,
                 HfWriteOptions options = {});

  // A file of its own, such as config.json; it wins over a copied file of the same name.
  void add_text_file(const std::string& name, std::string text);

  // Copies what belongs to the model but is no weights (tokenizer, configs, remote code),
  // sub-folders included. Links are followed; hidden files, pipes and the like are left out.
  void copy_files_from(std::filesystem::path source) { source_ = std::move(source); }

  void write(const Provider& provider);

 private:
  void write_shards(const std::filesystem::path& folder, const Provider& provider) const;
  // Relative to the source; `folder` is the one that is filled.
  std::vector<std::filesystem::path> files_to_copy(const std::filesystem::path& folder) const;

  std::filesystem::path folder_;
  std::vector<TensorSpec> tensors_;
  HfWriteOptions options_;
  std::map<std::string, std::string> text_files_;
  std::filesystem::path source_;
};

}  // namespace shardloom::checkpoint
