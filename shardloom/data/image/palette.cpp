#include "shardloom/data/image/palette.h"

#include <algorithm>

#include "shardloom/data/image/codec.h"

namespace shardloom::data::codec {

Palette make_palette(std::string_view table, int entry_size, EntryOrder order) {
  Palette palette{};
  const size_t num_entries = std::min<size_t>(table.size() / entry_size, 256);
  bool is_ramp = true;
  for (size_t i = 0; i < num_entries; ++i) {
    for (int c = 0; c < 3; ++c) {
      const int position = order == EntryOrder::kRgb ? c : 2 - c;
      palette.colors[i][c] = byte_at(table, i * entry_size + position);
      is_ramp = is_ramp && palette.colors[i][c] == i;
    }
  }
  if (is_ramp) {
    for (size_t i = num_entries; i < 256; ++i) palette.colors[i].fill(static_cast<uint8_t>(i));
  }
  return palette;
}

}  // namespace shardloom::data::codec
