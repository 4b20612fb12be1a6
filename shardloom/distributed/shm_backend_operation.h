// One collective as a rank asks for it, and the form in which the others see it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shardloom/distributed/shm_backend_segment.h"

namespace shardloom::distributed {

enum class ShmKind : int32_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kBroadcast,
  kBarrier,
};

const char* kind_name(ShmKind kind);

struct ShmSpan {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

// Memory in one or several places as one range of bytes.
class ShmRange {
 public:
  ShmRange() = default;
  ShmRange(ShmSpan span) { add(span); }  // NOLINT: a span is a range

  void add(ShmSpan span) {
    spans_.push_back(span);
    bytes_ += span.bytes;
  }
  int64_t bytes() const { return bytes_; }
  // What follows byte `offset` in one place; nothing behind the end.
  ShmSpan from(int64_t offset) const {
    for (const ShmSpan& span : spans_) {
      if (offset < span.bytes) return {span.data + offset, span.bytes - offset};
      offset -= span.bytes;
    }
    return {};
  }

 private:
  std::vector<ShmSpan> spans_;
  int64_t bytes_ = 0;
};

struct ShmOperation {
  ShmKind kind = ShmKind::kBarrier;
  at::ScalarType dtype = at::kByte;
  c10d::ReduceOp::RedOpType reduce = c10d::ReduceOp::SUM;
  int root = 0;
  std::vector<int64_t> shape;  // of the input; for error texts, and compared where it must agree
  std::vector<ShmRange> send;  // what goes to each rank
  std::vector<ShmRange>
      receive;  // where the part of each rank goes; reductions: one range repeated
  std::vector<at::Tensor> tensors;  // keeps the memory of the spans alive
  std::chrono::milliseconds timeout{0};
  uint64_t sequence = 0;
};

// Lies at the start of a slot; the bytes to and from each rank follow it.
struct ShmDescriptor {
  static constexpr int kMaxDims = 8;

  uint64_t sequence;
  ShmKind kind;
  int32_t dtype;
  int32_t reduce;
  int32_t root;
  int32_t num_dims;
  int64_t shape[kMaxDims];

  static size_t bytes(int size) { return sizeof(ShmDescriptor) + 2 * sizeof(int64_t) * size; }
  int64_t* sends() { return reinterpret_cast<int64_t*>(this + 1); }
  const int64_t* sends() const { return reinterpret_cast<const int64_t*>(this + 1); }
  int64_t* receives(int size) { return sends() + size; }
  const int64_t* receives(int size) const { return sends() + size; }
};

void describe(const ShmOperation& operation, std::byte* place);

// Empty when all ranks ask for the same collective with sizes that fit; else a text with the two
// requests that differ. Every rank comes to the same text. `world_ranks` are
// the members of the group as the text shall name them.
std::string find_mismatch(const std::vector<const ShmDescriptor*>& requests,
                          const std::vector<int>& world_ranks);

// Bytes of the largest part that a rank sends to one other rank.
int64_t largest_part(const std::vector<const ShmDescriptor*>& ranks);

}  // namespace shardloom::distributed
