#include "shardloom/checkpoint/save_root.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/strings.h"
#include "shardloom/checkpoint/dcp/metadata.h"
#include "shardloom/checkpoint/hf_folder.h"
#include "shardloom/checkpoint/output_file.h"
#include "shardloom/checkpoint/staged_folder.h"

namespace shardloom::checkpoint {
namespace {

constexpr std::string_view kIterationPrefix = "iter_";

// Of "iter_0000030" and of that with `ending`; nothing for other names.
std::optional<int64_t> iteration_of(std::string_view name, std::string_view ending = "") {
  if (!name.starts_with(kIterationPrefix) || !name.ends_with(ending)) return std::nullopt;
  name.remove_prefix(kIterationPrefix.size());
  name.remove_suffix(ending.size());
  int64_t iteration = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), iteration);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == name.data() + name.size();
  return whole && iteration >= 0 ? std::optional(iteration) : std::nullopt;
}

// Of a text that may be anything: what can be printed of its beginning.
std::string shown(std::string_view text) {
  constexpr size_t kShownBytes = 40;
  std::string result;
  for (const char byte : text.substr(0, kShownBytes)) {
    const bool is_plain = byte >= 0x20 && byte < 0x7F;
    result +=
        is_plain ? std::string(1, byte) : fmt::format("\\x{:02x}", static_cast<uint8_t>(byte));
  }
  return text.size() > kShownBytes ? result + "..." : result;
}

// A trailing slash leaves an empty last part.
std::string name_of(const std::filesystem::path& folder) {
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

std::vector<std::string> folder_names(const std::filesystem::path& root) {
  std::vector<std::string> names;
  as_checkpoint_error([&] {
    if (!std::filesystem::is_directory(root)) return;
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      if (entry.is_directory()) names.push_back(entry.path().filename().string());
    }
  });
  return names;
}

bool holds_weights(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / dcp::kMetadataName, ignored) || is_hf_folder(folder);
}

}  // namespace

std::filesystem::path checkpoint_folder(const std::filesystem::path& root,
                                        std::optional<int64_t> iteration) {
  return root / (iteration ? fmt::format("iter_{:07}", *iteration) : kReleaseName);
}

void write_latest(const std::filesystem::path& root, std::optional<int64_t> iteration) {
  const std::string text = iteration ? fmt::format("{}", *iteration) : kReleaseName;
  OutputFile file(root / kLatestFileName, text.size());
  file.write(text);
  file.commit();
}

Latest read_latest(const std::filesystem::path& root) {
  const std::filesystem::path path = root / kLatestFileName;
  std::string content;
  try {
    content = read_file(path);
  } catch (const std::system_error& error) {
    throw CheckpointError("{}; it names the checkpoint to load, in the folder above them",
                          error.what());
  }
  const std::string_view text = trim(content);
  if (text == kReleaseName) return {std::nullopt, checkpoint_folder(root, std::nullopt)};
  int64_t iteration = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), iteration);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || iteration < 0) {
    throw CheckpointError("{}: \"{}\" is neither an iteration nor {}{}", path.string(), shown(text),
                          kReleaseName, choice_text(root));
  }
  return {iteration, checkpoint_folder(root, iteration)};
}

std::filesystem::path latest_below(const std::filesystem::path& path) {
  if (holds_weights(path)) return path;
  std::error_code ignored;
  if (std::filesystem::exists(path / kLatestFileName, ignored)) {
    const Latest latest = read_latest(path);
    if (std::filesystem::exists(latest.folder, ignored)) return latest.folder;
    throw CheckpointError("{} names {}, which does not exist{}", (path / kLatestFileName).string(),
                          latest.folder.filename().string(), choice_text(path));
  }
  const auto there = complete_iterations(path);
  if (there.empty()) return path;
  throw CheckpointError("{} has no {} that names one of its checkpoints; name a folder such as {}",
                        path.string(), kLatestFileName,
                        checkpoint_folder(path, there.back()).string());
}

bool is_release_folder(const std::filesystem::path& folder) {
  return name_of(folder) == kReleaseName;
}

std::optional<int64_t> iteration_of_folder(const std::filesystem::path& folder) {
  return iteration_of(name_of(folder));
}

std::vector<int64_t> saved_iterations(const std::filesystem::path& root) {
  std::vector<int64_t> iterations;
  for (const std::string& name : folder_names(root)) {
    const auto iteration = iteration_of(name);
    // "iter_5" would not be found again.
    if (iteration && checkpoint_folder(root, iteration).filename() == name)
      iterations.push_back(*iteration);
  }
  std::sort(iterations.begin(), iterations.end());
  return iterations;
}

std::vector<int64_t> complete_iterations(const std::filesystem::path& root) {
  std::vector<int64_t> iterations = saved_iterations(root);
  std::erase_if(iterations, [&](int64_t iteration) {
    return !holds_weights(checkpoint_folder(root, iteration));
  });
  return iterations;
}

std::string choice_text(const std::filesystem::path& root) {
  const auto iterations = complete_iterations(root);
  if (iterations.empty()) return {};
  return fmt::format(
      "; the folder has checkpoints of iterations {}: write the one to load into that file",
      fmt::join(iterations, ", "));
}

void remove_older(const std::filesystem::path& root, int64_t iteration, int64_t keep) {
  std::vector<int64_t> older = complete_iterations(root);
  std::erase_if(older, [&](int64_t i) { return i >= iteration; });
  const auto removed = static_cast<int64_t>(older.size()) - (keep - 1);
  for (int64_t i = 0; i < removed; ++i) {
    const auto folder = checkpoint_folder(root, older[static_cast<size_t>(i)]);
    // Under another name first: half a folder must not look like a checkpoint.
    abandon_staging(folder);
    std::error_code ignored;
    std::filesystem::rename(folder, staging_folder(folder), ignored);
    abandon_staging(folder);
  }
}

void remove_leftovers(const std::filesystem::path& root) {
  for (const std::string& name : folder_names(root)) {
    if (const auto iteration = iteration_of(name, ".tmp"))
      abandon_staging(checkpoint_folder(root, iteration));
    if (const auto iteration = iteration_of(name, ".old"))
      restore_folder(checkpoint_folder(root, iteration));
  }
}

}  // namespace shardloom::checkpoint
