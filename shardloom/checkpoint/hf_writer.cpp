#include "shardloom/checkpoint/hf_writer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/log.h"
#include "shardloom/base/strings.h"
#include "shardloom/checkpoint/hf_index.h"
#include "shardloom/checkpoint/staged_folder.h"

namespace shardloom::checkpoint {
namespace {

namespace fs = std::filesystem;

// Weights in any format, and indices that would name files which are not copied.
bool is_weights_file(const fs::path& path) {
  constexpr std::array kExtensions = {".safetensors", ".bin",  ".pt", ".pth",     ".ckpt",
                                      ".gguf",        ".onnx", ".h5", ".msgpack", ".distcp"};
  const std::string name = path.filename().string();
  if (name.ends_with(".index.json")) return true;
  for (const char* extension : kExtensions) {
    if (path.extension() == extension) return true;
  }
  return false;
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with("."); }

void write_text(const fs::path& path, std::string_view text) {
  OutputFile file(path, text.size());
  file.write(text);
  file.commit();
}

// The chat templates of InternVL's two layouts write pictures differently, so one with the other
// layout's processor would give wrong prompts.
bool fits_one_layout(const fs::path& path) {
  constexpr std::array kNames = {"chat_template.jinja", "chat_template.json",
                                 "preprocessor_config.json", "processor_config.json",
                                 "video_preprocessor_config.json"};
  return path.extension() == ".py" ||
         std::find(kNames.begin(), kNames.end(), path.filename().string()) != kNames.end();
}

using Filter = std::function<bool(const fs::path&)>;

// `skipped` is the folder that is being written: the source may be one of its ancestors.
void copy_other_files(const fs::path& source,
                      const fs::path& target,
                      const fs::path& skipped,
                      const Filter& is_left_out) {
  for (const auto& entry : fs::directory_iterator(source)) {
    if (is_hidden(entry.path())) continue;
    const fs::path copy = target / entry.path().filename();
    if (entry.is_directory()) {
      if (!fs::equivalent(entry.path(), skipped))
        copy_other_files(entry.path(), copy, skipped, is_left_out);
    } else if (!is_left_out(entry.path()) && !fs::exists(copy)) {
      fs::create_directories(target);
      fs::copy_file(entry.path(), copy);
    }
  }
}

}  // namespace

std::vector<std::vector<TensorSpec>> plan_shards(const std::vector<TensorSpec>& tensors,
                                                 uint64_t max_bytes) {
  std::vector<std::vector<TensorSpec>> shards;
  uint64_t used = 0;
  for (const TensorSpec& tensor : tensors) {
    const uint64_t bytes = spec_bytes(tensor);
    if (shards.empty() || bytes > max_bytes - std::min(used, max_bytes)) {
      shards.emplace_back();
      used = 0;
    }
    shards.back().push_back(tensor);
    used += bytes;
  }
  for (auto& shard : shards) shard = file_order(std::move(shard));
  return shards;
}

HfFolderWriter::HfFolderWriter(fs::path folder,
                               std::vector<TensorSpec> tensors,
                               HfWriteOptions options)
    : folder_(std::move(folder)), tensors_(std::move(tensors)), options_(options) {
  SHARDLOOM_CHECK(!tensors_.empty(), "no tensors for {}", folder_.string());
  // A trailing slash would put the temporary folder inside the target.
  if (!folder_.has_filename()) folder_ = folder_.parent_path();
  if (!options_.replace) require_free_folder(folder_);
}

void HfFolderWriter::add_text_file(const std::string& name, std::string text) {
  text_files_[name] = std::move(text);
}

void HfFolderWriter::write(const Provider& provider) {
  try {
    begin_staging(folder_);
    as_checkpoint_error([&] {
      write_shards(staging_folder(folder_), provider);
      write_other_files(staging_folder(folder_));
    });
    publish_staging(folder_);
  } catch (...) {
    abandon_staging(folder_);
    throw;
  }
}

void HfFolderWriter::write_shards(const fs::path& folder, const Provider& provider) const {
  const auto shards = plan_shards(tensors_, options_.max_shard_bytes);
  TensorsOfFile tensors_of_file;
  uint64_t total_size = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    SafetensorsWriter writer(folder / name, shards[i]);
    for (const TensorSpec& tensor : writer.tensors()) {
      provider(tensor, [&](std::string_view bytes) { writer.write(tensor.name, bytes); });
      tensors_of_file[name].push_back(tensor.name);
      total_size += spec_bytes(tensor);
    }
    writer.finish();
  }
  write_text(folder / kIndexFileName, hf_index_text(tensors_of_file, total_size));
}

void HfFolderWriter::write_other_files(const fs::path& folder) const {
  for (const auto& [name, text] : text_files_) write_text(folder / name, text);
  if (source_.empty()) return;
  std::vector<std::string> unfit;
  copy_other_files(source_, folder, folder, [&](const fs::path& path) {
    const bool is_unfit = options_.other_layout && fits_one_layout(path);
    if (is_unfit) unfit.push_back(path.filename().string());
    return is_unfit || is_weights_file(path);
  });
  if (!unfit.empty()) {
    log::info("{}: not copied, because they fit the layout of {} only: {}", folder_.string(),
              source_.string(), join(unfit, ", "));
  }
}

}  // namespace shardloom::checkpoint
