// Writes what one rank holds of a distributed checkpoint, in a form that PyTorch 2.11 reads
// (torch.distributed.checkpoint.load, dcp_to_torch_save).
//
// A save by many ranks, with a barrier after steps 1 and 2:
//   1. rank 0         begin_staging(folder)
//   2. each rank      RankWriter(staging_folder(folder), rank), its items, finish(); the result
//                     travels to rank 0 as metadata_pickle / parse_metadata
//   3. rank 0         merge_metadata of all, write_metadata(staging_folder(folder), merged),
//                     publish_staging(folder), write_latest(root, iteration)
// A rank that fails tells the others, and rank 0 calls abandon_staging(folder); what was there
// before is untouched until publish_staging.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/checkpoint/dcp/metadata.h"
#include "shardloom/checkpoint/dcp/python_value.h"
#include "shardloom/checkpoint/output_file.h"
#include "shardloom/checkpoint/safetensors_writer.h"

namespace shardloom::checkpoint::dcp {

// One file, __<rank>_0.distcp, that grows item by item; nothing but the piece at hand is held in
// memory. Every rank writes a file, an empty one if it holds nothing.
//   RankWriter writer(staging_folder(folder), rank);
//   writer.add_tensor({"model.w", DType::kF32, {7, 5}}, {{4, 0}, {3, 5}}, {"model", "w"},
//   provider); writer.add_value("extra.step", {"extra", "step"}, 7); const Metadata part =
//   writer.finish();   // merge_metadata, write_metadata on one rank
// Errors are CheckpointError (disk) or InternalError (a name twice, too many or few bytes).
class RankWriter {
 public:
  // Takes the next piece of the chunk's bytes: dense, row-major, little-endian.
  using Sink = std::function<void(std::string_view)>;
  using Provider = std::function<void(const Sink&)>;

  // `expected_bytes` is for messages only; 0 when unknown.
  RankWriter(const std::filesystem::path& folder, int rank, uint64_t expected_bytes = 0);

  // The part `box` of a tensor of the given global shape, whose bytes the provider gives in pieces
  // of any size. `path` is the key in each nested dict or list of the state; joined by dots it is
  // the name. A tensor may be added several times with different boxes.
  void add_tensor(const TensorSpec& tensor,
                  const Box& box,
                  const StatePath& path,
                  const Provider& provider);

  // Something that is no tensor. One rank writes it for all.
  void add_value(const std::string& name, const StatePath& path, const PythonValue& value);

  // Puts the file on disk; returns what was written.
  Metadata finish();

 private:
  ItemRange range_from(uint64_t start) const;

  std::string file_name_;
  OutputFile file_;
  Metadata written_;
};

}  // namespace shardloom::checkpoint::dcp
