// Windows and OS/2 bitmaps: 1, 4, 8, 16, 24 and 32 bits, RLE4 and RLE8. No library on Debian reads
// BMP alone.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "shardloom/data/image/codec.h"
#include "shardloom/data/image/palette.h"

namespace shardloom::data::codec {
namespace {

constexpr char kTruncated[] = "the data ends before the picture does (truncated file)";
constexpr size_t kFileHeaderSize = 14;
constexpr size_t kCoreHeaderSize = 12;  // OS/2

enum Compression : uint32_t { kRaw = 0, kRle8 = 1, kRle4 = 2, kBitfields = 3 };

struct Header {
  ImageSize size;
  bool top_down = false;
  uint32_t bits = 0;
  uint32_t compression = kRaw;
  size_t pixels_at = 0;
  std::string_view color_table;
  int color_table_entry = 4;
  std::array<uint32_t, 3> masks{};  // red, green, blue; with kBitfields
};

// Bit masks come after a 40-byte header or inside a longer one, at the same offset.
void read_masks(std::string_view bytes, const std::string& place, Header& header) {
  const size_t masks_at = kFileHeaderSize + 40;
  if (bytes.size() < masks_at + 12) throw_damaged(place, "BMP", kTruncated);
  for (size_t c = 0; c < 3; ++c) header.masks[c] = little32(bytes, masks_at + 4 * c);
}

void read_color_table(std::string_view bytes,
                      const std::string& place,
                      size_t table_at,
                      uint32_t num_colors,
                      Header& header) {
  if (num_colors == 0) num_colors = 1u << header.bits;
  if (num_colors > 65536) {
    throw_damaged(place, "BMP", fmt::format("a colour table of {} entries", num_colors));
  }
  const size_t table_size = size_t{num_colors} * header.color_table_entry;
  if (bytes.size() < table_at + table_size) throw_damaged(place, "BMP", kTruncated);
  header.color_table = bytes.substr(table_at, table_size);
  // Some writers leave the colour table out of the offset of the pixels.
  if (header.pixels_at == table_at || header.pixels_at == 0) {
    header.pixels_at = table_at + table_size;
  }
}

Header read_header(std::string_view bytes, const std::string& place) {
  if (bytes.size() < kFileHeaderSize + kCoreHeaderSize) throw_damaged(place, "BMP", kTruncated);
  Header header;
  header.pixels_at = little32(bytes, 10);
  const uint32_t header_size = little32(bytes, kFileHeaderSize);
  uint32_t num_colors = 0;
  if (header_size == kCoreHeaderSize) {
    header.size = checked_size(little16(bytes, 18), little16(bytes, 20), place);
    header.bits = little16(bytes, 24);
    header.color_table_entry = 3;
  } else {
    constexpr std::array<uint32_t, 6> kKnown = {40, 52, 56, 64, 108, 124};
    if (std::find(kKnown.begin(), kKnown.end(), header_size) == kKnown.end()) {
      throw_damaged(place, "BMP", fmt::format("a header of {} bytes", header_size));
    }
    if (bytes.size() < kFileHeaderSize + header_size) throw_damaged(place, "BMP", kTruncated);
    header.top_down = byte_at(bytes, 25) == 0xff;  // a negative height
    const uint32_t height = little32(bytes, 22);
    header.size = checked_size(little32(bytes, 18), header.top_down ? 0 - height : height, place);
    header.bits = little16(bytes, 28);
    header.compression = little32(bytes, 30);
    num_colors = little32(bytes, 46);
  }
  const bool known_depth = header.bits == 1 || header.bits == 4 || header.bits == 8 ||
                           header.bits == 16 || header.bits == 24 || header.bits == 32;
  if (!known_depth) throw_damaged(place, "BMP", fmt::format("{} bits a pixel", header.bits));
  size_t table_at = kFileHeaderSize + header_size;
  if (header.compression == kBitfields) {
    read_masks(bytes, place, header);
    if (header_size == 40) table_at += 12;
  }
  if (header.bits <= 8) read_color_table(bytes, place, table_at, num_colors, header);
  if (header.pixels_at == 0) header.pixels_at = table_at;
  return header;
}

// Runs of (count, value), and escapes (0, x): 0 ends the row, 1 the picture, 2 jumps, others copy x
// values. One index a pixel, rows in file order; fewer than all when the data ends.
class RleReader {
 public:
  RleReader(std::string_view bytes, const Header& header)
      : bytes_(bytes),
        at_(header.pixels_at),
        four_bits_(header.compression == kRle4),
        width_(header.size.width),
        num_pixels_(size_t{width_} * header.size.height) {}

  std::vector<uint8_t> read() {
    indices_.reserve(num_pixels_);
    while (indices_.size() < num_pixels_ && at_ + 2 <= bytes_.size()) {
      const uint8_t count = byte_at(bytes_, at_);
      const uint8_t value = byte_at(bytes_, at_ + 1);
      at_ += 2;
      if (count > 0) {
        append_run(count, value);
      } else if (value == 0) {
        append_zeros((width_ - indices_.size() % width_) % width_);
        x_ = 0;
      } else if (value == 2 && at_ + 2 <= bytes_.size()) {
        append_zeros(byte_at(bytes_, at_) + byte_at(bytes_, at_ + 1) * width_);
        at_ += 2;
        x_ = indices_.size() % width_;
      } else if (value <= 2 || !append_literals(value)) {
        break;  // the end of the picture, or of the file
      }
    }
    return std::move(indices_);
  }

