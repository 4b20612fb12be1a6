// Colour tables of GIF and BMP.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace shardloom::data::codec {

struct Palette {
  std::array<std::array<uint8_t, 3>, 256> colors;  // RGB
};

enum class EntryOrder { kRgb, kBgr };

// Entries of `entry_size` bytes. Indices beyond the table are black, but stay gray when the whole
// table is the gray ramp (as in Pillow, which then has no table at all); an empty table is that
// ramp.
Palette make_palette(std::string_view table, int entry_size, EntryOrder order);

}  // namespace shardloom::data::codec
