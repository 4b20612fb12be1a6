// Any bytes as a pickle, as a .metadata and as an item of a checkpoint: either an Error, or a value
// that is as sound as the headers say.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/dcp/metadata.h"
#include "shardloom/checkpoint/dcp/python_value.h"
#include "shardloom/checkpoint/dcp/torch_item.h"
#include "shardloom/checkpoint/dcp/unpickler.h"
#include "shardloom/checkpoint/dcp/zip_archive.h"

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

void check_tensor(std::string_view bytes) {
  const TensorItem item = read_tensor_item(bytes, "fuzz");
  if (volume(item.shape) == 0) return;
  uint64_t last = 0;
  for (size_t i = 0; i < item.shape.size(); ++i) {
    last += static_cast<uint64_t>((item.shape[i] - 1) * item.strides[i]);
  }
  const uint64_t element = dtype_bits(item.dtype) / 8;
  if ((last + 1) * element > item.data.size()) std::abort();
  // Touches the last byte, where a sanitizer would see a bad range.
  if (item.data[(last + 1) * element - 1] == item.data[0]) allow_errors([&] { item.check_crc(); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  allow_errors([&] { check_pickle(input); });
  allow_errors([&] { check_metadata(input); });
  allow_errors([&] { check_tensor(input); });
  allow_errors([&] { read_value_item(input, "fuzz"); });
  return 0;
}
