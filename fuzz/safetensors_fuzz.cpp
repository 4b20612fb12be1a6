// Any bytes as a safetensors file, and as the header of one: either an Error, or tensors that lie
// inside the file.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/safetensors.h"

namespace {

void check_tensors(std::string_view content) {
  using shardloom::checkpoint::TensorInfo;
  uint64_t end = 0;
  for (const TensorInfo& tensor :
       shardloom::checkpoint::parse_safetensors(content, "fuzz").tensors) {
    if (end != 0 && tensor.offset != end) std::abort();
    end = tensor.offset + tensor.length;
    if (end > content.size() || end < tensor.offset) std::abort();
    if (tensor_bytes(tensor.dtype, tensor.shape) != tensor.length) std::abort();
  }
}

void check(std::string_view content) {
  try {
    check_tensors(content);
  } catch (const shardloom::Error&) {
  }
}

// Up to the first line break it is the header, the rest is data: mutations then need not keep the
// length field right.
std::string with_length_field(std::string_view text) {
  const size_t header_bytes = std::min(text.find('\n'), text.size());
  std::string content;
  for (int i = 0; i < 8; ++i) content += static_cast<char>(header_bytes >> (8 * i) & 0xFF);
  content += text.substr(0, header_bytes);
  if (header_bytes < text.size()) content += text.substr(header_bytes + 1);
  return content;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check(input);
  check(with_length_field(input));
  return 0;
}
