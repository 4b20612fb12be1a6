#include "shardloom/checkpoint/dcp/pickle_input.h"

#include <bit>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::checkpoint::dcp {

void PickleInput::fail(const std::string& cause) const {
  throw CheckpointError("{}: damaged or unsupported pickle: byte {}: {}: {}", place_, at_opcode_,
                        opcode_name(opcode_), cause);
}

Opcode PickleInput::next_opcode() {
  at_opcode_ = at_;
  if (left() == 0) {
    opcode_ = Opcode::kStop;
    fail("the pickle has no end; was the file cut short?");
  }
  opcode_ = static_cast<Opcode>(static_cast<uint8_t>(bytes_[at_++]));
  return opcode_;
}

std::string_view PickleInput::take(uint64_t count) {
  if (count > left()) {
    fail(fmt::format("needs {} bytes, {} are left; was the file cut short?", count, left()));
  }
  const std::string_view taken = bytes_.substr(at_, count);
  at_ += count;
  return taken;
}

uint64_t PickleInput::take_unsigned(size_t bytes) {
  const std::string_view text = take(bytes);
  uint64_t value = 0;
  for (size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(text[i]);
  return value;
}

int64_t PickleInput::take_signed(uint64_t bytes) {
  if (bytes > 8) fail(fmt::format("an int of {} bytes; at most 8 are read", bytes));
  if (bytes == 0) return 0;
  const auto unused_bits = static_cast<unsigned>(64 - 8 * bytes);
  const uint64_t value = take_unsigned(static_cast<size_t>(bytes)) << unused_bits;
  return static_cast<int64_t>(value) >> unused_bits;
}

std::string_view PickleInput::take_line() {
  const size_t end = bytes_.find('\n', at_);
  if (end == std::string_view::npos) fail("the line has no end; was the file cut short?");
  const std::string_view line = bytes_.substr(at_, end - at_);
  at_ = end + 1;
  return line;
}

std::string_view PickleInput::take_text(size_t length_bytes) {
  const std::string_view text = take(take_unsigned(length_bytes));
  if (const auto bad = find_invalid_utf8(text)) {
    fail(fmt::format("byte {} of the text is not UTF-8", *bad));
  }
  return text;
}

void PickleInput::read_protocol() {
  const uint64_t protocol = take_unsigned(1);
  if (at_opcode_ != 0) fail("in the middle of the pickle");
  if (protocol < 2 || protocol > 5) fail(fmt::format("protocol {}; 2 to 5 are read", protocol));
}

void PickleInput::read_frame() {
  const uint64_t length = take_unsigned(8);
  if (length > left()) {
    fail(fmt::format("a frame of {} bytes, {} are left; was the file cut short?", length, left()));
  }
}

double PickleInput::take_real() {
  uint64_t bits = 0;
  for (const char byte : take(8)) bits = bits << 8 | static_cast<uint8_t>(byte);
  return std::bit_cast<double>(bits);
}

}  // namespace shardloom::checkpoint::dcp
