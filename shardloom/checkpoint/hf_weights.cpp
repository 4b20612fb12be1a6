#include "shardloom/checkpoint/hf_weights.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <set>

#include "shardloom/base/error.h"
#include "shardloom/base/log.h"
#include "shardloom/base/progress.h"
#include "shardloom/base/strings.h"
#include "shardloom/checkpoint/hf_writer.h"

namespace shardloom::checkpoint {
namespace {

constexpr size_t kListed = 20;  // names printed of a long list

std::string listed(const std::vector<std::string>& names) {
  std::vector<std::string> shown(
      names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), kListed)));
  std::string text = join(shown, "\n    ");
  if (names.size() > kListed) text += fmt::format("\n    ... and {} more", names.size() - kListed);
  return text;
}

size_t count_present(const HfFolder& folder, const std::vector<nn::WeightSource>& sources) {
  size_t present = 0;
  for (const auto& source : sources) {
    for (const auto& piece : source.pieces) present += folder.find(piece.key) != nullptr ? 1 : 0;
  }
  return present;
}

std::vector<nn::WeightSource> choose_layout(const HfFolder& folder,
                                            const SourcesOfLayout& sources_of) {
  std::vector<nn::WeightSource> best;
  size_t best_count = 0;
  for (const nn::Layout layout : nn::kAllLayouts) {
    auto sources = sources_of(layout);
    const size_t count = count_present(folder, sources);
    if (best.empty() || count > best_count) {
      best = std::move(sources);
      best_count = count;
    }
  }
  return best;
}

// What usually lies behind a list of unexpected names.
std::string hint(const std::vector<std::string>& unexpected) {
  for (const std::string& name : unexpected) {
    if (name.find("lora_") != std::string::npos || name.find("base_layer") != std::string::npos) {
      return "\n  These are LoRA weights: merge them into the base weights first.";
    }
    if (name.rfind("module.", 0) == 0)
      return "\n  The names carry a \"module.\" prefix: save the unwrapped model.";
  }
  return {};
}

struct KeyProblems {
  std::vector<std::string> missing, unexpected, misshapen;
};

KeyProblems check_keys(const HfFolder& folder,
                       const std::vector<nn::WeightSource>& sources,
                       const std::function<bool(const std::string&)>& may_ignore) {
  KeyProblems problems;
  std::set<std::string> wanted;
  for (const auto& source : sources) {
    for (const auto& piece : source.pieces) {
      wanted.insert(piece.key);
      const TensorLocation* found = folder.find(piece.key);
      if (found == nullptr) {
        problems.missing.push_back(piece.key);
      } else if (found->info->shape != piece.shape) {
        problems.misshapen.push_back(fmt::format(
            "{}: {} in {}, the model needs {}", piece.key, shape_text(found->info->shape),
            found->file->path().filename().string(), shape_text(piece.shape)));
      } else {
        scalar_type(found->info->dtype, found->file->path().string() + ": " + piece.key);
      }
    }
  }
  for (const auto& [name, location] : folder.tensors()) {
    if (!wanted.contains(name) && !(may_ignore && may_ignore(name)))
      problems.unexpected.push_back(name);
  }
  return problems;
}

void report(const HfFolder& folder, const KeyProblems& problems, bool strict) {
  std::string text;
  auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty())
      text += fmt::format("\n  {} {}:\n    {}", names.size(), what, listed(names));
  };
  add("missing (the model needs them)", problems.missing);
  add("unexpected (the model has no place for them)", problems.unexpected);
  add("of another shape", problems.misshapen);
  if (text.empty()) return;
  text = fmt::format("{}: the weights do not fit the model{}{}", folder.path().string(), text,
                     hint(problems.unexpected));
  // A tensor of another shape cannot be loaded whatever the user asks for.
  if (strict || !problems.misshapen.empty()) {
    throw CheckpointError("{}\n  training.load_strict: false loads what fits.", text);
  }
  log::warn("{}", text);
}

