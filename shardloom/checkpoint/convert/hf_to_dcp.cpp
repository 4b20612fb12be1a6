#include "shardloom/checkpoint/convert/hf_to_dcp.h"

#include <algorithm>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/interrupt.h"
#include "shardloom/base/log.h"
#include "shardloom/base/progress.h"
#include "shardloom/checkpoint/convert/ordered_blocks.h"
#include "shardloom/checkpoint/dcp/rank_writer.h"
#include "shardloom/checkpoint/save_root.h"
#include "shardloom/checkpoint/staged_folder.h"
#include "shardloom/checkpoint/state_names.h"

namespace shardloom::checkpoint {
namespace {

namespace fs = std::filesystem;

// A tensor of the HF folder and the rows and columns of the parameter's matrix that it fills.
struct Piece {
  TensorLocation from;
  int64_t row = 0;
  int64_t rows = 0;
  int64_t column = 0;
  int64_t columns = 0;
  bool transpose = false;
};

// A parameter seen as a matrix: all dimensions but the first are columns.
struct Parameter {
  TensorSpec spec;
  int64_t rows = 1;
  int64_t columns = 1;
  std::vector<Piece> pieces;

  uint64_t element_bytes() const { return dtype_bits(spec.dtype) / 8; }
  int64_t rows_of_block() const {
    const uint64_t row_bytes = static_cast<uint64_t>(columns) * element_bytes();
    return std::max<int64_t>(1,
                             static_cast<int64_t>(kBlockBytes / std::max<uint64_t>(1, row_bytes)));
  }
};

struct Block {
  const Parameter* parameter;
  int64_t row;
  int64_t rows;
};

void set_matrix(const std::vector<int64_t>& shape, int64_t& rows, int64_t& columns) {
  rows = shape.empty() ? 1 : shape[0];
  columns = 1;
  for (size_t i = 1; i < shape.size(); ++i) columns *= shape[i];
}

Piece make_piece(const HfFolder& folder, const nn::WeightPiece& source) {
  Piece piece{folder.get(source.key), source.row, 0, source.column, 0, source.transpose};
  set_matrix(source.shape, piece.rows, piece.columns);
  if (piece.transpose) std::swap(piece.rows, piece.columns);
  return piece;
}

Parameter make_parameter(const HfFolder& folder, const nn::WeightSource& source) {
  Parameter parameter;
  const TensorInfo& first = *folder.get(source.pieces.at(0).key).info;
  parameter.spec = {source.parameter, first.dtype, parameter_shape(source)};
  set_matrix(parameter.spec.shape, parameter.rows, parameter.columns);
  for (const nn::WeightPiece& piece : source.pieces) {
    parameter.pieces.push_back(make_piece(folder, piece));
    const TensorInfo& info = *parameter.pieces.back().from.info;
    if (info.dtype != first.dtype) {
      throw CheckpointError("{}: {} is {} and {} is {}; they are parts of one parameter",
                            folder.path().string(), first.name, dtype_name(first.dtype), info.name,
                            dtype_name(info.dtype));
    }
  }
  return parameter;
}

// The rows of `piece` that the block has, at their place in it.
void copy_piece(const Block& block, const Piece& piece, char* target) {
  const int64_t first = std::max(block.row, piece.row);
  const int64_t count = std::min(block.row + block.rows, piece.row + piece.rows) - first;
  if (count <= 0) return;
  const uint64_t element = block.parameter->element_bytes();
  const int64_t skipped = first - piece.row, columns = piece.columns;
  // In the file, of one row and of one column of the parameter.
  const int64_t row_stride = piece.transpose ? 1 : columns;
  const int64_t column_stride = piece.transpose ? piece.rows : 1;
  const int64_t span = (count - 1) * row_stride + (columns - 1) * column_stride + 1;
  const std::string_view bytes = piece.from.data().substr(
      static_cast<uint64_t>(skipped * row_stride) * element, static_cast<uint64_t>(span) * element);
  const int64_t offset = (first - block.row) * block.parameter->columns + piece.column;
  dcp::copy_strided({count, columns}, element, bytes.data(), {row_stride, column_stride},
                    target + static_cast<uint64_t>(offset) * element,
                    {block.parameter->columns, 1});
  piece.from.file->drop_pages(bytes);
}

void fill_block(const Block& block, Buffer& buffer) {
  const Parameter& parameter = *block.parameter;
  char* target = buffer.reset(static_cast<uint64_t>(block.rows * parameter.columns) *
                              parameter.element_bytes());
  for (const Piece& piece : parameter.pieces) copy_piece(block, piece, target);
}

std::vector<Block> blocks_of(const std::vector<Parameter>& parameters) {
  std::vector<Block> blocks;
  for (const Parameter& parameter : parameters) {
    const int64_t step = parameter.rows_of_block();
    for (int64_t row = 0; row < parameter.rows; row += step) {
      blocks.push_back({&parameter, row, std::min(step, parameter.rows - row)});
    }
  }
  return blocks;
}

// What an interrupted conversion left does not count.
void require_empty(const fs::path& save_dir) {
  std::error_code ignored;
  const fs::path left = staging_folder(checkpoint_folder(save_dir, std::nullopt)).filename();
  for (const auto& entry : fs::directory_iterator(save_dir, ignored)) {
    if (entry.path().filename() != left) return require_free_folder(save_dir);
  }
  if (fs::exists(save_dir, ignored) && !fs::is_directory(save_dir, ignored)) {
    throw CheckpointError("{} is a file; name a new folder", save_dir.string());
  }
}

void require_prefix(const HfFolder& folder, const std::string& prefix) {
  const auto& tensors = folder.tensors();
  const auto has_prefix = [&](const auto& entry) { return entry.first.starts_with(prefix); };
  if (std::any_of(tensors.begin(), tensors.end(), has_prefix)) return;
  throw CheckpointError("--hf_prefix \"{}\": no tensor of {} begins with it; the first is {}",
                        prefix, folder.path().string(), tensors.begin()->first);
}

std::vector<Parameter> plan(const HfFolder& folder,
                            const std::string& prefix,
                            const ConvertModel& model) {
  require_prefix(folder, prefix);
  const auto sources_of = [&](nn::Layout layout) {
    return with_prefix(model.sources(layout), prefix);
  };
  const auto sources = sources_of(choose_layout(folder, sources_of));
  const auto may_ignore = [&](const std::string& key) {
    return key.starts_with(prefix) && model.may_ignore(key.substr(prefix.size()));
  };
  const std::string problems =
      problems_text(folder.path().string(), check_keys(folder, sources, may_ignore));
  if (!problems.empty()) throw CheckpointError(problems);
  std::vector<Parameter> parameters;
  size_t used = 0;
  for (const nn::WeightSource& source : sources) {
    parameters.push_back(make_parameter(folder, source));
    used += source.pieces.size();
  }
  for (const std::string& warning : folder.warnings()) log::warn("{}", warning);
  if (used < folder.tensors().size()) {
    log::warn("{} tensors of {} belong to layers that config.json does not have; they are left out",
              folder.tensors().size() - used, folder.path().string());
  }
  return parameters;
}

void write_checkpoint(const fs::path& folder,
                      const std::vector<Parameter>& parameters,
                      const HfToDcpOptions& options,
                      uint64_t total_bytes) {
  const std::vector<Block> blocks = blocks_of(parameters);
  OrderedBlocks stream(blocks.size(), std::min(options.threads, kMaxConvertThreads),
                       [&](size_t i, Buffer& buffer) { fill_block(blocks[i], buffer); });
  dcp::RankWriter writer(folder, 0, total_bytes);
  ProgressBar progress("converting", static_cast<int64_t>(total_bytes >> 20), "MiB");
  uint64_t done = 0;
  for (const Parameter& parameter : parameters) {
    const StateKey key = model_key(parameter.spec.name, options.dcp_prefix);
    const dcp::Box whole{std::vector<int64_t>(parameter.spec.shape.size()), parameter.spec.shape};
    writer.add_tensor({key.name, parameter.spec.dtype, parameter.spec.shape}, whole, key.path,
                      [&](const dcp::RankWriter::Sink& sink) {
                        for (int64_t row = 0; row < parameter.rows;
                             row += parameter.rows_of_block()) {
                          if (interrupt_requested())
                            throw InterruptedError("interrupted; nothing was written");
                          const std::string_view bytes = stream.next();
                          sink(bytes);
                          progress.update(static_cast<int64_t>((done += bytes.size()) >> 20));
                        }
                      });
  }
  const StateKey version = root_key(kCheckpointVersionKey);
  writer.add_value(version.name, version.path, kCheckpointVersion);
  dcp::write_metadata(folder, writer.finish());
}

}  // namespace

ConvertSummary hf_to_dcp(const HfToDcpOptions& options, const DescribeModel& describe) {
  const HfFolder folder = HfFolder::open(options.hf_dir);
  const std::vector<Parameter> parameters = plan(folder, options.hf_prefix, describe(std::nullopt));
  ConvertSummary summary{checkpoint_folder(options.save_dir, std::nullopt), parameters.size(), 0};
  for (const Parameter& parameter : parameters) summary.bytes += spec_bytes(parameter.spec);
  require_empty(options.save_dir);
  require_space(options.save_dir, summary.bytes);
  try {
    begin_staging(summary.folder);
    write_checkpoint(staging_folder(summary.folder), parameters, options, summary.bytes);
    publish_staging(summary.folder);
    write_latest(options.save_dir, std::nullopt);
  } catch (...) {
    abandon_staging(summary.folder);
    throw;
  }
  return summary;
}

}  // namespace shardloom::checkpoint
