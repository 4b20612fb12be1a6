// The bytes of a pickle, opcode by opcode.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "shardloom/checkpoint/dcp/pickle_opcode.h"

namespace shardloom::checkpoint::dcp {

// Every function that needs more bytes than there are fails.
class PickleInput {
 public:
  // Both must outlive this object.
  PickleInput(std::string_view bytes, const std::string& place) : bytes_(bytes), place_(place) {}

  // CheckpointError with the place, the offset and name of the opcode at hand, and the cause.
  [[noreturn]] void fail(const std::string& cause) const;

  Opcode next_opcode();
  Opcode opcode() const { return opcode_; }
  size_t left() const { return bytes_.size() - at_; }

  std::string_view take(uint64_t count);
  // Little-endian.
  uint64_t take_unsigned(size_t bytes);
  int64_t take_signed(uint64_t bytes);
  // Big-endian, 8 bytes.
  double take_real();
  // Up to the next line break, which is taken too.
  std::string_view take_line();
  // UTF-8 behind a length field of so many bytes.
  std::string_view take_text(size_t length_bytes);

  void read_protocol();
  void read_frame();

 private:
  std::string_view bytes_;
  const std::string& place_;
  size_t at_ = 0;
  size_t at_opcode_ = 0;
  Opcode opcode_ = Opcode::kProto;
};

}  // namespace shardloom::checkpoint::dcp
