// The first frame of a GIF. Own decoder: Pillow's treatment of offsets, transparency and colour
// tables decides what is right here, and LZW is short.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "shardloom/data/image/codec.h"
#include "shardloom/data/image/palette.h"

namespace shardloom::data::codec {
namespace {

constexpr char kTruncated[] = "the data ends before the picture does (truncated file)";

struct Frame {
  ImageSize canvas;
  uint32_t left = 0, top = 0, width = 0, height = 0;
  bool interlaced = false;
  std::string_view color_table;
  std::optional<uint8_t> transparent;
  size_t code_bits_at = 0;  // offset of the byte before the LZW blocks
};

class Parser {
 public:
  Parser(std::string_view bytes, const std::string& place) : bytes_(bytes), place_(place) {}

  // Walks to the pixels of the first frame.
  Frame parse() {
    Frame frame;
    const size_t screen = take(13);
    const uint32_t screen_width = little16(bytes_, screen + 6);
    const uint32_t screen_height = little16(bytes_, screen + 8);
    frame.color_table = take_color_table(byte_at(bytes_, screen + 10));
    while (true) {
      const uint8_t kind = byte_at(bytes_, take(1));
      if (kind == '!') {
        read_extension(frame);
      } else if (kind == ',') {
        break;
      } else if (kind == ';') {
        throw_damaged(place_, "GIF", "it has no frame");
      }
    }
    const size_t descriptor = take(9);
    frame.left = little16(bytes_, descriptor);
    frame.top = little16(bytes_, descriptor + 2);
    frame.width = little16(bytes_, descriptor + 4);
    frame.height = little16(bytes_, descriptor + 6);
    const uint8_t flags = byte_at(bytes_, descriptor + 8);
    frame.interlaced = (flags & 64) != 0;
    if ((flags & 128) != 0) frame.color_table = take_color_table(flags);
    frame.code_bits_at = take(1);
    // A frame may reach beyond the screen; the picture then grows.
    frame.canvas = checked_size(std::max(screen_width, frame.left + frame.width),
                                std::max(screen_height, frame.top + frame.height), place_);
    if (frame.width == 0 || frame.height == 0) throw_damaged(place_, "GIF", "its frame is empty");
    return frame;
  }

 private:
  size_t take(size_t count) {
    if (count > bytes_.size() - at_) throw_damaged(place_, "GIF", kTruncated);
    at_ += count;
    return at_ - count;
  }

  std::string_view take_color_table(uint8_t flags) {
    if ((flags & 128) == 0) return {};
    const size_t size = size_t{3} << ((flags & 7) + 1);
    return bytes_.substr(take(size), size);
  }

  void read_extension(Frame& frame) {
    const uint8_t label = byte_at(bytes_, take(1));
    bool first = true;
    while (const size_t length = byte_at(bytes_, take(1))) {
      const size_t block = take(length);
      const bool graphic_control = label == 0xf9 && first && length >= 4;
      if (graphic_control && (byte_at(bytes_, block) & 1) != 0) {
        frame.transparent = byte_at(bytes_, block + 3);
      }
      first = false;
    }
  }

  std::string_view bytes_;
  const std::string& place_;
  size_t at_ = 0;
};

// Codes of varying width, least significant bit first, from a chain of blocks (length byte, data).
class CodeReader {
 public:
  CodeReader(std::string_view bytes, size_t at) : bytes_(bytes), at_(at) {}

  // Nothing when the blocks end, or the next one is not whole.
  std::optional<uint32_t> next(int num_bits) {
    while (num_buffered_ < num_bits) {
      if (left_in_block_ == 0) {
        if (at_ >= bytes_.size()) return std::nullopt;
        left_in_block_ = byte_at(bytes_, at_++);
        if (left_in_block_ == 0 || left_in_block_ > bytes_.size() - at_) return std::nullopt;
      }
      buffer_ |= uint32_t{byte_at(bytes_, at_++)} << num_buffered_;
      num_buffered_ += 8;
      --left_in_block_;
    }
    const uint32_t code = buffer_ & ((1u << num_bits) - 1);
    buffer_ >>= num_bits;
    num_buffered_ -= num_bits;
    return code;
  }

 private:
  std::string_view bytes_;
  size_t at_;
  size_t left_in_block_ = 0;
  uint32_t buffer_ = 0;
  int num_buffered_ = 0;
};

// The LZW code table: entry = the string of `prefix`, then `last`.
class LzwDecoder {
 public:
  explicit LzwDecoder(int min_bits) : min_bits_(min_bits), clear_(1u << min_bits) { reset(); }

