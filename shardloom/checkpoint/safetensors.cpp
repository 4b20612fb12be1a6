#include "shardloom/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/json.h"
#include "shardloom/base/strings.h"

namespace shardloom::checkpoint {
namespace {

constexpr uint64_t kLengthBytes = 8;

// A file that is something else altogether is named as such; the broken detail would only mislead.
[[noreturn]] void throw_not_safetensors(std::string_view content,
                                        const std::string& place,
                                        const std::string& cause) {
  const std::string foreign = describe_foreign_content(content);
  if (!foreign.empty()) {
    throw CheckpointError("{}: not a safetensors file; it looks like {}", place, foreign);
  }
  throw CheckpointError("{}: not a safetensors file: {}", place, cause);
}

uint64_t read_header_length(std::string_view content, const std::string& place) {
  if (content.empty()) throw CheckpointError("{}: the file is empty", place);
  if (content.size() < kLengthBytes) {
    throw_not_safetensors(
        content, place, fmt::format("{} bytes are too short for the length field", content.size()));
  }
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(content[i]);
  }
  if (length > kMaxHeaderBytes) {
    throw_not_safetensors(
        content, place,
        fmt::format("header length {} is over the limit of {} bytes", length, kMaxHeaderBytes));
  }
  if (length > content.size() - kLengthBytes) {
    throw_not_safetensors(
        content, place,
        fmt::format("the header of {} bytes runs past the end of the file ({} bytes); was the "
                    "download or copy cut short?",
                    length, content.size()));
  }
  return length;
}

Json parse_header_json(std::string_view content,
                       std::string_view header,
                       const std::string& place) {
  // The JSON parser would let a byte-order mark pass and stop at a zero byte.
  if (header.substr(0, 1) != "{") {
    throw_not_safetensors(content, place, "the header is not JSON (it does not begin with '{')");
  }
  if (const size_t at = header.find('\0'); at != std::string_view::npos) {
    throw_not_safetensors(content, place,
                          fmt::format("the header is not valid JSON (zero byte at {})", at));
  }
  try {
    return parse_json(header, place + " (header)", ExitCode::kCheckpoint);
  } catch (const Error& error) {
    throw CheckpointError("{}", error.what());
  } catch (const Json::exception& error) {
    throw CheckpointError("{}: the header is not valid JSON: {}", place, error.what());
  }
}

std::map<std::string, std::string> parse_metadata(const Json& value, const std::string& place) {
  if (!value.is_object()) {
    throw CheckpointError("{}: {} is not an object of strings", place, kMetadataKey);
  }
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      throw CheckpointError("{}: {}.{} is not a string", place, kMetadataKey, key);
    }
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

// Where a value stands in the header, for messages.
struct Field {
  const std::string& place;
  const std::string& tensor;
  const char* key;

