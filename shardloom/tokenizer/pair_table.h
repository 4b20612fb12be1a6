// Pair of token ids -> rank of its merge; a flat hash table that is read only once it is filled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardloom::tokenizer {

class PairTable {
 public:
  static constexpr int32_t kNone = INT32_MAX;  // behind all ranks

  explicit PairTable(size_t count);

  // False when the pair is there already.
  bool add(int32_t left, int32_t right, int32_t rank);

  // Rank of the pair, or kNone.
  int32_t find(int32_t left, int32_t right) const {
    const uint64_t hash = hash_of(left, right);
    // Most pairs asked for do not merge, and the filter, unlike the table, stays in the L2 cache.
    const uint64_t bit = hash >> filter_shift_;
    if ((filter_[bit >> 6] >> (bit & 63) & 1) == 0) return kNone;
    for (uint64_t i = hash >> slot_shift_;; ++i) {
      const Slot& slot = slots_[i];
      if (slot.left == left && slot.right == right) return slot.rank;
      if (slot.rank == kNone) return kNone;
    }
  }

 private:
  struct Slot {
    int32_t left = -1;
    int32_t right = -1;
    int32_t rank = kNone;
  };

  static uint64_t hash_of(int32_t left, int32_t right) {
    const uint64_t key = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
    const uint64_t mixed = key * 0x9E3779B97F4A7C15u;
    return (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93u;
  }

  int slot_shift_;
  int filter_shift_;
  std::vector<Slot>
      slots_;  // with room behind the last home slot, so that probing need not wrap around
  std::vector<uint64_t> filter_;
};

}  // namespace shardloom::tokenizer
