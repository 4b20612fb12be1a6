// Which rank writes which rows of a checkpoint that all ranks hold together, replicas included.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardloom::checkpoint {

// Rows [first_row, ...) of a tensor that a rank holds.
struct HeldRows {
  std::string name;
  int64_t first_row = 0;
  uint64_t bytes = 0;

  bool operator==(const HeldRows&) const = default;
};

// One line each, and back.
std::string to_text(const std::vector<HeldRows>& held);
std::vector<HeldRows> held_rows_from_text(const std::string& text);

// For each rank and each of its rows whether it writes them. Rows that several ranks hold (same
// name and first row) are written by the one that has least to write so far, the lowest on a tie,
// after all rows that only one rank holds: PyTorch's rule, better balanced.
std::vector<std::vector<bool>> assign_writers(const std::vector<std::vector<HeldRows>>& of_ranks);

}  // namespace shardloom::checkpoint
