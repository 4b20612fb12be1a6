#include "shardloom/distributed/shm_backend_operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>

namespace shardloom::distributed {
namespace {

bool is_reduction(ShmKind kind) {
  return kind == ShmKind::kReduceScatter || kind == ShmKind::kAllReduce;
}

// Parts of different sizes are fine elsewhere.
bool needs_equal_shapes(ShmKind kind) {
  return kind == ShmKind::kAllReduce || kind == ShmKind::kBroadcast;
}

const char* reduce_name(int32_t reduce) {
  switch (reduce) {
    case c10d::ReduceOp::SUM:
      return " sum";
    case c10d::ReduceOp::AVG:
      return " avg";
    case c10d::ReduceOp::MIN:
      return " min";
    default:
      return " max";
  }
}

std::string request_text(const ShmDescriptor& request, const std::vector<int>& world_ranks) {
  if (request.kind == ShmKind::kBarrier) return "barrier";
  const int shown = std::min<int>(request.num_dims, ShmDescriptor::kMaxDims);
  return fmt::format(
      "{}{}{} of {} [{}]", kind_name(request.kind),
      is_reduction(request.kind) ? reduce_name(request.reduce) : "",
      request.kind == ShmKind::kBroadcast ? fmt::format(" from {}", world_ranks[request.root]) : "",
      c10::toString(static_cast<at::ScalarType>(request.dtype)),
      fmt::join(request.shape, request.shape + shown, ", "));
}

bool is_same_request(const ShmDescriptor& a, const ShmDescriptor& b) {
  if (a.kind != b.kind || a.sequence != b.sequence || a.dtype != b.dtype || a.reduce != b.reduce ||
      a.root != b.root) {
    return false;
  }
  return !needs_equal_shapes(a.kind) ||
         (a.num_dims == b.num_dims && std::equal(a.shape, std::end(a.shape), b.shape));
}

std::string pair_text(const std::vector<const ShmDescriptor*>& requests,
                      const std::vector<int>& world_ranks,
                      int a,
                      int b) {
  return fmt::format("rank {} asks for {}, rank {} for {}", world_ranks[a],
                     request_text(*requests[a], world_ranks), world_ranks[b],
                     request_text(*requests[b], world_ranks));
}

}  // namespace

const char* kind_name(ShmKind kind) {
  switch (kind) {
    case ShmKind::kAllGather:
      return "all_gather";
    case ShmKind::kReduceScatter:
      return "reduce_scatter";
    case ShmKind::kAllReduce:
      return "all_reduce";
    case ShmKind::kAllToAll:
      return "all_to_all";
    case ShmKind::kBroadcast:
      return "broadcast";
    case ShmKind::kBarrier:
      return "barrier";
  }
  return "collective";
}

void describe(const ShmOperation& operation, std::byte* place) {
  const int size = static_cast<int>(operation.send.size());
  auto* request = new (place) ShmDescriptor{};
  request->sequence = operation.sequence;
  request->kind = operation.kind;
  request->dtype = static_cast<int32_t>(operation.dtype);
  request->reduce = static_cast<int32_t>(operation.reduce);
  request->root = operation.root;
  request->num_dims = static_cast<int32_t>(operation.shape.size());
  const size_t dims = std::min<size_t>(operation.shape.size(), ShmDescriptor::kMaxDims);
  std::copy_n(operation.shape.begin(), dims, request->shape);
  for (int peer = 0; peer < size; ++peer) {
    request->sends()[peer] = operation.send[peer].bytes();
    request->receives(size)[peer] = operation.receive[peer].bytes();
  }
}

std::string find_mismatch(const std::vector<const ShmDescriptor*>& requests,
                          const std::vector<int>& world_ranks) {
  const int size = static_cast<int>(requests.size());
  for (int rank = 1; rank < size; ++rank) {
    if (!is_same_request(*requests[0], *requests[rank])) {
      return pair_text(requests, world_ranks, 0, rank);
    }
  }
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      const int64_t sent = requests[from]->sends()[to];
      const int64_t expected = requests[to]->receives(size)[from];
      if (sent == expected) continue;
      return fmt::format("rank {} sends {} bytes to rank {}, which expects {} ({})",
                         world_ranks[from], sent, world_ranks[to], expected,
                         pair_text(requests, world_ranks, from, to));
    }
  }
  return "";
}

int64_t largest_part(const std::vector<const ShmDescriptor*>& ranks) {
  int64_t largest = 0;
  for (const ShmDescriptor* request : ranks) {
    const int64_t* sends = request->sends();
    largest = std::max(largest, *std::max_element(sends, sends + ranks.size()));
  }
  return largest;
}

}  // namespace shardloom::distributed
