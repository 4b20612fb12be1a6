// CRC-32 of zip and zlib (polynomial 0x04C11DB7, reflected), at the speed of memory.
#pragma once

#include <cstdint>
#include <string_view>

namespace shardloom::checkpoint::dcp {

// Continued from `crc`, which is 0 at first.
uint32_t crc32_of(std::string_view bytes, uint32_t crc = 0);

}  // namespace shardloom::checkpoint::dcp