  [[noreturn]] void fail(const std::string& cause) const {
    throw CheckpointError("{}: tensor \"{}\": {} {}", place, tensor, key, cause);
  }
};

uint64_t parse_size(const Json& value, const Field& field) {
  if (value.is_number_integer() && !value.is_number_unsigned() && value.get<int64_t>() < 0) {
    field.fail(fmt::format("holds the negative size {}", value.get<int64_t>()));
  }
  if (!value.is_number_integer()) {
    field.fail("holds something that is not a whole number of at most 64 bits");
  }
  return value.get<uint64_t>();
}

const Json& require(const Json& entry, const Field& field) {
  const auto found = entry.find(field.key);
  if (found == entry.end()) field.fail("is missing");
  return *found;
}

DType parse_dtype_field(const Json& entry, const Field& field) {
  const Json& value = require(entry, field);
  if (!value.is_string()) field.fail("is not a string");
  const auto& name = value.get_ref<const std::string&>();
  if (name.empty()) field.fail("is empty (a fault of the program that wrote the file)");
  const auto dtype = parse_dtype(name);
  if (!dtype) {
    field.fail(fmt::format("\"{}\" is unknown{}", name, did_you_mean(name, dtype_names())));
  }
  return *dtype;
}

std::vector<int64_t> parse_shape(const Json& entry, const Field& field) {
  const Json& value = require(entry, field);
  if (!value.is_array()) field.fail("is not a list");
  std::vector<int64_t> shape;
  for (const Json& item : value) {
    const uint64_t size = parse_size(item, field);
    if (size > static_cast<uint64_t>(INT64_MAX)) field.fail(fmt::format("is too big: {}", size));
    shape.push_back(static_cast<int64_t>(size));
  }
  return shape;
}

std::pair<uint64_t, uint64_t> parse_offsets(const Json& entry, const Field& field) {
  const Json& value = require(entry, field);
  if (!value.is_array() || value.size() != 2) field.fail("is not a list of two numbers");
  const uint64_t begin = parse_size(value[0], field);
  const uint64_t end = parse_size(value[1], field);
  if (end < begin) field.fail(fmt::format("[{}, {}] ends before it begins", begin, end));
  return {begin, end};
}

// `offset` of the result counts from the beginning of the data.
TensorInfo parse_tensor(const std::string& name, const Json& entry, const std::string& place) {
  if (!entry.is_object()) {
    throw CheckpointError("{}: tensor \"{}\" is not described by an object", place, name);
  }
  const Field offsets_field{place, name, "data_offsets"};
  TensorInfo tensor;
  tensor.name = name;
  tensor.dtype = parse_dtype_field(entry, {place, name, "dtype"});
  tensor.shape = parse_shape(entry, {place, name, "shape"});
  const auto [begin, end] = parse_offsets(entry, offsets_field);
  tensor.offset = begin;
  tensor.length = end - begin;
  const auto needed = tensor_bytes(tensor.dtype, tensor.shape);
  if (!needed) {
    Field{place, name, "shape"}.fail(fmt::format("{} of {} is no whole number of bytes below 2^61",
                                                 shape_text(tensor.shape),
                                                 dtype_name(tensor.dtype)));
  }
  if (*needed != tensor.length) {
    offsets_field.fail(fmt::format("[{}, {}] give {} bytes, but shape {} of {} needs {}", begin,
                                   end, tensor.length, shape_text(tensor.shape),
                                   dtype_name(tensor.dtype), *needed));
  }
  return tensor;
}

// Sorted tensors must follow each other and end with the file.
void check_coverage(const std::vector<TensorInfo>& tensors,
                    uint64_t data_bytes,
                    const std::string& place) {
  uint64_t covered = 0;
  const TensorInfo* previous = nullptr;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.offset > covered) {
      throw CheckpointError("{}: hole of {} bytes before the data of tensor \"{}\"", place,
                            tensor.offset - covered, tensor.name);
    }
    if (tensor.offset < covered) {
      throw CheckpointError("{}: the data of tensors \"{}\" and \"{}\" overlap", place,
                            previous->name, tensor.name);
    }
    covered += tensor.length;
    previous = &tensor;
  }
  if (covered > data_bytes) {
    throw CheckpointError(
        "{}: the file is {} bytes shorter than its header says; was the download or copy cut "
        "short?",
        place, covered - data_bytes);
  }
  if (covered < data_bytes) {
    throw CheckpointError("{}: {} bytes at the end are not covered by the header", place,
                          data_bytes - covered);
  }
}

}  // namespace

SafetensorsHeader parse_safetensors(std::string_view content, const std::string& place) {
  const uint64_t header_bytes = read_header_length(content, place);
  const Json json = parse_header_json(content, content.substr(kLengthBytes, header_bytes), place);
  SafetensorsHeader header;
  for (const auto& [name, entry] : json.items()) {
    if (name == kMetadataKey) {
      header.metadata = parse_metadata(entry, place);
    } else {
      header.tensors.push_back(parse_tensor(name, entry, place));
    }
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return std::pair(a.offset, a.length) < std::pair(b.offset, b.length);
                   });
  const uint64_t data_start = kLengthBytes + header_bytes;
  check_coverage(header.tensors, content.size() - data_start, place);
  for (TensorInfo& tensor : header.tensors) tensor.offset += data_start;
  return header;
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : path_(std::move(path)) {
  try {
    file_ = MappedFile(path_);
  } catch (const std::system_error& error) {
    throw CheckpointError("{}", error.what());
  }
  header_ = parse_safetensors(file_.view(), path_.string());
  for (size_t i = 0; i < header_.tensors.size(); ++i) index_of_[header_.tensors[i].name] = i;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_of_.find(name);
  return found == index_of_.end() ? nullptr : &header_.tensors[found->second];
}

std::string_view SafetensorsFile::data(const TensorInfo& tensor) const {
  return file_.view().substr(tensor.offset, tensor.length);
}

std::string_view SafetensorsFile::data(std::string_view name) const {
  if (const TensorInfo* tensor = find(name)) return data(*tensor);
  std::vector<std::string> names;
  for (const TensorInfo& tensor : header_.tensors) names.push_back(tensor.name);
  throw CheckpointError("{}: no tensor \"{}\"{}", path_.string(), name, did_you_mean(name, names));
}

void SafetensorsFile::drop_pages(const TensorInfo& tensor) const {
  file_.drop_pages(tensor.offset, tensor.length);
}

void SafetensorsFile::drop_pages(std::string_view bytes) const {
  file_.drop_pages(static_cast<size_t>(bytes.data() - file_.data()), bytes.size());
}

}  // namespace shardloom::checkpoint
