#include "shardloom/distributed/shm_backend_runner.h"

#include <algorithm>
#include <cstring>

#include "shardloom/base/error.h"
#include "shardloom/distributed/shm_backend_reduce.h"

namespace shardloom::distributed {
namespace {

constexpr int64_t kLine = 64;

void copy_bytes(std::byte* target, const std::byte* source, int64_t bytes) {
  if (bytes > 0 && target != source) std::memcpy(target, source, static_cast<size_t>(bytes));
}

std::byte* at(const ShmSpan& span, int64_t offset) {
  return offset < span.bytes ? span.data + offset : nullptr;
}

// Bytes of [offset, offset + length) that lie within `bytes`.
int64_t part(int64_t bytes, int64_t offset, int64_t length) {
  return std::clamp<int64_t>(bytes - offset, 0, length);
}

}  // namespace

void ShmRunner::run(const ShmOperation& operation) {
  operation_ = &operation;
  context_ = make_context(kind_name(operation.kind), operation.sequence, operation.timeout);
  compared_ = false;
  if (peers_.empty()) {
    for (int i = 1; i < group_.size(); ++i) {
      peers_.push_back((group_.rank() + i) % group_.size());
    }
  }
  group_.check(context_);
  group_.state(group_.rank()).entered.store(operation.sequence, std::memory_order_release);
  switch (operation.kind) {
    case ShmKind::kAllGather:
    case ShmKind::kBroadcast:
    case ShmKind::kBarrier:
      return gather();
    case ShmKind::kAllToAll:
      return all_to_all();
    case ShmKind::kReduceScatter:
      return reduce_scatter();
    case ShmKind::kAllReduce:
      return all_reduce();
  }
}

std::byte* ShmRunner::begin_round() {
  for (const int peer : peers_) {
    group_.await(peer, group_.state(peer).consumed, round_ + 1 - kShmSlots, context_);
  }
  return group_.slot(group_.rank(), round_).payload;
}

void ShmRunner::post_round() {
  if (!compared_) describe(*operation_, group_.slot(group_.rank(), round_).descriptor);
  ShmGroup::advance(group_.state(group_.rank()).posted);
  if (!compared_) compare_requests();
}

std::byte* ShmRunner::posted_by(int peer) {
  group_.await(peer, group_.state(peer).posted, round_ + 1, context_);
  return group_.slot(peer, round_).payload;
}

void ShmRunner::end_round() {
  ShmGroup::advance(group_.state(group_.rank()).consumed);
  ++round_;
}

void ShmRunner::compare_requests() {
  for (const int peer : peers_) posted_by(peer);
  std::vector<const ShmDescriptor*> requests;
  for (int rank = 0; rank < group_.size(); ++rank) {
    requests.push_back(
        reinterpret_cast<const ShmDescriptor*>(group_.slot(rank, round_).descriptor));
  }
  const std::string mismatch = find_mismatch(requests, group_.world_ranks());
  if (!mismatch.empty()) {
    const std::string text = group_.place(context_) + "the ranks do not agree: " + mismatch;
    group_.fail(text);
    throw DistributedError(text);
  }
  largest_part_ = largest_part(requests);
  compared_ = true;
}

int64_t ShmRunner::lane_bytes() const {
  const auto lanes = std::max<int64_t>(1, group_.size() - 1);
  return static_cast<int64_t>(kShmChunkBytes) / lanes / kLine * kLine;
}

int64_t ShmRunner::lane_offset(int from, int to) const {
  return (to - from - 1 + group_.size()) % group_.size() * lane_bytes();
}

void ShmRunner::stage_lanes(int64_t offset) {
  std::byte* payload = begin_round();
  for (const int peer : peers_) {
    const ShmSpan& sent = operation_->send[peer];
    copy_bytes(payload + lane_offset(group_.rank(), peer), at(sent, offset),
               part(sent.bytes, offset, lane_bytes()));
  }
  post_round();
}

void ShmRunner::gather() {
  constexpr auto kChunk = static_cast<int64_t>(kShmChunkBytes);
  const int rank = group_.rank();
  const ShmSpan& sent = operation_->send[rank];
  const ShmSpan& kept = operation_->receive[rank];
  int64_t offset = 0;
  do {
    std::byte* payload = begin_round();
    const int64_t length = part(sent.bytes, offset, kChunk);
    if (!peers_.empty()) copy_bytes(payload, at(sent, offset), length);
    post_round();
    copy_bytes(at(kept, offset), at(sent, offset), length);
    for (const int peer : peers_) {
      const ShmSpan& received = operation_->receive[peer];
      copy_bytes(at(received, offset), posted_by(peer), part(received.bytes, offset, kChunk));
    }
    end_round();
    offset += kChunk;
  } while (offset < largest_part_);
}

void ShmRunner::all_to_all() {
  const int rank = group_.rank();
  int64_t offset = 0;
  do {
    stage_lanes(offset);
    const ShmSpan& kept = operation_->send[rank];
    copy_bytes(at(operation_->receive[rank], offset), at(kept, offset),
               part(kept.bytes, offset, lane_bytes()));
    for (const int peer : peers_) {
      const ShmSpan& received = operation_->receive[peer];
      copy_bytes(at(received, offset), posted_by(peer) + lane_offset(peer, rank),
                 part(received.bytes, offset, lane_bytes()));
    }
    end_round();
    offset += lane_bytes();
  } while (offset < largest_part_);
}

void ShmRunner::reduce_scatter() {
  const int rank = group_.rank();
  const ShmSpan& out = operation_->receive[rank];
  const auto element = static_cast<int64_t>(c10::elementSize(operation_->dtype));
  std::vector<const std::byte*> sources(group_.size());
  int64_t offset = 0;
  do {
    stage_lanes(offset);
    sources[rank] = at(operation_->send[rank], offset);
    for (const int peer : peers_) sources[peer] = posted_by(peer) + lane_offset(peer, rank);
    reduce_in_order(operation_->dtype, operation_->reduce, sources, at(out, offset),
                    part(out.bytes, offset, lane_bytes()) / element);
    end_round();
    offset += lane_bytes();
  } while (offset < largest_part_);
}

// Two rounds a chunk: each rank reduces its portion of the chunk, then the portions are gathered.
void ShmRunner::all_reduce() {
  constexpr auto kChunk = static_cast<int64_t>(kShmChunkBytes);
  const int rank = group_.rank();
  const ShmSpan& tensor = operation_->receive[rank];
  const auto element = static_cast<int64_t>(c10::elementSize(operation_->dtype));
  std::vector<const std::byte*> sources(group_.size());
  int64_t offset = 0;
  do {
    const int64_t length = part(tensor.bytes, offset, kChunk);
    const int64_t per_rank = (length + group_.size() * kLine - 1) / (group_.size() * kLine) * kLine;
    std::byte* chunk = at(tensor, offset);
    std::byte* payload = begin_round();
    if (!peers_.empty()) copy_bytes(payload, chunk, length);
    post_round();
    const int64_t begin = std::min(rank * per_rank, length);
    const int64_t mine = part(length, begin, per_rank);
    sources[rank] = chunk + begin;
    for (const int peer : peers_) sources[peer] = posted_by(peer) + begin;
    reduce_in_order(operation_->dtype, operation_->reduce, sources, chunk + begin, mine / element);
    end_round();

    payload = begin_round();
    if (!peers_.empty()) copy_bytes(payload, chunk + begin, mine);
    post_round();
    for (const int peer : peers_) {
      const int64_t from = std::min(peer * per_rank, length);
      copy_bytes(chunk + from, posted_by(peer), part(length, from, per_rank));
    }
    end_round();
    offset += kChunk;
  } while (offset < largest_part_);
}

}  // namespace shardloom::distributed
