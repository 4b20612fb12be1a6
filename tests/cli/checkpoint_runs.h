// Runs that save and go on, for the tests of checkpoints.
#pragma once

#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace shardloom::testing {

using Overrides = std::vector<std::string>;

// One thread a rank, so that matrix products are cut the same way in every run.
inline const ProcessOptions kOneThread = {.environment = {"OMP_NUM_THREADS=1"}};

inline Overrides operator+(Overrides a, const Overrides& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Of the golden trajectory: so many steps without a warm-up, two samples each.
inline Overrides steps(int count) {
  return {"training.train_iters=" + std::to_string(count), "training.micro_batch_size=1",
          "training.global_batch_size=2", "training.lr_warmup_ratio=0.0"};
}

inline Overrides ranks(int count) { return {"--nproc", std::to_string(count)}; }

inline Overrides save_to(const std::filesystem::path& root, int interval = 0) {
  return {"training.save=" + root.string(), "training.save_interval=" + std::to_string(interval)};
}

// Everything that the checkpoint holds.
inline Overrides resume_from(const std::filesystem::path& folder) {
  return {"training.load=" + folder.string(), "training.load_format=auto",
          "training.no_load_optim=false", "training.no_load_rng=false"};
}

inline ProcessResult run(const std::filesystem::path& metrics,
                         const Overrides& overrides,
                         int exit_code = 0,
                         const ProcessOptions& options = kOneThread) {
  ProcessResult result = train(kTrajectory, metrics, overrides, options);
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  return result;
}

inline void expect_text(const ProcessResult& result, const std::vector<std::string>& texts) {
  for (const std::string& text : texts)
    EXPECT_NE(result.err.find(text), std::string::npos) << text << "\n--- in ---\n" << result.err;
}

// What must not depend on a stop.
inline void expect_same_rows(const std::vector<Json>& some, const std::vector<Json>& all) {
  ASSERT_FALSE(some.empty());
  ASSERT_LE(some.size(), all.size());
  const size_t first = some[0]["iteration"].get<size_t>();
  ASSERT_EQ(first + some.size() - 1, all.size());
  for (size_t i = 0; i < some.size(); ++i) {
    for (const char* key : {"iteration", "loss", "grad_norm", "lr", "tokens", "consumed_samples"})
      EXPECT_EQ(some[i][key], all[first - 1 + i][key]) << key << " of step " << first + i;
  }
}

}  // namespace shardloom::testing
