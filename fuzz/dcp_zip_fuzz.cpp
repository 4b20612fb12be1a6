// Any bytes as one or several items of a checkpoint (zip archives of torch.save): either an Error,
// or entries and a tensor that lie inside the archive.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/dcp/box.h"
#include "shardloom/checkpoint/dcp/python_value.h"
#include "shardloom/checkpoint/dcp/torch_item.h"
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

void check_archive(std::string_view bytes) {
  const ZipArchive archive(bytes, "fuzz");
  for (const ZipEntry& entry : archive.entries()) {
    const bool is_inside = entry.data.data() >= bytes.data() &&
                           entry.data.data() + entry.data.size() <= bytes.data() + bytes.size();
    if (!is_inside) std::abort();
    allow_errors([&] { archive.check_crc(entry); });
  }
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

void check_item(std::string_view bytes) {
  allow_errors([&] { check_archive(bytes); });
  allow_errors([&] { check_tensor(bytes); });
  allow_errors([&] { read_value_item(bytes, "fuzz"); });
  allow_errors([&] { check_item_crcs(bytes, "fuzz"); });
}

// Where the archives of a .distcp begin: each has data.pkl as its first entry.
std::vector<size_t> item_starts(std::string_view bytes) {
  constexpr std::string_view kName = "data.pkl";
  constexpr std::string_view kMagic = "PK\x03\x04";
  std::vector<size_t> starts;
  for (size_t at = bytes.find(kName); at != bytes.npos; at = bytes.find(kName, at + 1)) {
    const size_t header = bytes.substr(0, at).rfind(kMagic);
    const bool is_first = header != bytes.npos && (starts.empty() || header > starts.back());
    if (is_first && at - header < 60) starts.push_back(header);
  }
  return starts;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check_item(input);
  const std::vector<size_t> starts = item_starts(input);
  for (size_t i = 0; i < std::min<size_t>(starts.size(), 4); ++i) {
    const size_t end = i + 1 < starts.size() ? starts[i + 1] : input.size();
    check_item(input.substr(starts[i], end - starts[i]));
  }
  return 0;
}
