#include "shardloom/data/sha256.h"

#include <fmt/format.h>
#include <nettle/sha2.h>

#include <array>

namespace shardloom::data {

std::string sha256_hex(std::span<const uint8_t> bytes) {
  sha256_ctx context;
  sha256_init(&context);
  sha256_update(&context, bytes.size(), bytes.data());
  std::array<uint8_t, SHA256_DIGEST_SIZE> digest;
  sha256_digest(&context, digest.size(), digest.data());
  std::string hex;
  for (const uint8_t byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace shardloom::data
