// The folder that holds the checkpoints of a run (MindSpeed MM's layout): iter_0002000/, release/,
// and a text file that names the latest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

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

// The latest checkpoint of a folder of checkpoints; `path` itself where it is no such folder.
// Throws CheckpointError when the one that is named, or the text file, is missing.
std::filesystem::path latest_below(const std::filesystem::path& path);

// By its name: weights alone, whatever else it holds.
bool is_release_folder(const std::filesystem::path& folder);
// 2000 of root/iter_0002000; nothing for other names.
std::optional<int64_t> iteration_of_folder(const std::filesystem::path& folder);

// Iterations whose checkpoints are in `root`, in rising order. Folders under another name, that of
// a save under way too, are none.
std::vector<int64_t> saved_iterations(const std::filesystem::path& root);
// Those with a .metadata or weights in Hugging Face format.
std::vector<int64_t> complete_iterations(const std::filesystem::path& root);
// For errors about the text file: "; the folder has checkpoints of iterations 2, 4: ...", with the
// complete ones, or "".
std::string choice_text(const std::filesystem::path& root);

// Removes complete checkpoints of iterations below `iteration`, as far as possible, so that `keep`
// are left with that one. Later ones, of a run that went further and was taken up again before,
// stay.
void remove_older(const std::filesystem::path& root, int64_t iteration, int64_t keep);

// Removes what killed saves have left in `root` under other names, as far as possible; brings back
// a checkpoint whose replacement was interrupted. For the start of the run that saves there.
void remove_leftovers(const std::filesystem::path& root);

}  // namespace shardloom::checkpoint
