#include "shardloom/checkpoint/dcp/rank_writer.h"

#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/dcp/torch_item.h"
#include "shardloom/checkpoint/dcp/zip_writer.h"

namespace shardloom::checkpoint::dcp {
namespace {

// Of the archive format that PyTorch's readers check; 3 is what torch.save writes.
constexpr std::string_view kArchiveVersion = "3\n";

void check_path(const std::string& name, const StatePath& path) {
  std::string joined;
  for (const auto& part : path) {
    if (!joined.empty()) joined += '.';
    if (const auto* key = std::get_if<std::string>(&part)) {
      joined += *key;
    } else {
      joined += fmt::format("{}", std::get<int64_t>(part));
    }
  }
  SHARDLOOM_CHECK(joined == name, "\"{}\" has the path \"{}\"", name, joined);
}

}  // namespace

RankWriter::RankWriter(const std::filesystem::path& folder, int rank, uint64_t expected_bytes)
    : file_name_(fmt::format("__{}_0.distcp", rank)), file_(folder / file_name_, expected_bytes) {}

ItemRange RankWriter::range_from(uint64_t start) const {
  return {file_name_, start, file_.bytes_written() - start};
}

void RankWriter::add_tensor(const TensorSpec& tensor,
                            const Box& box,
                            const StatePath& path,
                            const Provider& provider) {
  SHARDLOOM_CHECK(is_inside(box, tensor.shape), "\"{}\" {}: {}", tensor.name,
                  shape_text(tensor.shape), box_text(box));
  SHARDLOOM_CHECK(!written_.values.contains(tensor.name), "\"{}\" comes twice", tensor.name);
  check_path(tensor.name, path);
  const uint64_t start = file_.bytes_written();
  ZipWriter zip(file_);
  zip.add("data.pkl", tensor_item_pickle(tensor.dtype, box.sizes));
  zip.add("byteorder", "little");
  zip.begin("data/0", spec_bytes({tensor.name, tensor.dtype, box.sizes}));
  provider([&](std::string_view piece) { zip.write(piece); });
  zip.end();
  zip.add("version", kArchiveVersion);
  zip.finish();
  Metadata item;
  item.tensors[tensor.name] = {tensor.dtype, tensor.shape, {{box, range_from(start)}}};
  item.planner_data[tensor.name] = path;
  merge_metadata(written_, item, file_name_);
}

void RankWriter::add_value(const std::string& name,
                           const StatePath& path,
                           const PythonValue& value) {
  SHARDLOOM_CHECK(!written_.values.contains(name) && !written_.tensors.contains(name),
                  "\"{}\" comes twice", name);
  check_path(name, path);
  const uint64_t start = file_.bytes_written();
  ZipWriter zip(file_);
  zip.add("data.pkl", value_item_pickle(value));
  zip.add("byteorder", "little");
  zip.add("version", kArchiveVersion);
  zip.finish();
  written_.values[name] = range_from(start);
  written_.planner_data[name] = path;
}

Metadata RankWriter::finish() {
  file_.commit();
  return std::move(written_);
}

}  // namespace shardloom::checkpoint::dcp
