// Saves of a run's state into its folder of checkpoints, by all ranks together, in the foreground
// or while training goes on.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "shardloom/checkpoint/checkpoint_state.h"
#include "shardloom/checkpoint/dcp/box.h"
#include "shardloom/checkpoint/dcp/metadata.h"
#include "shardloom/checkpoint/safetensors_writer.h"
#include "shardloom/checkpoint/staging_buffer.h"
#include "shardloom/distributed/group.h"

namespace shardloom::checkpoint {

struct CheckpointSaverOptions {
  // Rows are copied into one buffer, from which a thread writes.
  bool in_background = false;
  int64_t keep_last = 0;  // checkpoints that stay besides older ones; 0: all
};

// A checkpoint is filled as iter_N.tmp, put on disk, renamed, and only then named as the latest: a
// crash or an error of any rank leaves the one before as the latest. All functions but is_open()
// and is_writing() are collective over the ranks, and all collectives run in the caller's thread: a
// thread of its own would need an order with those of training, which no rank can see. When a step
// fails on one rank, all throw the same CheckpointError.
class CheckpointSaver {
 public:
  CheckpointSaver(std::filesystem::path root,
                  std::shared_ptr<distributed::Group> ranks,
                  const CheckpointSaverOptions& options);
  // Stops a write that is under way, without a trace in the folder's checkpoints.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Begins to make the buffer of saves in the background, so that the first one does not wait for
  // its memory. `state` is one of the size of those to come. Nothing without in_background.
  void prepare(const CheckpointState& state);

  // Finishes the save before, if it is open. Returns when the checkpoint is in place or, in the
  // background, when the tensors may change again.
  void save(int64_t iteration, const CheckpointState& state);

  // A checkpoint is not in its place yet.
  bool is_open() const { return open_; }
  // This rank is still writing.
  bool is_writing() const { return open_ && !written_; }
  // Waits for the write and puts the checkpoint in place; nothing when none is open.
  void finish();

 private:
  struct Item {
    StateKey key;
    TensorSpec spec;
    dcp::Box box;
    at::Tensor rows;  // any type and device; dense and of the file's type once staged
  };

  std::vector<Item> own_items(const CheckpointState& state);
  static int64_t staged_bytes(const Item& item);  // its place in the buffer
  void reserve_staging(const std::vector<Item>& items);
  void stage(std::vector<Item>& items);
  void write(const std::vector<Item>& items,
             const std::vector<StateValue>& values,
             const std::stop_token& stop);
  void put_in_place(const std::vector<std::string>& parts);
  void attempt(const char* step, const std::function<void()>& action);

  std::filesystem::path root_;
  std::shared_ptr<distributed::Group> ranks_;
  CheckpointSaverOptions options_;
  StagingBuffer staging_;  // kept from save to save

  bool open_ = false;
  int64_t iteration_ = 0;
  std::filesystem::path folder_;
  uint64_t total_bytes_ = 0;  // of all ranks
  std::chrono::steady_clock::time_point began_;
  std::atomic<bool> written_ = false;  // the two below are there
  dcp::Metadata part_;
  std::exception_ptr error_;
  std::jthread thread_;  // last: joined before the rest goes away
};

}  // namespace shardloom::checkpoint