  // Fills `indices`; false when the data is damaged or ends early.
  bool decode(CodeReader codes, std::vector<uint8_t>& indices) {
    size_t filled = 0;
    while (filled < indices.size()) {
      const std::optional<uint32_t> code = codes.next(num_bits_);
      if (!code || *code == clear_ + 1) return false;
      if (*code == clear_) {
        reset();
        continue;
      }
      if (*code > (has_previous_ ? next_ : clear_)) return false;
      filled = append(*code, indices, filled);
    }
    return true;
  }

 private:
  static constexpr uint32_t kTableSize = 4096;

  void reset() {
    next_ = clear_ + 2;
    num_bits_ = min_bits_ + 1;
    has_previous_ = false;
  }

  // Writes the string of `code` behind `filled`, learns the next entry, returns the new end.
  size_t append(uint32_t code, std::vector<uint8_t>& indices, size_t filled) {
    size_t top = kTableSize + 1;  // the string is built from its end
    uint32_t walk = code;
    if (has_previous_ && code == next_) {  // the entry that is being learned now
      string_[--top] = first_;
      walk = previous_;
    }
    while (walk >= clear_) {
      string_[--top] = last_[walk];
      walk = prefix_[walk];
    }
    first_ = static_cast<uint8_t>(walk);
    string_[--top] = first_;
    const size_t count = std::min(kTableSize + 1 - top, indices.size() - filled);
    std::copy_n(&string_[top], count, &indices[filled]);
    if (has_previous_ && next_ < kTableSize) {
      last_[next_] = first_;
      prefix_[next_] = static_cast<uint16_t>(previous_);
      if (++next_ == (1u << num_bits_) && num_bits_ < 12) ++num_bits_;
    }
    previous_ = code;
    has_previous_ = true;
    return filled + count;
  }

  const int min_bits_;
  const uint32_t clear_;
  uint32_t next_ = 0;
  int num_bits_ = 0;
  bool has_previous_ = false;
  uint32_t previous_ = 0;
  uint8_t first_ = 0;
  std::array<uint8_t, kTableSize> last_{};
  std::array<uint16_t, kTableSize> prefix_{};
  std::array<uint8_t, kTableSize + 1> string_{};
};

// Row of the picture that holds the n-th row of the data, for all n.
std::vector<uint32_t> row_order(uint32_t height, bool interlaced) {
  struct Pass {
    uint32_t start, step;
  };
  const std::vector<Pass> passes =
      interlaced ? std::vector<Pass>{{0, 8}, {4, 8}, {2, 4}, {1, 2}} : std::vector<Pass>{{0, 1}};
  std::vector<uint32_t> order;
  for (const Pass& pass : passes) {
    for (uint32_t y = pass.start; y < height; y += pass.step) order.push_back(y);
  }
  return order;
}

}  // namespace

ImageSize gif_size(std::string_view bytes, const std::string& place) {
  return Parser(bytes, place).parse().canvas;
}

RgbImage decode_gif(std::string_view bytes, const std::string& place) {
  const Frame frame = Parser(bytes, place).parse();
  const int min_bits = byte_at(bytes, frame.code_bits_at);
  if (min_bits < 1 || min_bits > 8) {
    throw_damaged(place, "GIF", fmt::format("LZW codes of {} bits", min_bits));
  }
  std::vector<uint8_t> indices(size_t{frame.width} * frame.height);
  LzwDecoder decoder(min_bits);
  if (!decoder.decode(CodeReader(bytes, frame.code_bits_at + 1), indices)) {
    throw_damaged(place, "GIF", "its pixels are damaged or end early (truncated file?)");
  }

  const Palette palette = make_palette(frame.color_table, 3, EntryOrder::kRgb);
  RgbImage image = new_image(frame.canvas);
  // Around the frame Pillow shows the transparent colour, or entry 0.
  const auto& around = palette.colors[frame.transparent.value_or(0)];
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    std::copy_n(around.data(), 3, &image.pixels[i]);
  }
  const uint8_t* index = indices.data();
  for (const uint32_t y : row_order(frame.height, frame.interlaced)) {
    uint8_t* to = &image.pixels[(size_t{frame.top + y} * image.width + frame.left) * 3];
    for (uint32_t x = 0; x < frame.width; ++x, to += 3) {
      std::copy_n(palette.colors[*index++].data(), 3, to);
    }
  }
  return image;
}

}  // namespace shardloom::data::codec
