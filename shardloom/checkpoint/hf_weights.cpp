#include "shardloom/checkpoint/hf_weights.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

#include "shardloom/base/error.h"
#include "shardloom/base/log.h"
#include "shardloom/base/progress.h"
#include "shardloom/checkpoint/hf_writer.h"

namespace shardloom::checkpoint {
namespace {

constexpr int64_t kAllColumns = -1;
constexpr int64_t kGatheredElements = 16 << 20;  // of one block of rows in an export

// Every type is one that a parameter can be filled from.
void check_types(const HfFolder& folder, const std::vector<nn::WeightSource>& sources) {
  for (const auto& source : sources) {
    for (const auto& piece : source.pieces) {
      const TensorLocation* found = folder.find(piece.key);
      if (found == nullptr) continue;
      scalar_type(found->info->dtype, found->file->path().string() + ": " + piece.key);
    }
  }
}

// Rows [first, first + count) of the file's tensor (a scalar is one row); no other bytes are read.
at::Tensor file_rows(const TensorLocation& location, int64_t first, int64_t count) {
  const at::ScalarType type = scalar_type(location.info->dtype, location.info->name);
  std::vector<int64_t> shape = location.info->shape;
  std::string_view bytes = location.data();
  if (!shape.empty()) {
    const size_t row_bytes = bytes.size() / static_cast<size_t>(shape[0]);
    bytes = bytes.substr(first * row_bytes, count * row_bytes);
    shape[0] = count;
  }
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  if (address % c10::elementSize(type) == 0) {
    return at::from_blob(const_cast<char*>(bytes.data()), shape, at::TensorOptions().dtype(type));
  }
  at::Tensor copy = at::empty(shape, at::TensorOptions().dtype(type));
  std::memcpy(copy.mutable_data_ptr(), bytes.data(), bytes.size());
  return copy;
}

// The part of a parameter that a piece fills: rows, and in matrices that it fills in part, columns.
struct Block {
  int64_t row = 0;
  int64_t rows = 0;
  int64_t column = 0;
  int64_t columns = kAllColumns;

  // These columns of some rows of the parameter.
  at::Tensor columns_of(const at::Tensor& some_rows) const {
    return columns == kAllColumns ? some_rows : some_rows.narrow(1, column, columns);
  }
};

Block block_of(const distributed::ShardedTensor& parameter,
               const nn::WeightPiece& piece,
               bool whole) {
  Block block;
  if (whole) {
    const bool scalar = piece.shape.empty() && parameter.shape == std::vector<int64_t>{1};
    SHARDLOOM_CHECK(scalar || piece.shape == parameter.shape, "{} is {}, {} {}", parameter.name,
                    shape_text(parameter.shape), piece.key, shape_text(piece.shape));
    block.rows = parameter.shape[0];
    return block;
  }
  block.row = piece.row;
  block.rows = piece.shape.at(piece.transpose ? 1 : 0);
  if (piece.shape.size() > 1) {
    block.column = piece.column;
    block.columns = piece.shape.at(piece.transpose ? 0 : 1);
  }
  SHARDLOOM_CHECK(
      block.row + block.rows <= parameter.shape[0] &&
          (block.columns == kAllColumns || block.column + block.columns <= parameter.shape.at(1)),
      "{} reaches out of {} {}", piece.key, parameter.name, shape_text(parameter.shape));
  return block;
}

void load_piece(const TensorLocation& location,
                const nn::WeightPiece& piece,
                const Block& block,
                const distributed::ShardedTensor& target) {
  const int64_t first = std::max(block.row, target.first_row);
  const int64_t end = std::min(block.row + block.rows, target.first_row + target.local.size(0));
  if (first >= end) return;
  const at::Tensor local =
      block.columns_of(target.local.narrow(0, first - target.first_row, end - first));
  const int64_t skipped = first - block.row, count = end - first;
  if (piece.transpose) {
    local.copy_(file_rows(location, 0, piece.shape[0]).narrow(1, skipped, count).t());
  } else {
    local.copy_(file_rows(location, skipped, count));
  }
  location.drop_pages();
}

// A scalar is a vector of one row here.
std::map<std::string, distributed::ShardedTensor> by_name(
    const std::vector<distributed::ShardedTensor>& parameters) {
  std::map<std::string, distributed::ShardedTensor> map;
  for (distributed::ShardedTensor tensor : parameters) {
    tensor.local = tensor.local.detach();
    if (tensor.shape.empty()) {
      tensor.shape = {1};
      tensor.local = tensor.local.view({1});
    }
    map.emplace(tensor.name, std::move(tensor));
  }
  return map;
}

// A tensor of the file and where its values come from.
struct ExportPiece {
  distributed::ShardedTensor parameter;
  nn::WeightPiece piece;
  Block block;
};

// Collective over the parameter's group: the piece in its file's orientation, in blocks of rows.
void gather_piece(const ExportPiece& from, const std::function<void(const at::Tensor&)>& take) {
  const auto& [parameter, piece, block] = from;
  distributed::ShardedTensor columns = parameter;
  columns.local = block.columns_of(parameter.local);
  if (block.columns != kAllColumns) columns.shape[1] = block.columns;
  const int64_t row_numel = c10::multiply_integers(columns.shape.begin() + 1, columns.shape.end());
  int64_t step = block.rows;  // a transposed piece comes in one block
  if (!piece.transpose)
    step = std::max<int64_t>(1, kGatheredElements / std::max<int64_t>(1, row_numel));
  for (int64_t row = 0; row < block.rows; row += step) {
    const at::Tensor rows =
        distributed::gather_rows(columns, block.row + row, std::min(step, block.rows - row));
    take(piece.transpose ? rows.t() : rows);
  }
}

struct ExportPlan {
  std::vector<TensorSpec> specs;
  std::map<std::string, ExportPiece> pieces;  // by key
};

ExportPlan plan_export(const std::vector<nn::WeightSource>& sources,
                       const std::vector<distributed::ShardedTensor>& parameters,
                       DType dtype) {
  const auto values = by_name(parameters);
  ExportPlan plan;
  for (const auto& source : sources) {
    const auto found = values.find(source.parameter);
    SHARDLOOM_CHECK(found != values.end(), "no parameter {}", source.parameter);
    for (const auto& piece : source.pieces) {
      plan.specs.push_back({piece.key, dtype, piece.shape});
      plan.pieces.emplace(
          piece.key,
          ExportPiece{found->second, piece, block_of(found->second, piece, source.is_whole())});
    }
  }
  return plan;
}

// The other ranks' side of write_export: the same tensors in the same order.
void help_export(const ExportPlan& plan, const HfWriteOptions& options) {
  for (const auto& shard : plan_shards(plan.specs, options.max_shard_bytes)) {
    for (const TensorSpec& spec : shard)
      gather_piece(plan.pieces.at(spec.name), [](const auto&) {});
  }
}

void write_export(const std::filesystem::path& folder,
                  const ExportPlan& plan,
                  const HfWriteOptions& write_options,
                  const HfExportOptions& options) {
  HfFolderWriter writer(folder, plan.specs, write_options);
  writer.add_text_file("config.json", options.config_json);
  if (!options.copy_files_from.empty()) writer.copy_files_from(options.copy_files_from);
  writer.write([&](const TensorSpec& spec, const HfFolderWriter::Sink& sink) {
    const auto to_file =
        at::TensorOptions().device(at::kCPU).dtype(scalar_type(spec.dtype, spec.name));
    gather_piece(plan.pieces.at(spec.name), [&](const at::Tensor& rows) {
      const at::Tensor value = rows.to(to_file).contiguous();
      sink({static_cast<const char*>(value.const_data_ptr()), value.nbytes()});
    });
  });
}

}  // namespace

at::ScalarType scalar_type(DType dtype, const std::string& place) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF16:
      return at::kHalf;
    case DType::kF64:
      return at::kDouble;
    default:
      throw CheckpointError("{} has type {}; weights must be F32, BF16, F16 or F64", place,
                            dtype_name(dtype));
  }
}

