#include "shardloom/checkpoint/staged_folder.h"

#include <fcntl.h>
#include <stdio.h>

#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/output_file.h"

namespace shardloom::checkpoint {
namespace {

namespace fs = std::filesystem;

// A trailing slash would put the other names inside the folder.
fs::path without_slash(fs::path folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

fs::path old_folder(const fs::path& folder) { return without_slash(folder) += ".old"; }

bool is_empty_folder(const fs::path& path) { return fs::is_directory(path) && fs::is_empty(path); }

// A link counts even when it leads nowhere.
bool is_there(const fs::path& path) { return fs::exists(fs::symlink_status(path)); }

// Whether a folder cannot simply be given this name.
bool is_in_the_way(const fs::path& path) {
  return is_there(path) && (fs::is_symlink(path) || !is_empty_folder(path));
}

// False when the file system cannot.
bool swap_names(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

void replace_in_two_steps(const fs::path& staging, const fs::path& folder, const fs::path& old) {
  fs::remove_all(old);
  fs::rename(folder, old);
  try {
    fs::rename(staging, folder);
  } catch (...) {
    std::error_code ignored;
    fs::rename(old, folder, ignored);
    throw;
  }
}

}  // namespace

fs::path staging_folder(fs::path folder) { return without_slash(std::move(folder)) += ".tmp"; }

void require_free_folder(const fs::path& folder) {
  as_checkpoint_error([&] {
    if (!is_there(folder) || is_empty_folder(folder)) return;
    throw CheckpointError("{} exists and is not empty; remove it or choose another folder",
                          folder.string());
  });
}

void begin_staging(const fs::path& folder) {
  as_checkpoint_error([&] {
    restore_folder(folder);
    fs::remove_all(staging_folder(folder));
    fs::create_directories(staging_folder(folder));
  });
}

void publish_staging(const fs::path& folder) {
  const fs::path staging = staging_folder(folder);
  const fs::path final_name = without_slash(folder);
  as_checkpoint_error([&] {
    sync_path(staging);
    fs::path replaced;
    if (!is_in_the_way(final_name)) {
      fs::rename(staging, final_name);
    } else if (swap_names(staging, final_name)) {
      replaced = staging;
    } else {
      replaced = old_folder(final_name);
      replace_in_two_steps(staging, final_name, replaced);
    }
    sync_path(final_name.parent_path());
    if (!replaced.empty()) fs::remove_all(replaced);
  });
}

void abandon_staging(const fs::path& folder) noexcept {
  std::error_code ignored;
  fs::remove_all(staging_folder(folder), ignored);
}

bool restore_folder(const fs::path& folder) {
  bool restored = false;
  as_checkpoint_error([&] {
    const fs::path old = old_folder(folder);
    if (!fs::exists(without_slash(folder)) && fs::is_directory(old)) {
      fs::rename(old, without_slash(folder));
      restored = true;
    }
  });
  return restored;
}

void as_checkpoint_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const fs::filesystem_error& error) {
    throw CheckpointError("{}", error.what());
  }
}

}  // namespace shardloom::checkpoint