 private:
  void append_zeros(size_t count) {
    indices_.resize(indices_.size() + std::min(count, num_pixels_ - indices_.size()));
  }

  void append(uint8_t index) {
    if (indices_.size() < num_pixels_) indices_.push_back(index);
  }

  // What does not fit into the row is dropped.
  void append_run(size_t count, uint8_t value) {
    count = x_ < width_ ? std::min(count, width_ - x_) : 0;
    for (size_t i = 0; i < count; ++i) {
      append(!four_bits_ ? value : i % 2 == 0 ? value >> 4 : value & 15);
    }
    x_ += count;
  }

  // As Pillow reads them: of an odd number of 4-bit values the last is not stored. False when the
  // file ends.
  bool append_literals(uint8_t count) {
    const size_t num_bytes = four_bits_ ? count / 2 : count;
    if (num_bytes > bytes_.size() - at_) return false;
    for (size_t i = 0; i < num_bytes; ++i) {
      const uint8_t value = byte_at(bytes_, at_ + i);
      if (four_bits_) append(value >> 4);
      append(four_bits_ ? value & 15 : value);
    }
    x_ += count;
    at_ += num_bytes;
    at_ += at_ % 2;
    return true;
  }

  std::string_view bytes_;
  size_t at_;
  const bool four_bits_;
  const size_t width_;
  const size_t num_pixels_;
  size_t x_ = 0;
  std::vector<uint8_t> indices_;
};

// Turns one stored row into RGB.
class RowReader {
 public:
  RowReader(const Header& header, const std::string& place) : bits_(header.bits) {
    if (bits_ <= 8) {
      palette_ = make_palette(header.color_table, header.color_table_entry, EntryOrder::kBgr);
      return;
    }
    constexpr std::array<uint32_t, 3> k555 = {0x7c00, 0x3e0, 0x1f};
    constexpr std::array<uint32_t, 3> k565 = {0xf800, 0x7e0, 0x1f};
    masks_ = header.masks;
    if (masks_ == std::array<uint32_t, 3>{}) {
      masks_ = bits_ == 16 ? k555 : std::array<uint32_t, 3>{0xff0000, 0xff00, 0xff};
    }
    const bool known = bits_ == 16 ? masks_ == k555 || masks_ == k565
                                   : std::all_of(masks_.begin(), masks_.end(), is_byte_mask);
    if (!known) {
      throw_unsupported(
          place, "BMP",
          fmt::format("colour masks {:x}, {:x}, {:x}", masks_[0], masks_[1], masks_[2]));
    }
  }

  void read(const uint8_t* row, int width, uint8_t* out) const {
    for (int x = 0; x < width; ++x, out += 3) {
      if (bits_ <= 8) {
        const uint32_t bit = x * bits_;
        const uint32_t index = row[bit / 8] >> (8 - bits_ - bit % 8) & ((1u << bits_) - 1);
        std::copy_n(palette_.colors[index].data(), 3, out);
      } else {
        uint32_t pixel = 0;
        for (uint32_t i = 0; i < bits_ / 8; ++i) pixel |= uint32_t{*row++} << (8 * i);
        for (int c = 0; c < 3; ++c) {
          const uint32_t unit = masks_[c] & (0 - masks_[c]);  // the lowest bit of the mask
          out[c] = static_cast<uint8_t>((pixel & masks_[c]) / unit * 255 / (masks_[c] / unit));
        }
      }
    }
  }

 private:
  static bool is_byte_mask(uint32_t mask) {
    return mask == 0xff || mask == 0xff00 || mask == 0xff0000 || mask == 0xff000000;
  }

  uint32_t bits_;
  Palette palette_{};
  std::array<uint32_t, 3> masks_{};
};

}  // namespace

ImageSize bmp_size(std::string_view bytes, const std::string& place) {
  return read_header(bytes, place).size;
}

RgbImage decode_bmp(std::string_view bytes, const std::string& place) {
  Header header = read_header(bytes, place);
  size_t stride = (size_t{header.bits} * header.size.width + 31) / 32 * 4;
  size_t row_bytes = (size_t{header.bits} * header.size.width + 7) / 8;
  if (header.pixels_at > bytes.size()) throw_damaged(place, "BMP", kTruncated);
  std::string_view pixels = bytes.substr(header.pixels_at);
  std::vector<uint8_t> indices;
  if (header.compression == kRle8 || header.compression == kRle4) {
    if (header.bits > 8) throw_damaged(place, "BMP", "run lengths without a colour table");
    indices = RleReader(bytes, header).read();
    pixels = {reinterpret_cast<const char*>(indices.data()), indices.size()};
    header.bits = 8;
    stride = row_bytes = header.size.width;
  } else if (header.compression != kRaw && header.compression != kBitfields) {
    throw_unsupported(place, "BMP", fmt::format("compression {}", header.compression));
  }
  if (pixels.size() < stride * (header.size.height - 1) + row_bytes) {
    throw_damaged(place, "BMP", kTruncated);
  }

  const RowReader rows(header, place);
  RgbImage image = new_image(header.size);
  const auto* data = reinterpret_cast<const uint8_t*>(pixels.data());
  for (int i = 0; i < image.height; ++i) {
    const size_t y = header.top_down ? i : image.height - 1 - i;
    rows.read(data + i * stride, image.width, &image.pixels[y * image.width * 3]);
  }
  return image;
}

}  // namespace shardloom::data::codec
