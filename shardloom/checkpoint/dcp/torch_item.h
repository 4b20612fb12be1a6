// One torch.save archive inside a .distcp file: a tensor, or a plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/checkpoint/dcp/python_value.h"
#include "shardloom/checkpoint/dcp/zip_archive.h"
#include "shardloom/checkpoint/dtype.h"

namespace shardloom::checkpoint::dcp {

// A tensor whose bytes stay where they are. Little-endian; the strides are in elements and may be
// any that PyTorch allows.
struct TensorItem {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  std::string_view data;  // from the tensor's first element on, to the end of its storage
  ZipArchive archive;
  ZipEntry storage;

  // Reads the whole storage; throws CheckpointError when it is not what was written.
  void check_crc(const ZipArchive::PieceDone& done = {}) const { archive.check_crc(storage, done); }
};

// `bytes` is the whole archive and must outlive the result. All that the item says is checked
// against the archive (version, byte order, sizes); only its few header bytes are read. Errors are
// CheckpointError that begin with `place`.
TensorItem read_tensor_item(std::string_view bytes, const std::string& place);

// The value of an item without tensors.
PythonValue read_value_item(std::string_view bytes, const std::string& place);

// The CRC of everything in an item, tensor or not.
void check_item_crcs(std::string_view bytes,
                     const std::string& place,
                     const ZipArchive::PieceDone& done = {});

// The pickle of a dense row-major tensor whose storage is entry data/0, and of a plain value: the
// entry data.pkl of an item.
std::string tensor_item_pickle(DType dtype, const std::vector<int64_t>& shape);
std::string value_item_pickle(const PythonValue& value);

}  // namespace shardloom::checkpoint::dcp
