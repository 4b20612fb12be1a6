#include "shardloom/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <set>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/json.h"

namespace shardloom::checkpoint {
namespace {

constexpr size_t kAlignment = 8;

std::string make_header(const std::vector<TensorSpec>& tensors,
                        const std::map<std::string, std::string>& metadata) {
  OrderedJson json = OrderedJson::object();
  if (!metadata.empty()) json[std::string(kMetadataKey)] = metadata;
  std::set<std::string_view> names;
  uint64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    SHARDLOOM_CHECK(names.insert(tensor.name).second && tensor.name != kMetadataKey,
                    "\"{}\" cannot name a (second) tensor", tensor.name);
    const uint64_t end = offset + spec_bytes(tensor);
    json[tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                         {"shape", tensor.shape},
                         {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  SHARDLOOM_CHECK(text.size() <= kMaxHeaderBytes, "{} bytes of header", text.size());
  std::string header;
  for (size_t i = 0; i < 8; ++i) header += static_cast<char>(text.size() >> (8 * i) & 0xFF);
  return header + text;
}

uint64_t total_bytes(const std::vector<TensorSpec>& tensors) {
  uint64_t total = 0;
  for (const TensorSpec& tensor : tensors) total += spec_bytes(tensor);
  return total;
}

}  // namespace

uint64_t spec_bytes(const TensorSpec& spec) {
  const auto bytes = tensor_bytes(spec.dtype, spec.shape);
  SHARDLOOM_CHECK(bytes.has_value(), "tensor {}, shape {}", spec.name, shape_text(spec.shape));
  return *bytes;
}

std::vector<TensorSpec> file_order(std::vector<TensorSpec> tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return dtype_bits(a.dtype) > dtype_bits(b.dtype);
  });
  return tensors;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorSpec> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : tensors_(file_order(std::move(tensors))),
      header_(make_header(tensors_, metadata)),
      file_(path, header_.size() + total_bytes(tensors_)) {
  file_.write(header_);
  if (!tensors_.empty()) remaining_ = spec_bytes(tensors_[0]);
  skip_complete_tensors();
}

void SafetensorsWriter::skip_complete_tensors() {
  while (current_ < tensors_.size() && remaining_ == 0) {
    ++current_;
    if (current_ < tensors_.size()) remaining_ = spec_bytes(tensors_[current_]);
  }
}

void SafetensorsWriter::write(std::string_view name, std::string_view bytes) {
  if (bytes.empty()) return;
  SHARDLOOM_CHECK(current_ < tensors_.size() && tensors_[current_].name == name,
                  "data of \"{}\" comes out of order", name);
  SHARDLOOM_CHECK(bytes.size() <= remaining_, "{} bytes for \"{}\", which takes {} more",
                  bytes.size(), name, remaining_);
  file_.write(bytes);
  remaining_ -= bytes.size();
  skip_complete_tensors();
}

void SafetensorsWriter::finish() {
  SHARDLOOM_CHECK(current_ == tensors_.size(), "\"{}\" lacks {} bytes", tensors_[current_].name,
                  remaining_);
  file_.commit();
}

}  // namespace shardloom::checkpoint
