// Writes a pickle of protocol 2, opcode by opcode, as Python's pickler would: names, texts and
// torch.Sizes that come again are remembered and written once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shardloom/checkpoint/dcp/pickle_opcode.h"
#include "shardloom/checkpoint/dcp/python_value.h"

namespace shardloom::checkpoint::dcp {

class PickleWriter {
 public:
  PickleWriter();

  void none() { put(Opcode::kNone); }
  void boolean(bool value) { put(value ? Opcode::kNewTrue : Opcode::kNewFalse); }
  void integer(int64_t value);
  void real(double value);
  void text(std::string_view utf8);
  void bytes(std::string_view data);
  void global(std::string_view module_and_name);
  void int_tuple(const std::vector<int64_t>& values);
  void torch_size(const std::vector<int64_t>& sizes);
  void value(const PythonValue& value);

  // mark, the elements, then what they become. A dict or list is made empty first, marked, then
  // filled by set_items or appends.
  void mark() { put(Opcode::kMark); }
  void tuple() { put(Opcode::kTuple); }
  void empty_tuple() { put(Opcode::kEmptyTuple); }
  void empty_list() { put(Opcode::kEmptyList); }
  void empty_dict() { put(Opcode::kEmptyDict); }
  void appends() { put(Opcode::kAppends); }
  void set_items() { put(Opcode::kSetItems); }

  // Calls the global below the tuple of arguments.
  void reduce() { put(Opcode::kReduce); }
  // A new instance of a class, with a dict as its state: begin, the names and values, end.
  void begin_instance(std::string_view type);
  void end_instance();
  // Without arguments and without a state.
  void empty_instance(std::string_view type);
  // Gives the object on top the state that was written after it.
  void build() { put(Opcode::kBuild); }
  void persistent_id() { put(Opcode::kBinPersId); }

  std::string finish() &&;

 private:
  void put(Opcode opcode) { bytes_ += static_cast<char>(opcode); }
  void put_little_endian(uint64_t value, size_t bytes);
  // True when a value with this key was remembered and has been fetched.
  bool recall(const std::string& key);
  // The value that has just been written is the one with this key.
  void remember(std::string key);

  std::string bytes_;
  std::unordered_map<std::string, uint32_t> memo_;
};

}  // namespace shardloom::checkpoint::dcp