void report_key_problems(const std::string& place,
                         const KeyProblems& problems,
                         bool strict,
                         bool verbose) {
  const std::string text = problems_text(place, problems);
  if (text.empty()) return;
  if (problems.missing.size() == problems.wanted) {
    throw CheckpointError(
        "{}\n  Not one of the names fits: these are weights of another model, or their names carry "
        "a prefix.",
        text);
  }
  // A tensor of another shape cannot be loaded whatever the user asks for.
  if (strict || !problems.misshapen.empty())
    throw CheckpointError("{}\n  training.load_strict: false loads what fits.", text);
  if (verbose) log::warn("{}", text);
}

std::vector<distributed::ShardedTensor> whole_tensors(
    const std::vector<nn::NamedTensor>& parameters) {
  std::vector<distributed::ShardedTensor> tensors;
  for (const auto& [name, tensor] : parameters)
    tensors.push_back(distributed::ShardedTensor::whole(name, *tensor));
  return tensors;
}

void load_hf_weights(const HfFolder& folder,
                     const SourcesOfLayout& sources_of,
                     const std::vector<distributed::ShardedTensor>& parameters,
                     const HfLoadOptions& options) {
  if (options.verbose) {
    for (const std::string& warning : folder.warnings()) log::warn("{}", warning);
  }
  const auto sources = sources_of(choose_layout(folder, sources_of));
  report_key_problems(folder.path().string(), check_keys(folder, sources, options.may_ignore),
                      options.strict, options.verbose);
  check_types(folder, sources);

  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto targets = by_name(parameters);
  ProgressBar progress("loading weights", static_cast<int64_t>(sources.size()), "tensors",
                       options.verbose);
  int64_t done = 0;
  for (const auto& source : sources) {
    const auto target = targets.find(source.parameter);
    SHARDLOOM_CHECK(target != targets.end(), "no parameter {}", source.parameter);
    for (const auto& piece : source.pieces) {
      const Block block = block_of(target->second, piece, source.is_whole());
      const TensorLocation* location = folder.find(piece.key);
      if (location != nullptr) load_piece(*location, piece, block, target->second);
    }
    progress.update(++done);
  }
}

void export_hf_weights(const std::filesystem::path& folder,
                       const std::vector<nn::WeightSource>& sources,
                       const std::vector<distributed::ShardedTensor>& parameters,
                       const HfExportOptions& options) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const ExportPlan plan = plan_export(sources, parameters, options.dtype);
  HfWriteOptions write_options;
  write_options.replace = options.replace;
  write_options.other_layout = options.other_layout;
  if (!options.group || options.group->rank() == 0) {
    write_export(folder, plan, write_options, options);
  } else {
    help_export(plan, write_options);
  }
  if (options.group) options.group->barrier("export of weights");
}

}  // namespace shardloom::checkpoint
