// Strict reading of YAML scalars: a value is a boolean, a number or text by how it is written, and
// nothing is converted silently. Differs from YAML 1.1 on purpose: yes/no/on/off are no booleans,
// 1e-5 is a number, 042 is refused.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "shardloom/config/yaml.h"

namespace shardloom::config {

// The text says what was expected and what was found; the caller adds the key and the place.
class BadValue : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

bool read_bool(const YamlNode& node);
// 2000, +5, and 2e3 or 2000.0 when exactly integral. Not 042, 0x10, 1_000.
int64_t read_int(const YamlNode& node);
// Any finite decimal number.
double read_float(const YamlNode& node);
// Quoted text, or plain text that is not a number, a boolean or one of yes/no/on/off.
std::string read_text(const YamlNode& node);

// YAML text that reads back as the same value.
std::string write_bool(bool value);
std::string write_float(double value);
std::string write_text(const std::string& value);

}  // namespace shardloom::config
