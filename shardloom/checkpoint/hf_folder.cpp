#include "shardloom/checkpoint/hf_folder.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::checkpoint {
namespace {

namespace fs = std::filesystem;

// A link counts even when it points to nothing: opening it then names the culprit.
bool is_listed(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

std::vector<std::string> file_names(const fs::path& folder) {
  std::vector<std::string> names;
  try {
    for (const auto& entry : fs::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
  } catch (const fs::filesystem_error& error) {
    throw CheckpointError("cannot list {}: {}", folder.string(), error.code().message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> names_with_extension(const std::vector<std::string>& names,
                                              const std::string& extension) {
  std::vector<std::string> matching;
  for (const std::string& name : names) {
    if (fs::path(name).extension() == extension) matching.push_back(name);
  }
  return matching;
}

// Says what the folder is instead, because the next step of the user depends on it.
[[noreturn]] void throw_no_weights(const fs::path& folder) {
  const std::vector<std::string> names = file_names(folder);
  const std::string head =
      fmt::format("{} has neither {} nor {}", folder.string(), kSingleFileName, kIndexFileName);
  if (const auto shards = names_with_extension(names, ".safetensors"); !shards.empty()) {
    throw CheckpointError("{}, only {}; was the index left out of the download?", head,
                          shortened_list(shards));
  }
  if (const auto pickles = names_with_extension(names, ".bin"); !pickles.empty()) {
    throw CheckpointError(
        "{}, only {}: PyTorch pickles are not read; save the model as safetensors first "
        "(save_pretrained with safe_serialization=True)",
        head, shortened_list(pickles));
  }
  if (is_listed(folder / ".metadata") || is_listed(folder / "latest_checkpointed_iteration.txt")) {
    throw CheckpointError("{}; it looks like a DCP checkpoint", head);
  }
  throw CheckpointError("{}; it holds {}", head, names.empty() ? "nothing" : shortened_list(names));
}

void check_is_folder(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw CheckpointError("model folder {}: {}", path.string(),
                          error ? error.message() : "No such file or directory");
  }
  if (!fs::is_directory(status)) {
    throw CheckpointError("{} is a file; give the folder that holds it", path.string());
  }
}

std::string describe_missing_file(const fs::path& path, const std::vector<std::string>& tensors) {
  const char* what = is_listed(path) ? "a link that leads nowhere" : "not there";
  return fmt::format("{} is {} (needed for {})", path.filename().string(), what,
                     shortened_list(tensors));
}

}  // namespace

bool is_hf_folder(const fs::path& folder) {
  return is_listed(folder / kSingleFileName) || is_listed(folder / kIndexFileName);
}

HfFolder HfFolder::open(const fs::path& folder) {
  check_is_folder(folder);
  HfFolder opened(folder);
  if (is_listed(folder / kIndexFileName)) {
    opened.open_index();
  } else if (is_listed(folder / kSingleFileName)) {
    opened.open_single_file();
  } else {
    throw_no_weights(folder);
  }
  opened.find_unused_files();
  return opened;
}

void HfFolder::open_single_file() {
  auto& file = files_[kSingleFileName];
  file = std::make_unique<SafetensorsFile>(path_ / kSingleFileName);
  if (file->tensors().empty()) {
    throw CheckpointError("{} holds no tensor", file->path().string());
  }
  for (const TensorInfo& tensor : file->tensors()) tensors_[tensor.name] = {file.get(), &tensor};
}

void HfFolder::open_index() {
  const TensorsOfFile tensors_of_file = read_hf_index(path_ / kIndexFileName);
  if (tensors_of_file.count(kSingleFileName) == 0 && is_listed(path_ / kSingleFileName)) {
    throw CheckpointError(
        "{} has both {} and an {} that names other files; remove the one that is out of date",
        path_.string(), kSingleFileName, kIndexFileName);
  }
  open_shards(tensors_of_file);
  place_tensors(tensors_of_file);
  find_stray_tensors();
}

void HfFolder::open_shards(const TensorsOfFile& tensors_of_file) {
  std::vector<std::string> missing;
  for (const auto& [name, tensors] : tensors_of_file) {
    std::error_code ignored;
    if (fs::exists(path_ / name, ignored)) continue;
    missing.push_back(describe_missing_file(path_ / name, tensors));
  }
  if (!missing.empty()) {
    throw CheckpointError("{}: {}", (path_ / kIndexFileName).string(), join(missing, "; "));
  }
  for (const auto& [name, tensors] : tensors_of_file) {
    files_[name] = std::make_unique<SafetensorsFile>(path_ / name);
  }
}

void HfFolder::place_tensors(const TensorsOfFile& tensors_of_file) {
  std::vector<std::string> wrong;
  for (const auto& [name, tensors] : tensors_of_file) {
    const SafetensorsFile& file = *files_.at(name);
    for (const std::string& tensor : tensors) {
      if (const TensorInfo* info = file.find(tensor)) {
        tensors_[tensor] = {&file, info};
        continue;
      }
      std::string text = fmt::format("{} is not in {}", tensor, name);
      for (const auto& [other_name, other] : files_) {
        if (other->find(tensor) != nullptr) text += fmt::format(" but in {}", other_name);
      }
      wrong.push_back(std::move(text));
    }
  }
  if (!wrong.empty()) {
    throw CheckpointError("{}: the index and its files disagree: {}",
                          (path_ / kIndexFileName).string(), shortened_list(wrong));
  }
}

void HfFolder::find_stray_tensors() {
  for (const auto& [name, file] : files_) {
    std::vector<std::string> strays;
    for (const TensorInfo& tensor : file->tensors()) {
      const TensorLocation* placed = find(tensor.name);
      if (placed != nullptr && placed->file == file.get()) continue;
      stray_tensors_.push_back({tensor.name, file->path()});
      strays.push_back(tensor.name);
    }
    if (!strays.empty()) {
      warnings_.push_back(
          fmt::format("{}: not loaded, because the index does not place them there: {}",
                      file->path().string(), shortened_list(strays)));
    }
  }
}

void HfFolder::find_unused_files() {
  for (const std::string& name : names_with_extension(file_names(path_), ".safetensors")) {
    if (files_.count(name) > 0) continue;
    warnings_.push_back(fmt::format("{} is not used: {} does not name it", (path_ / name).string(),
                                    is_listed(path_ / kIndexFileName) ? "the index" : "no index"));
  }
}

const TensorLocation* HfFolder::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

const TensorLocation& HfFolder::get(std::string_view name) const {
  if (const TensorLocation* location = find(name)) return *location;
  std::vector<std::string> names;
  for (const auto& entry : tensors_) names.push_back(entry.first);
  throw CheckpointError("{} has no tensor \"{}\"{}", path_.string(), name,
                        did_you_mean(name, names));
}

uint64_t HfFolder::total_bytes() const {
  uint64_t total = 0;
  for (const auto& [name, location] : tensors_) total += location.info->length;
  return total;
}

}  // namespace shardloom::checkpoint
