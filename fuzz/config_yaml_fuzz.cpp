// The configuration reader on arbitrary bytes: it accepts or throws ConfigError, and what it
// accepts it also writes so that it reads back as the same. The text after the first line
// "---8<---" is one override.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "shardloom/base/error.h"
#include "shardloom/config/load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shardloom::config;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view kCut = "\n---8<---\n";
  std::vector<std::string> overrides;
  if (const size_t cut = text.find(kCut); cut != std::string_view::npos) {
    overrides.emplace_back(text.substr(cut + kCut.size()));
    text = text.substr(0, cut + 1);
  }
  std::string dump;
  try {
    dump = parse_train_config(text, "fuzz", overrides, FeatureCheck::kAll).dump();
  } catch (const shardloom::ConfigError&) {
    return 0;
  }
  if (parse_train_config(dump, "dump", {}, FeatureCheck::kAll).dump() != dump) std::abort();
  return 0;
}