at::Tensor file_tensor(const TensorLocation& location) {
  const std::string_view bytes = location.data();
  const at::ScalarType type = scalar_type(location.info->dtype, location.info->name);
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  if (address % c10::elementSize(type) == 0) {
    return at::from_blob(const_cast<char*>(bytes.data()), location.info->shape,
                         at::TensorOptions().dtype(type));
  }
  at::Tensor copy = at::empty(location.info->shape, at::TensorOptions().dtype(type));
  std::memcpy(copy.mutable_data_ptr(), bytes.data(), bytes.size());
  return copy;
}

// The part of a parameter that a piece fills, in the orientation of the file.
at::Tensor block_of(const at::Tensor& parameter, const nn::WeightPiece& piece, bool whole) {
  if (whole) return parameter;
  if (piece.shape.size() == 1) return parameter.narrow(0, piece.row, piece.shape[0]);
  const int64_t rows = piece.transpose ? piece.shape[1] : piece.shape[0];
  const int64_t columns = piece.transpose ? piece.shape[0] : piece.shape[1];
  const at::Tensor block = parameter.narrow(0, piece.row, rows).narrow(1, piece.column, columns);
  return piece.transpose ? block.t() : block;
}

std::map<std::string, at::Tensor> by_name(const std::vector<nn::NamedTensor>& parameters) {
  std::map<std::string, at::Tensor> map;
  for (const auto& [name, tensor] : parameters) map.emplace(name, tensor->detach());
  return map;
}

// The tensors of the file and where their values come from.
struct ExportPiece {
  at::Tensor parameter;
  nn::WeightPiece piece;
  bool whole;
};

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

void load_hf_weights(const HfFolder& folder,
                     const SourcesOfLayout& sources_of,
                     const std::vector<nn::NamedTensor>& parameters,
                     const HfLoadOptions& options) {
  for (const std::string& warning : folder.warnings()) log::warn("{}", warning);
  const auto sources = choose_layout(folder, sources_of);
  report(folder, check_keys(folder, sources, options.may_ignore), options.strict);

  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto targets = by_name(parameters);
  ProgressBar progress("loading weights", static_cast<int64_t>(sources.size()), "tensors",
                       options.show_progress);
  int64_t done = 0;
  for (const auto& source : sources) {
    const auto target = targets.find(source.parameter);
    SHARDLOOM_CHECK(target != targets.end(), "no parameter {}", source.parameter);
    for (const auto& piece : source.pieces) {
      const TensorLocation* location = folder.find(piece.key);
      if (location == nullptr) continue;  // reported above
      block_of(target->second, piece, source.is_whole()).copy_(file_tensor(*location));
      location->drop_pages();
    }
    progress.update(++done);
  }
}

void export_hf_weights(const std::filesystem::path& folder,
                       const std::vector<nn::WeightSource>& sources,
                       const std::vector<nn::NamedTensor>& parameters,
                       const HfExportOptions& options) {
  const auto values = by_name(parameters);
  std::vector<TensorSpec> specs;
  std::map<std::string, ExportPiece> pieces;
  for (const auto& source : sources) {
    for (const auto& piece : source.pieces) {
      specs.push_back({piece.key, options.dtype, piece.shape});
      pieces.emplace(piece.key, ExportPiece{values.at(source.parameter), piece, source.is_whole()});
    }
  }
  HfWriteOptions write_options;
  write_options.replace = options.replace;
  HfFolderWriter writer(folder, std::move(specs), write_options);
  writer.add_text_file("config.json", options.config_json);
  if (!options.copy_files_from.empty()) writer.copy_files_from(options.copy_files_from);
  writer.write([&](const TensorSpec& spec, const HfFolderWriter::Sink& sink) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const ExportPiece& from = pieces.at(spec.name);
    const at::Tensor value =
        block_of(from.parameter, from.piece, from.whole)
            .to(at::TensorOptions().device(at::kCPU).dtype(scalar_type(spec.dtype, spec.name)))
            .contiguous();
    sink({static_cast<const char*>(value.const_data_ptr()), value.nbytes()});
  });
}

}  // namespace shardloom::checkpoint
