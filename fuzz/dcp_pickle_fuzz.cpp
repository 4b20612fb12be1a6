// Any bytes as a pickle and as a .metadata: either an Error, or what can be written and read again.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/dcp/metadata.h"
#include "shardloom/checkpoint/dcp/python_value.h"
#include "shardloom/checkpoint/dcp/torch_item.h"
#include "shardloom/checkpoint/dcp/unpickler.h"

namespace {

using namespace shardloom::checkpoint;       // NOLINT: a program of one file
using namespace shardloom::checkpoint::dcp;  // NOLINT

template <typename Function>
void allow_errors(const Function& function) {
  try {
    function();
  } catch (const shardloom::CheckpointError&) {
  }
}

void check_pickle(std::string_view bytes) {
  const PickleTree tree = unpickle(bytes, "fuzz", {.max_nodes = 100'000});
  const PythonValue value = to_python_value(tree.root(), "fuzz");
  python_text(value);
  const std::string again = value_item_pickle(value);
  if (value_item_pickle(to_python_value(unpickle(again, "again").root(), "again")) != again) {
    std::abort();
  }
}

void check_metadata(std::string_view bytes) {
  const Metadata metadata = parse_metadata(bytes, "fuzz");
  check_coverage(metadata, "fuzz");
  if (parse_metadata(metadata_pickle(metadata), "again") != metadata) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  allow_errors([&] { check_pickle(input); });
  allow_errors([&] { check_metadata(input); });
  return 0;
}
