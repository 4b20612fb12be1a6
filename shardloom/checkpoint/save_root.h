// The folder that holds the checkpoints of a run (MindSpeed MM's layout): iter_0002000/, release/,
// and a text file that names the latest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace shardloom::checkpoint {

inline constexpr const char* kLatestFileName = "latest_checkpointed_iteration.txt";
inline constexpr const char* kReleaseName = "release";

// root/iter_0002000; nothing: root/release, weights that no training has touched.
std::filesystem::path checkpoint_folder(const std::filesystem::path& root,
                                        std::optional<int64_t> iteration);

// Writes the text file so that it is the old one or the new one at every moment. The checkpoint
// must be at its place already.
void write_latest(const std::filesystem::path& root, std::optional<int64_t> iteration);

struct Latest {
  std::optional<int64_t> iteration;  // nothing: release
  std::filesystem::path folder;
};

// Throws CheckpointError when there is no such file, or it holds neither a count nor "release".
// Does not look at the folder that it names.
Latest read_latest(const std::filesystem::path& root);

}  // namespace shardloom::checkpoint
