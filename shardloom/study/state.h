// What a study's folder tells about runs that were started before. A run is complete once its
// done.json is there, which is written last, and as long as its metrics are.
#pragma once

#include <string>

#include "shardloom/study/plan.h"

namespace shardloom::study {

enum class RunState { kAbsent, kUnfinished, kChanged, kComplete };

struct RunStatus {
  RunState state = RunState::kAbsent;
  std::string change;          // of kChanged: the first input that is not the same any more
  double elapsed_seconds = 0;  // of kComplete and kChanged
};

RunStatus status_of(const Run& run);

// The study's folder, held against a second study that would write there at the same time.
class FolderClaim {
 public:
  // Makes the folder, or finds that it belongs to this CONFIG and preset. Throws ConfigError for a
  // folder of another study, one that holds other files, and one in which a study is running.
  explicit FolderClaim(const StudyPlan& plan);
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

 private:
  FolderClaim() = default;

  int lock_ = -1;
};

// Empties the run's folder and writes its inputs.
void prepare_folder(const Run& run);

void mark_complete(const Run& run, int64_t steps, double elapsed_seconds);

}  // namespace shardloom::study
