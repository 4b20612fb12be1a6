#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace shardloom::data {

// SHA-256 of `bytes` as 64 lower-case hexadecimal digits.
std::string sha256_hex(std::span<const uint8_t> bytes);

}  // namespace shardloom::data
