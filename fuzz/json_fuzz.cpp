// JSON text as in checkpoint headers, indices, tokenizers and data lines: parsed, or refused with
// an Error.
#include <cstddef>
#include <cstdint>

#include "shardloom/base/json.h"
#include "shardloom/base/strings.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  bool parsed = true;
  try {
    shardloom::parse_json(text, "input", shardloom::ExitCode::kData);
  } catch (const shardloom::Error&) {
    parsed = false;
  }
  if (parsed && shardloom::find_invalid_utf8(text)) __builtin_trap();  // valid JSON is valid UTF-8
  return 0;
}
