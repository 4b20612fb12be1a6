#include "shardloom/checkpoint/dcp/pickle_writer.h"

#include <bit>
#include <limits>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::checkpoint::dcp {
namespace {

constexpr uint64_t kProtocol = 2;

struct ValueWriter {
  PickleWriter& pickle;

  void operator()(std::monostate) const { pickle.none(); }
  void operator()(bool value) const { pickle.boolean(value); }
  void operator()(int64_t value) const { pickle.integer(value); }
  void operator()(double value) const { pickle.real(value); }
  void operator()(const std::string& value) const { pickle.text(value); }
  void operator()(const PythonValue::Bytes& value) const { pickle.bytes(value.data); }
  void operator()(const PythonValue::List& value) const {
    pickle.empty_list();
    pickle.mark();
    for (const PythonValue& item : value.items) pickle.value(item);
    pickle.appends();
  }
  void operator()(const PythonValue::Tuple& value) const {
    pickle.mark();
    for (const PythonValue& item : value.items) pickle.value(item);
    pickle.tuple();
  }
  void operator()(const PythonValue::Dict& value) const {
    pickle.empty_dict();
    pickle.mark();
    for (const auto& [key, item] : value.items) {
      pickle.value(key);
      pickle.value(item);
    }
    pickle.set_items();
  }
};

}  // namespace

PickleWriter::PickleWriter() {
  put(Opcode::kProto);
  put_little_endian(kProtocol, 1);
}

void PickleWriter::put_little_endian(uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xFF);
}

bool PickleWriter::recall(const std::string& key) {
  const auto found = memo_.find(key);
  if (found == memo_.end()) return false;
  const bool is_short = found->second < 256;
  put(is_short ? Opcode::kBinGet : Opcode::kLongBinGet);
  put_little_endian(found->second, is_short ? 1 : 4);
  return true;
}

void PickleWriter::remember(std::string key) {
  SHARDLOOM_CHECK(memo_.size() < std::numeric_limits<uint32_t>::max(), "{} memos", memo_.size());
  const auto index = static_cast<uint32_t>(memo_.size());
  memo_.emplace(std::move(key), index);
  const bool is_short = index < 256;
  put(is_short ? Opcode::kBinPut : Opcode::kLongBinPut);
  put_little_endian(index, is_short ? 1 : 4);
}

void PickleWriter::integer(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  if (value >= 0 && value < 256) {
    put(Opcode::kBinInt1);
    put_little_endian(bits, 1);
  } else if (value >= 0 && value < 65536) {
    put(Opcode::kBinInt2);
    put_little_endian(bits, 2);
  } else if (std::in_range<int32_t>(value)) {
    put(Opcode::kBinInt);
    put_little_endian(bits, 4);
  } else {
    put(Opcode::kLong1);
    put_little_endian(8, 1);
    put_little_endian(bits, 8);
  }
}

void PickleWriter::real(double value) {
  put(Opcode::kBinFloat);
  const auto bits = std::bit_cast<uint64_t>(value);
  for (size_t i = 8; i-- > 0;) bytes_ += static_cast<char>(bits >> (8 * i) & 0xFF);
}

void PickleWriter::text(std::string_view utf8) {
  std::string key = fmt::format("text {}", utf8);
  if (recall(key)) return;
  SHARDLOOM_CHECK(!find_invalid_utf8(utf8) && std::in_range<uint32_t>(utf8.size()),
                  "a text of {} bytes that is not UTF-8 or too long", utf8.size());
  put(Opcode::kBinUnicode);
  put_little_endian(utf8.size(), 4);
  bytes_ += utf8;
  remember(std::move(key));
}

// Protocol 2 has no bytes; Python writes them as a text in latin1.
void PickleWriter::bytes(std::string_view data) {
  std::string text_of_bytes;
  for (const char c : data) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte >= 0x80) {
      text_of_bytes += static_cast<char>(0xC0 | byte >> 6);
      text_of_bytes += static_cast<char>(0x80 | (byte & 0x3F));
    } else {
      text_of_bytes += c;
    }
  }
  global("_codecs encode");
  mark();
  text(text_of_bytes);
  text("latin1");
  tuple();
  reduce();
}

void PickleWriter::global(std::string_view module_and_name) {
  std::string key = fmt::format("global {}", module_and_name);
  if (recall(key)) return;
  const size_t space = module_and_name.find(' ');
  SHARDLOOM_CHECK(space != std::string_view::npos, "global {}", module_and_name);
  put(Opcode::kGlobal);
  bytes_ +=
      fmt::format("{}\n{}\n", module_and_name.substr(0, space), module_and_name.substr(space + 1));
  remember(std::move(key));
}

void PickleWriter::int_tuple(const std::vector<int64_t>& values) {
  mark();
  for (const int64_t value : values) integer(value);
  tuple();
}

void PickleWriter::torch_size(const std::vector<int64_t>& sizes) {
  std::string key = "size";
  for (const int64_t size : sizes) key += fmt::format(" {}", size);
  if (recall(key)) return;
  global("torch Size");
  mark();
  int_tuple(sizes);
  tuple();
  reduce();
  remember(std::move(key));
}

void PickleWriter::value(const PythonValue& value) { std::visit(ValueWriter{*this}, value.get()); }

void PickleWriter::begin_instance(std::string_view type) {
  empty_instance(type);
  empty_dict();
  mark();
}

void PickleWriter::end_instance() {
  set_items();
  build();
}

void PickleWriter::empty_instance(std::string_view type) {
  global(type);
  empty_tuple();
  put(Opcode::kNewObj);
}

std::string PickleWriter::finish() && {
  put(Opcode::kStop);
  return std::move(bytes_);
}

}  // namespace shardloom::checkpoint::dcp
