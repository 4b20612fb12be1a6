#include "shardloom/study/state.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "shardloom/base/error.h"
#include "shardloom/base/files.h"
#include "shardloom/base/json.h"
#include "shardloom/base/strings.h"

namespace shardloom::study {
namespace {

constexpr const char* kDoneFile = "done.json";
constexpr const char* kOwnerFile = "study_of.json";

std::string text(const OrderedJson& json) { return json.dump(2) + "\n"; }

// "x: 1 is now x: 2" of the first line that differs.
std::string first_change(const std::string& before, const std::string& now) {
  const std::vector<std::string> a = split(before, '\n'), b = split(now, '\n');
  const auto [old_line, new_line] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto shown = [](const auto& line, const auto& end) {
    return line == end ? std::string("nothing") : "\"" + std::string(trim(*line)) + "\"";
  };
  return fmt::format("{} is now {}", shown(old_line, a.end()), shown(new_line, b.end()));
}

// The same file, however it is written.
bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code missing;
  return std::filesystem::path(a).lexically_normal() ==
             std::filesystem::path(b).lexically_normal() ||
         std::filesystem::equivalent(a, b, missing);
}

// With the program's bare name: the text may be published.
std::string command_text(std::vector<std::string> command) {
  command[0] = std::filesystem::path(command[0]).filename().string();
  return shell_text(command);
}

std::string study_name(const std::string& config, const std::string& preset) {
  return preset.empty() ? config : fmt::format("{} --preset {}", config, preset);
}

bool holds_nothing_but(const std::filesystem::path& folder, const std::filesystem::path& file) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path() != file) return false;
  }
  return true;
}

// The file is empty: it was made just now, or by a study that was killed then or found no space.
void write_owner(const StudyOptions& options, const std::filesystem::path& path) {
  if (!holds_nothing_but(options.out, path)) {
    std::filesystem::remove(path);
    throw ConfigError(
        "--out {} holds files that no study has made: name an empty folder, or one that is not "
        "there yet",
        options.out.string());
  }
  std::ofstream file(path);
  file << text({{"config", options.config}, {"preset", options.preset}}) << std::flush;
  if (file) return;
  const std::string cause = std::strerror(errno);
  std::error_code ignored;
  std::filesystem::resize_file(path, 0, ignored);
  throw ConfigError("--out: cannot write {}: {}", path.string(), cause);
}

void check_owner(const StudyOptions& options, const std::filesystem::path& path) {
  const Json owner = read_json_file(path, ExitCode::kConfig);
  const std::string config = owner.value("config", std::string());
  const std::string preset = owner.value("preset", std::string());
  if (preset == options.preset && is_same_file(config, options.config)) return;
  throw ConfigError("--out {} holds the study of {}, not of {}: name another folder",
                    options.out.string(), study_name(config, preset),
                    study_name(options.config, options.preset));
}

// null when it is absent or damaged: then the run starts anew.
Json read_done(const std::filesystem::path& path) {
  std::error_code missing;
  if (!std::filesystem::exists(path, missing)) return nullptr;
  try {
    return read_json_file(path, ExitCode::kData);
  } catch (const Error&) {
    return nullptr;
  }
}

}  // namespace

RunStatus status_of(const Run& run) {
  RunStatus status;
  std::error_code missing;
  if (!std::filesystem::exists(run.folder, missing)) return status;
  status.state = RunState::kUnfinished;
  if (!std::filesystem::exists(metrics_file(run), missing)) return status;
  const Json done = read_done(run.folder / kDoneFile);
  if (!done.is_object()) return status;
  const std::string inputs = done.value("inputs", std::string());
  status.elapsed_seconds = done.value("elapsed_seconds", 0.0);
  status.state = inputs == run.inputs ? RunState::kComplete : RunState::kChanged;
  if (status.state == RunState::kChanged) status.change = first_change(inputs, run.inputs);
  return status;
}

FolderClaim::~FolderClaim() {
  if (lock_ >= 0) ::close(lock_);
}

// After the other constructor, so that the lock is given back when this one throws.
FolderClaim::FolderClaim(const StudyPlan& plan) : FolderClaim() {
  const StudyOptions& options = plan.options;
  const std::filesystem::path path = options.out / kOwnerFile;
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error)
    throw ConfigError("--out {}: cannot make this folder: {}", options.out.string(),
                      error.message());
  // The lock comes first: of two studies that start at once, one makes the file.
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0)
    throw ConfigError("--out: cannot write {}: {}", path.string(), std::strerror(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    throw ConfigError(
        "--out {}: a study is running there; wait for its end, or name another folder",
        options.out.string());
  }
  try {
    if (std::filesystem::is_empty(path)) write_owner(options, path);
  } catch (const std::system_error& fault) {
    throw ConfigError("--out: {}", fault.what());
  }
  check_owner(options, path);
}

void prepare_folder(const Run& run) {
  try {
    std::filesystem::remove_all(run.folder);
    std::filesystem::create_directories(run.folder);
    write_file_atomically(run.folder / kCommandFile, command_text(run.command) + "\n");
    for (const auto& [name, content] : run.files) write_file_atomically(run.folder / name, content);
  } catch (const std::system_error& error) {
    throw ConfigError("--out: {}", error.what());
  }
}

void mark_complete(const Run& run, int64_t steps, double elapsed_seconds) {
  write_file_atomically(
      run.folder / kDoneFile,
      text({{"steps", steps}, {"elapsed_seconds", elapsed_seconds}, {"inputs", run.inputs}}));
}

}  // namespace shardloom::study
