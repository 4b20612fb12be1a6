// Runs the same body in several forked processes, as ranks of one world with a store in a folder.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>
#include <string>
#include <vector>

#include "shardloom/distributed/process_group.h"

namespace shardloom::distributed::testing {

struct RankContext {
  int rank;
  int size;
  c10::intrusive_ptr<c10d::Store> store;

  c10::intrusive_ptr<c10d::Backend> group(
      BackendKind kind,
      const std::string& name = "test",
      std::chrono::milliseconds timeout = kDefaultTimeout) const {
    return make_backend(kind, store, rank, size, name, timeout);
  }
};

using RankBody = std::function<void(const RankContext&)>;

// Exit status of each rank: 0 when its body ended without a failed expectation or exception, 128 +
// n after signal n. A rank that takes longer than `alarm_seconds` dies of SIGALRM.
std::vector<int> run_ranks(int size, const RankBody& body, unsigned alarm_seconds = 120);

// Fails the test of the caller when a rank fails.
void expect_ranks(int size, const RankBody& body);

// "Shm" or "Gloo", for names of tests.
std::string suffix(BackendKind backend);

// The text of the DistributedError that `action` throws; fails the test when it throws nothing.
std::string distributed_error(const std::function<void()>& action);

// Values that each rank can compute for every other: different for each rank, index and seed, with
// sums that depend on the order in floating types.
at::Tensor rank_values(int rank, std::vector<int64_t> shape, at::ScalarType dtype, int seed = 0);

// True when all bytes are equal, NaNs included.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace shardloom::distributed::testing
