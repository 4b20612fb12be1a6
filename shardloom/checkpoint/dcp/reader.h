// Reader of a distributed checkpoint: any box of any tensor, by any number of processes, whatever
// the number of ranks that wrote it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/base/files.h"
#include "shardloom/checkpoint/dcp/metadata.h"
#include "shardloom/checkpoint/dcp/python_value.h"
#include "shardloom/checkpoint/dcp/torch_item.h"

namespace shardloom::checkpoint::dcp {

// Where a box is copied to. `bytes` must hold every element of the box.
struct BoxTarget {
  char* data = nullptr;  // of the box's first element
  uint64_t bytes = 0;
  DType dtype = DType::kF32;     // must be the tensor's: nothing is cast
  std::vector<int64_t> strides;  // in elements, one for each dimension; empty: dense, row-major
};

struct ReaderOptions {
  // Compares the CRC-32 of every stored piece with what was written when a read first touches it.
  // That reads the whole piece even where a part is wanted. PyTorch never does; without it a
  // damaged byte is a wrong value.
  bool verify_crc = false;
};

// Errors are CheckpointError with path, key and cause. After the constructor everything is const
// and may be called from several threads.
class Reader {
 public:
  // Checks the metadata and maps all files of `folder` (a folder with a .metadata).
  explicit Reader(std::filesystem::path folder, ReaderOptions options = {});

  const std::filesystem::path& folder() const { return folder_; }
  const Metadata& metadata() const { return metadata_; }

  // Throw with the nearest name when there is no such tensor or value.
  const TensorEntry& tensor(std::string_view name) const;
  PythonValue value(std::string_view name) const;

  // Copies a box that lies inside the tensor; only the pages with its bytes are read.
  void read_box(std::string_view name, const Box& box, const BoxTarget& target) const;

  // All columns of rows [first, first + count) of dimension 0, dense.
  void read_rows(std::string_view name,
                 int64_t first,
                 int64_t count,
                 const BoxTarget& target) const;

  // The whole tensor, dense and row-major.
  std::string read_tensor(std::string_view name) const;

  // Reads every byte of every item and compares CRC-32 and header with what was written. Calls
  // on_error with the name and the error of each bad item; returns the number of items.
  using OnError = std::function<void(const std::string& name, const std::string& error)>;
  uint64_t verify(const OnError& on_error) const;

 private:
  TensorItem open_chunk(std::string_view name,
                        const TensorEntry& tensor,
                        const TensorChunk& chunk) const;
  const MappedFile& file_of(const ItemRange& range) const {
    return files_.find(range.file)->second;
  }
  ZipArchive::PieceDone page_dropper(const ItemRange& range) const;
  std::string_view bytes_of(const ItemRange& range) const;
  std::string place_of(std::string_view name, const ItemRange& range) const;
  void copy_chunk(std::string_view name,
                  const TensorEntry& tensor,
                  const TensorChunk& chunk,
                  const Box& wanted,
                  const BoxTarget& target) const;
  void copy_checked(const ItemRange& range, const TensorItem& item, char* target) const;
  std::once_flag& checked_flag(const ItemRange& range) const;
  void check_target(std::string_view name,
                    const TensorEntry& tensor,
                    const Box& box,
                    const BoxTarget& target) const;

  std::filesystem::path folder_;
  ReaderOptions options_;
  Metadata metadata_;
  std::map<std::string, MappedFile, std::less<>> files_;

  struct CheckedItems {
    std::mutex mutex;
    std::map<const ItemRange*, std::once_flag> flags;  // by the address of a range in metadata_
  };
  std::unique_ptr<CheckedItems> checked_ = std::make_unique<CheckedItems>();
};

}  // namespace shardloom::checkpoint::dcp
