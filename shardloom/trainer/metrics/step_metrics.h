// What the trainer tells about one step, one validation and the memory: the input of every metrics
// sink.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace shardloom::trainer {

// Of a mixture of experts, one number a layer.
struct ExpertLoadMetrics {
  std::vector<double> max_over_mean;  // tokens of the busiest expert / mean of all; 1 is balanced
  std::vector<int64_t> unused;        // experts without a token
};

// Of activation offload, of this rank in this step.
struct OffloadMetrics {
  int64_t bytes_to_host = 0;
  int64_t bytes_to_device = 0;
  int64_t late_fetches = 0;
  double wait_ms = 0;
};

struct StepMetrics {
  int64_t iteration = 0;  // 1-based
  int64_t train_iters = 0;
  int64_t consumed_samples = 0;  // over all ranks, up to and with this step
  double elapsed_ms = 0;         // of this step; logging, saving and validation excluded
  double learning_rate = 0;
  int64_t global_batch_size = 0;
  double loss = 0;
  std::optional<double> aux_loss;  // of the router, when there is one
  double grad_norm = 0;
  std::map<std::string, double> logged;  // fields of the program's own
  bool is_skipped = false;               // not finite, so that no weight was changed
  int64_t tokens = 0;                    // real (not padding) tokens of the global batch
  // Peak bytes of a rank's device, or of its process on a CPU: the largest over all ranks.
  int64_t memory_allocated = 0;
  int64_t memory_reserved = 0;         // held by the allocator
  int64_t skipped_samples = 0;         // bad samples left out, since the run began
  int64_t samples_without_target = 0;  // of this step; they are no part of the loss
  std::optional<ExpertLoadMetrics> expert_load;
  std::optional<OffloadMetrics> offload;
};

struct ValidationMetrics {
  bool is_test = false;  // of the test set, after the last step
  int64_t iteration = 0;
  int64_t steps = 0;
  double loss = 0;
};

// Bytes of one rank's device; told by each rank whose data-parallel rank is 0.
struct MemoryMetrics {
  int rank = 0;
  int64_t iteration = 0;
  int64_t allocated = 0;
  int64_t max_allocated = 0;
  int64_t reserved = 0;
  int64_t max_reserved = 0;
};

}  // namespace shardloom::trainer
