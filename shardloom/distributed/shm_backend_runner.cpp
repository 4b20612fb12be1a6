#include "shardloom/distributed/shm_backend_runner.h"

#if defined(__AVX__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>

#include "shardloom/base/error.h"
#include "shardloom/distributed/shm_backend_reduce.h"

namespace shardloom::distributed {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kStreamedBytes = 64 << 10;

// Bytes [offset, offset + length) of a range, piece by piece: body(piece, bytes before it).
template <typename Body>
void for_each_piece(const ShmRange& range, int64_t offset, int64_t length, const Body& body) {
  for (int64_t done = 0; done < length;) {
    ShmSpan piece = range.from(offset + done);
    piece.bytes = std::min(piece.bytes, length - done);
    body(piece, done);
    done += piece.bytes;
  }
}

void copy_bytes(std::byte* target, const std::byte* source, int64_t bytes) {
  if (bytes > 0 && target != source) std::memcpy(target, source, static_cast<size_t>(bytes));
}

// To memory that is used later than caches remember: past them, which spares reading it first.
void copy_past_caches(std::byte* target, const std::byte* source, int64_t bytes) {
#if defined(__AVX__)
  constexpr int64_t kWord = sizeof(__m256i);
  if (bytes >= kStreamedBytes && target != source) {
    const auto head = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(target) % kWord);
    copy_bytes(target, source, head);
    int64_t i = head;
    for (; i + 4 * kWord <= bytes; i += 4 * kWord) {
      for (int k = 0; k < 4; ++k) {
        _mm256_stream_si256(
            reinterpret_cast<__m256i*>(target + i + k * kWord),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + i + k * kWord)));
      }
    }
    _mm_sfence();
    copy_bytes(target + i, source + i, bytes - i);
    return;
  }
#endif
  copy_bytes(target, source, bytes);
}

void copy_from(const ShmRange& source, int64_t offset, int64_t length, std::byte* target) {
  for_each_piece(source, offset, length, [&](const ShmSpan& piece, int64_t done) {
    copy_bytes(target + done, piece.data, piece.bytes);
  });
}

void copy_to(const ShmRange& target, int64_t offset, int64_t length, const std::byte* source) {
  for_each_piece(target, offset, length, [&](const ShmSpan& piece, int64_t done) {
    copy_past_caches(piece.data, source + done, piece.bytes);
  });
}

// Both ranges are as long.
void copy_own(const ShmRange& target, const ShmRange& source, int64_t offset, int64_t length) {
  for_each_piece(target, offset, length, [&](const ShmSpan& piece, int64_t done) {
    for_each_piece(source, offset + done, piece.bytes, [&](const ShmSpan& from, int64_t further) {
      copy_past_caches(piece.data + further, from.data, from.bytes);
    });
  });
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
    const ShmRange& sent = operation_->send[peer];
    copy_from(sent, offset, part(sent.bytes(), offset, lane_bytes()),
              payload + lane_offset(group_.rank(), peer));
  }
  post_round();
}

void ShmRunner::gather() {
  constexpr auto kChunk = static_cast<int64_t>(kShmChunkBytes);
  const int rank = group_.rank();
  const ShmRange& sent = operation_->send[rank];
  int64_t offset = 0;
  do {
    std::byte* payload = begin_round();
    const int64_t length = part(sent.bytes(), offset, kChunk);
    if (!peers_.empty()) copy_from(sent, offset, length, payload);
    post_round();
    copy_own(operation_->receive[rank], sent, offset, length);
    for (const int peer : peers_) {
      const ShmRange& received = operation_->receive[peer];
      copy_to(received, offset, part(received.bytes(), offset, kChunk), posted_by(peer));
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
    const ShmRange& kept = operation_->send[rank];
    copy_own(operation_->receive[rank], kept, offset, part(kept.bytes(), offset, lane_bytes()));
    for (const int peer : peers_) {
      const ShmRange& received = operation_->receive[peer];
      copy_to(received, offset, part(received.bytes(), offset, lane_bytes()),
              posted_by(peer) + lane_offset(peer, rank));
    }
    end_round();
    offset += lane_bytes();
  } while (offset < largest_part_);
}

void ShmRunner::reduce_scatter() {
  const int rank = group_.rank();
  const ShmRange& out = operation_->receive[rank];
  int64_t offset = 0;
  do {
    stage_lanes(offset);
    reduce_lanes(offset, part(out.bytes(), offset, lane_bytes()));
    end_round();
    offset += lane_bytes();
  } while (offset < largest_part_);
}

void ShmRunner::reduce_lanes(int64_t offset, int64_t length) {
  const int rank = group_.rank();
  const auto element = static_cast<int64_t>(c10::elementSize(operation_->dtype));
  std::vector<const std::byte*> lanes(group_.size());
  for (const int peer : peers_) lanes[peer] = posted_by(peer) + lane_offset(peer, rank);
  std::vector<const std::byte*> sources(group_.size());
  for_each_piece(operation_->receive[rank], offset, length, [&](const ShmSpan& out, int64_t done) {
    for_each_piece(operation_->send[rank], offset + done, out.bytes,
                   [&](const ShmSpan& own, int64_t further) {
                     for (const int peer : peers_) sources[peer] = lanes[peer] + done + further;
                     sources[rank] = own.data;
                     reduce_in_order(operation_->dtype, operation_->reduce, sources,
                                     out.data + further, own.bytes / element);
                   });
  });
}

// Two rounds a chunk: each rank reduces its portion of the chunk, then the portions are gathered.
void ShmRunner::all_reduce() {
  constexpr auto kChunk = static_cast<int64_t>(kShmChunkBytes);
  const int rank = group_.rank();
  const ShmSpan tensor = operation_->receive[rank].from(0);
  const auto element = static_cast<int64_t>(c10::elementSize(operation_->dtype));
  std::vector<const std::byte*> sources(group_.size());
  int64_t offset = 0;
  do {
    const int64_t length = part(tensor.bytes, offset, kChunk);
    const int64_t per_rank = (length + group_.size() * kLine - 1) / (group_.size() * kLine) * kLine;
    std::byte* chunk = tensor.data + offset;
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
