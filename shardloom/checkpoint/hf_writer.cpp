#include "shardloom/checkpoint/hf_writer.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
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

// A link to a folder that it stands in: following it would never end.
bool leads_up(const fs::directory_entry& entry) {
  if (!entry.is_symlink()) return false;
  const fs::path inner = fs::canonical(entry.path().parent_path()), outer = fs::canonical(entry);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

// Relative to `source`. `skipped` is the folder that is being written: the source may be one of its
// ancestors.
std::vector<fs::path> other_files(const fs::path& source,
                                  const fs::path& skipped,
                                  const fs::path& below = {}) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(source / below)) {
    const fs::path name = below / entry.path().filename();
    if (is_hidden(name) || (!entry.is_directory() && is_weights_file(name))) continue;
    if (!entry.exists()) {
      throw CheckpointError("{} is a link that leads nowhere; remove or restore it",
                            entry.path().string());
    }
    if (entry.is_regular_file()) {
      files.push_back(name);
    } else if (entry.is_directory() && !fs::equivalent(entry, skipped) && !leads_up(entry)) {
      for (fs::path& file : other_files(source, skipped, name)) files.push_back(std::move(file));
    }
  }
  return files;
}

// Those that are not there yet; ends with them on disk.
void copy_files(const fs::path& source,
                const fs::path& target,
                const std::vector<fs::path>& files) {
  std::set<fs::path> folders;
  for (const fs::path& file : files) {
    if (fs::exists(target / file)) continue;
    fs::create_directories((target / file).parent_path());
    fs::copy_file(source / file, target / file);
    sync_path(target / file);
    for (fs::path f = file.parent_path(); !f.empty(); f = f.parent_path()) folders.insert(f);
  }
  for (const fs::path& folder : folders) sync_path(target / folder);
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
  // A link keeps its place, and the folder that it leads to is filled.
  as_checkpoint_error([&] {
    if (fs::is_symlink(folder_) && fs::is_directory(folder_)) folder_ = fs::canonical(folder_);
  });
  if (!options_.replace) require_free_folder(folder_);
}

void HfFolderWriter::add_text_file(const std::string& name, std::string text) {
  text_files_[name] = std::move(text);
}

void HfFolderWriter::write(const Provider& provider) {
  try {
    begin_staging(folder_);
    as_checkpoint_error([&] {
      const fs::path staging = staging_folder(folder_);
      const std::vector<fs::path> others = files_to_copy(staging);  // its errors come early
      write_shards(staging, provider);
      for (const auto& [name, text] : text_files_) write_text(staging / name, text);
      copy_files(source_, staging, others);
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

std::vector<fs::path> HfFolderWriter::files_to_copy(const fs::path& folder) const {
  if (source_.empty()) return {};
  std::vector<fs::path> files = other_files(source_, folder);
  if (!options_.other_layout) return files;
  const auto unfit = std::stable_partition(
      files.begin(), files.end(), [](const fs::path& file) { return !fits_one_layout(file); });
  if (unfit != files.end()) {
    std::vector<std::string> names;
    std::transform(unfit, files.end(), std::back_inserter(names),
                   [](const fs::path& file) { return file.filename().string(); });
    log::info("{}: not copied, because they fit the layout of {} only: {}", folder_.string(),
              source_.string(), join(names, ", "));
  }
  files.erase(unfit, files.end());
  return files;
}

}  // namespace shardloom::checkpoint
