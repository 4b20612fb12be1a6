// Which grid of tiles a picture gets. The reference scans a Python set of (columns, rows) pairs
// sorted by their product; with min_tiles > 1 two grids of one product can be equally near (500 x
// 400 with 2 tiles: 1 x 2 and 2 x 1), and then the order inside the set decides. So that order is
// rebuilt here.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "shardloom/base/error.h"
#include "shardloom/data/image/image.h"

namespace shardloom::data {
namespace {

// hash((i, j)) of CPython 3.8 and later (xxHash of the elements), 64 bits.
uint64_t tuple_hash(uint64_t i, uint64_t j) {
  constexpr uint64_t kPrime1 = 11400714785074694791u;
  constexpr uint64_t kPrime2 = 14029467366897019727u;
  constexpr uint64_t kPrime5 = 2870177450012600261u;
  uint64_t hash = kPrime5;
  for (const uint64_t element : {i, j}) {
    hash = std::rotl(hash + element * kPrime2, 31) * kPrime1;
  }
  hash += 2 ^ (kPrime5 ^ 3527539u);
  return hash == ~uint64_t{0} ? 1546275796u : hash;
}

// CPython's set: open addressing with short linear runs. Only adds keys that are not there yet.
class GridSet {
 public:
  void add(TileGrid grid) {
    insert(slots_, grid);
    ++used_;
    const size_t mask = slots_.size() - 1;
    if (used_ * 5 < mask * 3) return;
    size_t size = 8;
    while (size <= used_ * 4) size *= 2;
    std::vector<std::optional<TileGrid>> larger(size);
    for (const auto& slot : slots_) {
      if (slot) insert(larger, *slot);
    }
    slots_ = std::move(larger);
  }

  std::vector<TileGrid> in_order() const {
    std::vector<TileGrid> grids;
    for (const auto& slot : slots_) {
      if (slot) grids.push_back(*slot);
    }
    return grids;
  }

 private:
  static constexpr size_t kLinearProbes = 9;

  static void insert(std::vector<std::optional<TileGrid>>& slots, TileGrid grid) {
    const size_t mask = slots.size() - 1;
    const uint64_t hash = tuple_hash(grid.columns, grid.rows);
    uint64_t perturb = hash;
    size_t at = hash & mask;
    while (true) {
      const size_t run_end = at + kLinearProbes <= mask ? at + kLinearProbes : at;
      for (size_t i = at; i <= run_end; ++i) {
        if (!slots[i]) {
          slots[i] = grid;
          return;
        }
      }
      perturb >>= 5;
      at = (at * 5 + 1 + perturb) & mask;
    }
  }

  std::vector<std::optional<TileGrid>> slots_ = std::vector<std::optional<TileGrid>>(8);
  size_t used_ = 0;
};

// All grids of min_tiles to max_tiles tiles, in the order in which the reference looks at them.
std::vector<TileGrid> candidate_grids(int min_tiles, int max_tiles) {
  GridSet set;
  for (int n = min_tiles; n <= max_tiles; ++n) {
    for (int i = 1; i <= n; ++i) {
      for (int j = 1; j <= std::min(n, max_tiles / i); ++j) {
        const bool is_new = std::max(i, j) == n || n == min_tiles;
        if (is_new && i * j >= min_tiles) set.add({i, j});
      }
    }
  }
  std::vector<TileGrid> grids = set.in_order();
  std::stable_sort(grids.begin(), grids.end(), [](const TileGrid& a, const TileGrid& b) {
    return a.columns * a.rows < b.columns * b.rows;
  });
  return grids;
}

}  // namespace

TileGrid choose_grid(int width, int height, const TileOptions& options) {
  SHARDLOOM_CHECK(width > 0 && height > 0, "a picture of {} x {}", width, height);
  SHARDLOOM_CHECK(
      options.image_size > 0 && options.min_tiles >= 1 && options.max_tiles >= options.min_tiles,
      "tiles of {} pixels, {} to {} of them", options.image_size, options.min_tiles,
      options.max_tiles);
  const double aspect = static_cast<double>(width) / height;
  const double area = static_cast<double>(width) * height;
  const double tile_area = static_cast<double>(options.image_size) * options.image_size;
  TileGrid best;
  double best_difference = std::numeric_limits<double>::infinity();
  for (const TileGrid& grid : candidate_grids(options.min_tiles, options.max_tiles)) {
    const double difference = std::abs(aspect - static_cast<double>(grid.columns) / grid.rows);
    const bool large_enough = area > 0.5 * tile_area * grid.columns * grid.rows;
    if (difference < best_difference || (difference == best_difference && large_enough)) {
      best = grid;
      best_difference = difference;
    }
  }
  return best;
}

}  // namespace shardloom::data
