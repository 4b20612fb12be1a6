// A plain Python value: what the items of a checkpoint hold that are no tensors (learning rates,
// step counts, lists of names).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shardloom/checkpoint/dcp/pickle_tree.h"

namespace shardloom::checkpoint::dcp {

class PythonValue {
 public:
  struct Bytes {
    std::string data;
    bool operator==(const Bytes&) const = default;
  };
  struct List {
    std::vector<PythonValue> items;
    bool operator==(const List&) const = default;
  };
  struct Tuple {  // torch.Size is read as one
    std::vector<PythonValue> items;
    bool operator==(const Tuple&) const = default;
  };
  struct Entry;
  struct Dict {  // in the order of insertion
    std::vector<Entry> items;
    bool operator==(const Dict&) const = default;
  };
  using Variant =
      std::variant<std::monostate, bool, int64_t, double, std::string, Bytes, List, Tuple, Dict>;

  PythonValue() = default;  // None
  PythonValue(bool value);
  PythonValue(int value);
  PythonValue(int64_t value);
  PythonValue(double value);
  PythonValue(const char* value);
  PythonValue(std::string value);
  PythonValue(Bytes value);
  PythonValue(List value);
  PythonValue(Tuple value);
  PythonValue(Dict value);

  const Variant& get() const { return value_; }
  bool is_none() const { return std::holds_alternative<std::monostate>(value_); }
  // nullptr when it is of another type.
  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&value_);
  }

  bool operator==(const PythonValue&) const = default;

 private:
  Variant value_;
};

struct PythonValue::Entry {
  PythonValue key;
  PythonValue value;
  bool operator==(const Entry&) const = default;
};

// Throws CheckpointError, which begins with `place`, for what is no plain value (a tensor in a
// tuple, a dtype).
PythonValue to_python_value(const PickleNode& node, const std::string& place);

// As Python prints it: "(0.9, 0.95)", "{'lr': 0.001}".
std::string python_text(const PythonValue& value);

}  // namespace shardloom::checkpoint::dcp
