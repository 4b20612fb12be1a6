#include "shardloom/tokenizer/pair_table.h"

#include <algorithm>
#include <bit>

namespace shardloom::tokenizer {
namespace {

constexpr int kMinBits = 8;
constexpr int kFilterBitsPerSlot = 2;  // as a power of two

}  // namespace

PairTable::PairTable(size_t count) {
  const int bits = std::max<int>(kMinBits, std::bit_width(count) + 1);
  slot_shift_ = 64 - bits;
  filter_shift_ = slot_shift_ - kFilterBitsPerSlot;
  slots_.resize((size_t{1} << bits) + count + 1);
  filter_.resize(size_t{1} << (bits + kFilterBitsPerSlot - 6));
}

bool PairTable::add(int32_t left, int32_t right, int32_t rank) {
  if (find(left, right) != kNone) return false;
  const uint64_t hash = hash_of(left, right);
  uint64_t i = hash >> slot_shift_;
  while (slots_[i].rank != kNone) ++i;
  slots_[i] = {left, right, rank};
  const uint64_t bit = hash >> filter_shift_;
  filter_[bit >> 6] |= uint64_t{1} << (bit & 63);
  return true;
}

}  // namespace shardloom::tokenizer
