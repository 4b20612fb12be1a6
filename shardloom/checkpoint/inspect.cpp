#include "shardloom/checkpoint/inspect.h"

#include <algorithm>
#include <system_error>

#include "shardloom/base/error.h"
#include "shardloom/base/json.h"
#include "shardloom/base/strings.h"
#include "shardloom/checkpoint/dcp/reader.h"
#include "shardloom/checkpoint/hf_folder.h"
#include "shardloom/checkpoint/safetensors.h"
#include "shardloom/checkpoint/save_root.h"

namespace shardloom::checkpoint {
namespace {

namespace fs = std::filesystem;

enum class Kind { kFile, kHf, kDcp };

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Kind kind_of(const fs::path& path) {
  std::error_code ignored;
  if (!is_there(path)) throw CheckpointError("{} does not exist", path.string());
  if (!fs::is_directory(path, ignored)) return Kind::kFile;
  if (is_hf_folder(path)) return Kind::kHf;
  // Data files without .metadata: the reader of DCP folders says what is missing.
  bool is_dcp = is_there(path / dcp::kMetadataName);
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    is_dcp |= entry.path().extension() == ".distcp";
  }
  return is_dcp ? Kind::kDcp : Kind::kHf;
}

DescribedTensor whole_tensor(const TensorInfo& info, const fs::path& file) {
  return {info.name,
          info.dtype,
          info.shape,
          info.length,
          {{file.filename().string(), std::vector<int64_t>(info.shape.size()), info.shape}}};
}

void describe_file(Description& description) {
  description.kind = "safetensors file";
  const SafetensorsFile file(description.path);
  for (const TensorInfo& info : file.tensors()) {
    description.tensors.push_back(whole_tensor(info, file.path()));
  }
  for (const auto& [name, text] : file.metadata()) description.values.push_back({name, text});
}

void describe_hf(Description& description) {
  description.kind = "Hugging Face folder";
  const HfFolder folder = HfFolder::open(description.path);
  for (const auto& [name, location] : folder.tensors()) {
    description.tensors.push_back(whole_tensor(*location.info, location.file->path()));
  }
  description.warnings = folder.warnings();
}

// A value that holds a tensor, or is damaged, must not hide the rest.
std::string value_text(const dcp::Reader& reader, const std::string& name) {
  try {
    return dcp::python_text(reader.value(name));
  } catch (const CheckpointError& error) {
    return fmt::format("not readable: {}", error.what());
  }
}

void describe_dcp(Description& description) {
  description.kind = "DCP folder";
  const dcp::Reader reader(description.path);
  for (const auto& [name, tensor] : reader.metadata().tensors) {
    DescribedTensor described{
        name, tensor.dtype, tensor.shape, *tensor_bytes(tensor.dtype, tensor.shape), {}};
    for (const dcp::TensorChunk& chunk : tensor.chunks) {
      described.pieces.push_back({chunk.range.file, chunk.box.offsets, chunk.box.sizes});
    }
    description.tensors.push_back(std::move(described));
  }
  for (const auto& entry : reader.metadata().values) {
    description.values.push_back({entry.first, value_text(reader, entry.first)});
  }
}

std::string pieces_text(const std::vector<DescribedPiece>& pieces) {
  constexpr size_t kShown = 8;
  std::vector<std::string> texts;
  for (const DescribedPiece& piece : pieces) {
    if (texts.size() == kShown && pieces.size() > kShown + 1) {
      texts.push_back(fmt::format("{} more", pieces.size() - kShown));
      break;
    }
    const bool is_whole = pieces.size() == 1;
    texts.push_back(is_whole ? piece.file
                             : fmt::format("{} {} at {}", piece.file, shape_text(piece.sizes),
                                           shape_text(piece.offsets)));
  }
  return join(texts, ", ");
}

}  // namespace

Description describe_checkpoint(const fs::path& path) {
  Description description;
  description.path = latest_below(path);
  switch (kind_of(description.path)) {
    case Kind::kFile:
      describe_file(description);
      break;
    case Kind::kHf:
      describe_hf(description);
      break;
    case Kind::kDcp:
      describe_dcp(description);
      break;
  }
  for (const DescribedTensor& tensor : description.tensors) description.total_bytes += tensor.bytes;
  return description;
}

std::string description_text(const Description& description) {
  size_t name_width = 0;
  for (const auto& tensor : description.tensors) {
    name_width = std::max(name_width, tensor.name.size());
  }
  for (const auto& value : description.values) name_width = std::max(name_width, value.name.size());
  std::string text;
  for (const DescribedTensor& tensor : description.tensors) {
    text += fmt::format("{:<{}}  {:<5} {:<16} {:>9}  {}\n", tensor.name, name_width,
                        dtype_name(tensor.dtype), shape_text(tensor.shape),
                        human_bytes(tensor.bytes), pieces_text(tensor.pieces));
  }
  for (const DescribedValue& value : description.values) {
    text += fmt::format("{:<{}}  {}\n", value.name, name_width, value.text);
  }
  for (const std::string& warning : description.warnings) {
    text += fmt::format("warning: {}\n", warning);
  }
  return text + fmt::format("{}: {}, {} tensors, {}\n", description.path.string(), description.kind,
                            description.tensors.size(), human_bytes(description.total_bytes));
}

std::string description_json(const Description& description) {
  OrderedJson json = {{"path", description.path.string()},      {"kind", description.kind},
                      {"total_bytes", description.total_bytes}, {"tensors", OrderedJson::array()},
                      {"values", OrderedJson::object()},        {"warnings", description.warnings}};
  for (const DescribedTensor& tensor : description.tensors) {
    OrderedJson pieces = OrderedJson::array();
    for (const DescribedPiece& piece : tensor.pieces) {
      pieces.push_back({{"file", piece.file}, {"offsets", piece.offsets}, {"sizes", piece.sizes}});
    }
    json["tensors"].push_back({{"name", tensor.name},
                               {"dtype", dtype_name(tensor.dtype)},
                               {"shape", tensor.shape},
                               {"bytes", tensor.bytes},
                               {"pieces", std::move(pieces)}});
  }
  for (const DescribedValue& value : description.values) json["values"][value.name] = value.text;
  // Names of files need not be UTF-8.
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

uint64_t verify_checkpoint(
    const fs::path& path,
    const std::function<void(const std::string& name, const std::string& error)>& on_error) {
  const fs::path checkpoint = latest_below(path);
  switch (kind_of(checkpoint)) {
    case Kind::kFile:
      SafetensorsFile{checkpoint};
      return 0;
    case Kind::kHf:
      HfFolder::open(checkpoint);
      return 0;
    case Kind::kDcp:
      return dcp::Reader(checkpoint).verify(on_error);
  }
  return 0;
}

}  // namespace shardloom::checkpoint
