#include "shardloom/checkpoint/save_root.h"

#include <charconv>
#include <string>
#include <system_error>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/strings.h"
#include "shardloom/checkpoint/output_file.h"

namespace shardloom::checkpoint {

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
    throw CheckpointError("{}: \"{}\" is neither an iteration nor {}", path.string(),
                          text.substr(0, 40), kReleaseName);
  }
  return {iteration, checkpoint_folder(root, iteration)};
}

}  // namespace shardloom::checkpoint
