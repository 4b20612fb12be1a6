// Reader of safetensors files: 8 bytes little-endian header length, a JSON header, the tensors'
// bytes. The format: https://huggingface.co/docs/safetensors. Everything the header says is checked
// against the file before any data is handed out; what fails throws CheckpointError with path,
// tensor and cause.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/base/files.h"
#include "shardloom/checkpoint/dtype.h"

namespace shardloom::checkpoint {

// Longest header that is read (the limit of the reference implementation).
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

// The header's key for free text about the file; never a tensor.
inline constexpr std::string_view kMetadataKey = "__metadata__";

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // of the first byte, from the beginning of the file; need not be aligned
  uint64_t length = 0;  // bytes
};

struct SafetensorsHeader {
  std::vector<TensorInfo>
      tensors;  // in the order of their data; they cover it without hole or overlap
  std::map<std::string, std::string> metadata;
};

// `content` is a whole file; `place` is its name in errors.
SafetensorsHeader parse_safetensors(std::string_view content, const std::string& place);

// A file mapped read-only; pages are read when touched.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  // nullptr when there is no such tensor.
  const TensorInfo* find(std::string_view name) const;

  // The bytes of one of tensors(); valid as long as this object (moving it keeps them valid).
  std::string_view data(const TensorInfo& tensor) const;
  // The same by name; throws CheckpointError with the nearest name.
  std::string_view data(std::string_view name) const;

  // The tensor will not be read again soon: gives its pages back, so that streaming a big file
  // stays small in memory.
  void drop_pages(const TensorInfo& tensor) const;
  // The same for a part of what data() gave.
  void drop_pages(std::string_view bytes) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> index_of_;
};

}  // namespace shardloom::checkpoint
