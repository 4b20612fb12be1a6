// Writer of safetensors files that never holds more than the piece it is given.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/checkpoint/output_file.h"
#include "shardloom/checkpoint/safetensors.h"

namespace shardloom::checkpoint {

// A tensor that is to be written.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// Bytes of its data; the shape must be sound (InternalError otherwise).
uint64_t spec_bytes(const TensorSpec& spec);

// The order in which a file holds its tensors: wider elements first, else as given. With a header
// padded to 8 bytes it keeps every tensor aligned to its element size, which readers that map the
// file rely on.
std::vector<TensorSpec> file_order(std::vector<TensorSpec> tensors);

// All tensors are declared first, because the header precedes the data. The file is at its place
// after finish().
//   SafetensorsWriter writer(path, specs);
//   for (const TensorSpec& tensor : writer.tensors()) writer.write(tensor.name, bytes_of(tensor));
//   writer.finish();
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path,
                    std::vector<TensorSpec> tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  // The order in which the data must come.
  const std::vector<TensorSpec>& tensors() const { return tensors_; }

  // The next bytes of a tensor, little-endian and row-major, in as many pieces as convenient.
  void write(std::string_view name, std::string_view bytes);

  // All data must have been written.
  void finish();

 private:
  void skip_complete_tensors();

  std::vector<TensorSpec> tensors_;
  std::string header_;  // with its length field
  OutputFile file_;
  size_t current_ = 0;      // index of the tensor that is being written
  uint64_t remaining_ = 0;  // its bytes still to come
};

}  // namespace shardloom::checkpoint
