// A folder that appears whole or not at all: it is filled under another name and gets its own as
// the last step. For checkpoints, which are many files.
#pragma once

#include <filesystem>
#include <functional>

namespace shardloom::checkpoint {

// Errors of all functions are CheckpointError with the paths. `folder` is the final name.

// The folder that is filled, `folder` + ".tmp". Ranks that share a file system agree on it.
std::filesystem::path staging_folder(std::filesystem::path folder);

// Throws when `folder` is there and not empty.
void require_free_folder(const std::filesystem::path& folder);

// Makes the staging folder, empty; what an earlier, killed run left there is removed.
void begin_staging(const std::filesystem::path& folder);

// Gives the staging folder its name, in place of a folder that has it, and puts that on disk. At
// every moment `folder` is the old one
// or the new one where the file system can swap two names in one step (ext4, xfs, btrfs, tmpfs).
// Where it cannot, a crash between two steps leaves the old one as `folder` + ".old", which
// restore_folder brings back.
void publish_staging(const std::filesystem::path& folder);

// Removes the staging folder, as far as possible; never throws.
void abandon_staging(const std::filesystem::path& folder) noexcept;

// Before a checkpoint is looked for: undoes a replacement that a crash interrupted. True when there
// was one.
bool restore_folder(const std::filesystem::path& folder);

// Turns the standard library's file system errors, which name the paths, into CheckpointError.
void as_checkpoint_error(const std::function<void()>& action);

}  // namespace shardloom::checkpoint
