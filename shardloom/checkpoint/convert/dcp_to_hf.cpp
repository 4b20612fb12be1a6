#include "shardloom/checkpoint/convert/dcp_to_hf.h"

#include <algorithm>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/interrupt.h"
#include "shardloom/base/json.h"
#include "shardloom/base/log.h"
#include "shardloom/base/progress.h"
#include "shardloom/checkpoint/convert/cast.h"
#include "shardloom/checkpoint/convert/ordered_blocks.h"
#include "shardloom/checkpoint/dcp/reader.h"
#include "shardloom/checkpoint/hf_writer.h"
#include "shardloom/checkpoint/save_root.h"
#include "shardloom/checkpoint/state_names.h"

namespace shardloom::checkpoint {
namespace {

namespace fs = std::filesystem;

// A tensor of the HF folder and the box of the checkpoint's tensor that it is.
struct ExportTensor {
  TensorSpec spec;
  std::string from;  // name in the checkpoint
  DType stored = DType::kF32;
  dcp::Box box;
  bool transpose = false;

  int64_t rows() const { return spec.shape.empty() ? 1 : spec.shape[0]; }
  int64_t rows_of_block() const {
    const auto bytes =
        *tensor_bytes(stored, spec.shape) / static_cast<uint64_t>(std::max<int64_t>(1, rows()));
    return std::max<int64_t>(1, static_cast<int64_t>(kBlockBytes / std::max<uint64_t>(1, bytes)));
  }
};

struct Block {
  const ExportTensor* tensor;
  int64_t row;  // of the HF tensor
  int64_t rows;
};

std::vector<std::string> parameters_of(const std::vector<nn::WeightSource>& sources) {
  std::vector<std::string> names;
  for (const auto& source : sources) names.push_back(source.parameter);
  return names;
}

// Names and shapes of the parameters against the checkpoint's weights.
KeyProblems check_weights(const dcp::Metadata& metadata,
                          const std::vector<nn::WeightSource>& sources,
                          const std::string& prefix) {
  KeyProblems problems;
  std::set<std::string> wanted;
  for (const nn::WeightSource& source : sources) {
    const std::string name = model_key(source.parameter, prefix).name;
    wanted.insert(name);
    const auto found = metadata.tensors.find(name);
    const std::vector<int64_t> shape = parameter_shape(source);
    if (found == metadata.tensors.end()) {
      problems.missing.push_back(name);
    } else if (found->second.shape != shape) {
      problems.misshapen.push_back(fmt::format("{}: {}, the model needs {}", name,
                                               shape_text(found->second.shape), shape_text(shape)));
    }
  }
  const std::string weights = model_key("", "").name;
  for (const auto& entry : metadata.tensors) {
    if (entry.first.starts_with(weights) && !wanted.contains(entry.first)) {
      problems.unexpected.push_back(entry.first);
    }
  }
  return problems;
}

std::string find_prefix(const dcp::Reader& reader,
                        const std::vector<nn::WeightSource>& sources,
                        const std::optional<std::string>& wanted) {
  const auto& tensors = reader.metadata().tensors;
  const std::vector<std::string> names = parameters_of(sources);
  const std::string prefix = wanted ? *wanted : detect_prefix(reader.metadata(), names);
  const bool fits = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return tensors.contains(model_key(name, prefix).name);
  });
  if (fits) return prefix;
  const auto first = tensors.lower_bound(model_key("", "").name);
  throw CheckpointError("{}: no weight is named {}; the first name is {}.{}",
                        reader.folder().string(), model_key(names.at(0), prefix).name,
                        first == tensors.end() ? "missing" : first->first,
                        wanted ? " Leave --dcp_prefix out: the prefix is found without it." : "");
}

// The largest number of layers of which the checkpoint has every weight, and no other weights; the
// model with it.
std::optional<ConvertModel> find_cut(const dcp::Reader& reader,
                                     const DescribeModel& describe,
                                     nn::Layout layout,
                                     const std::string& prefix,
                                     size_t most) {
  for (int64_t layers = 1;; ++layers) {
    ConvertModel model = describe(layers);
    const auto sources = model.sources(layout);
    if (sources.size() >= most) return std::nullopt;
    const KeyProblems problems = check_weights(reader.metadata(), sources, prefix);
    if (!problems.missing.empty() || !problems.misshapen.empty()) return std::nullopt;
    if (problems.unexpected.empty()) return model;
  }
}

std::vector<ExportTensor> plan_tensors(const dcp::Reader& reader,
                                       const std::vector<nn::WeightSource>& sources,
                                       const std::string& dcp_prefix,
                                       const std::optional<DType>& dtype) {
  std::vector<ExportTensor> tensors;
  for (const nn::WeightSource& source : sources) {
    const std::string from = model_key(source.parameter, dcp_prefix).name;
    const DType stored = reader.tensor(from).dtype;
    for (const nn::WeightPiece& piece : source.pieces) {
      ExportTensor tensor{{piece.key, stored, piece.shape}, from, stored, {}, piece.transpose};
      if (dtype && is_weight_type(stored)) tensor.spec.dtype = *dtype;
      tensor.box = {std::vector<int64_t>(piece.shape.size()), piece.shape};
      if (piece.transpose) std::swap(tensor.box.sizes.at(0), tensor.box.sizes.at(1));
      if (!piece.shape.empty()) tensor.box.offsets[0] = piece.row;
      if (piece.shape.size() > 1) tensor.box.offsets[1] = piece.column;
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

// In the order in which the writer asks for them.
std::vector<Block> blocks_of(const std::vector<ExportTensor>& tensors,
                             const std::vector<std::vector<TensorSpec>>& shards) {
  std::map<std::string_view, const ExportTensor*> by_name;
  for (const ExportTensor& tensor : tensors) by_name[tensor.spec.name] = &tensor;
  std::vector<Block> blocks;
  for (const auto& shard : shards) {
    for (const TensorSpec& spec : shard) {
      const ExportTensor& tensor = *by_name.at(spec.name);
      if (spec_bytes(spec) == 0) continue;
      const int64_t step = tensor.rows_of_block();
      for (int64_t row = 0; row < tensor.rows(); row += step) {
        blocks.push_back({&tensor, row, std::min(step, tensor.rows() - row)});
      }
    }
  }
  return blocks;
}

void read_block(const dcp::Reader& reader, const Block& block, Buffer& buffer) {
  const ExportTensor& tensor = *block.tensor;
  dcp::Box box = tensor.box;
  std::vector<int64_t> strides;
  if (!box.sizes.empty()) {
    const size_t dim = tensor.transpose ? 1 : 0;
    box.offsets[dim] += block.row;
    box.sizes[dim] = block.rows;
    if (tensor.transpose) strides = {1, box.sizes[0]};
  }
  const uint64_t elements = dcp::volume(box.sizes);
  const auto read = [&](Buffer& into) {
    const uint64_t bytes = elements * dtype_bits(tensor.stored) / 8;
    reader.read_box(tensor.from, box, {into.reset(bytes), bytes, tensor.stored, strides});
  };
  if (tensor.spec.dtype == tensor.stored) return read(buffer);
  Buffer stored;
  read(stored);
  char* target = buffer.reset(elements * dtype_bits(tensor.spec.dtype) / 8);
  cast_elements(stored.view(), tensor.stored, target, tensor.spec.dtype);
}

const char* torch_dtype(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    case DType::kF64:
      return "float64";
    default:
      return "float32";
  }
}

// config.json as it must be; nothing: the original is right.
std::optional<std::string> changed_config(const DcpToHfOptions& options,
                                          const ConvertModel& model,
                                          const std::vector<ExportTensor>& tensors) {
  std::map<DType, uint64_t> bytes_of;
  for (const ExportTensor& tensor : tensors) bytes_of[tensor.spec.dtype] += spec_bytes(tensor.spec);
  const auto most = std::max_element(bytes_of.begin(), bytes_of.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  std::string text =
      model.config(torch_dtype(most->first), export_layout(options.layout, model.layout));
  const Json original = read_json_file(options.hf_dir / "config.json", ExitCode::kCheckpoint);
  if (Json::parse(text) == original) return std::nullopt;
  return text;
}

fs::path checkpoint_of(const fs::path& dcp_dir) {
  fs::path latest = latest_below(dcp_dir);
  if (latest != dcp_dir)
    log::info("the latest checkpoint of {} is {}", dcp_dir.string(), latest.filename().string());
  return latest;
}

// Everything that is known before the first byte is written.
struct Plan {
  ConvertModel model;
  std::vector<ExportTensor> tensors;
  std::optional<std::string> config;
};

Plan make_plan(const dcp::Reader& reader,
               const DcpToHfOptions& options,
               const DescribeModel& describe) {
  Plan plan{describe(std::nullopt), {}, {}};
  const auto sources_of = [&](nn::Layout layout) {
    return with_prefix(plan.model.sources(layout), options.hf_prefix);
  };
  const nn::Layout own = is_hf_folder(options.hf_dir)
                             ? choose_layout(HfFolder::open(options.hf_dir), sources_of)
                             : plan.model.layout;
  const nn::Layout layout = export_layout(options.layout, own);
  auto sources = sources_of(layout);
  const std::string prefix = find_prefix(reader, sources, options.dcp_prefix);
  log::info("{}: the names of the weights begin with \"{}\"", reader.folder().string(),
            model_key("", prefix).name);
  const KeyProblems problems = check_weights(reader.metadata(), sources, prefix);
  const std::string text = problems_text(reader.folder().string(), problems);
  if (!text.empty()) {
    auto cut = find_cut(reader, describe, layout, prefix, sources.size());
    if (!cut) throw CheckpointError(text);
    plan.model = *std::move(cut);
    sources = sources_of(layout);
    log::info("{} has fewer layers than {}; the config.json that is written says so",
              reader.folder().string(), (options.hf_dir / "config.json").string());
  }
  plan.tensors = plan_tensors(reader, sources, prefix, options.dtype);
  plan.config = changed_config(options, plan.model, plan.tensors);
  return plan;
}

}  // namespace

ConvertSummary dcp_to_hf(const DcpToHfOptions& options, const DescribeModel& describe) {
  const dcp::Reader reader(checkpoint_of(options.dcp_dir), {.verify_crc = true});
  const Plan plan = make_plan(reader, options, describe);
  ConvertSummary summary{options.save_dir, plan.tensors.size(), 0};
  std::vector<TensorSpec> specs;
  for (const ExportTensor& tensor : plan.tensors) {
    specs.push_back(tensor.spec);
    summary.bytes += spec_bytes(tensor.spec);
  }
  const nn::Layout layout = plan.model.layout;
  HfFolderWriter writer(
      options.save_dir, specs,
      {.max_shard_bytes = options.max_shard_bytes,
       .other_layout = nn::is_hf(export_layout(options.layout, layout)) != nn::is_hf(layout)});
  require_space(options.save_dir, summary.bytes);
  if (plan.config) writer.add_text_file("config.json", *plan.config);
  writer.copy_files_from(options.hf_dir);

  const auto blocks = blocks_of(plan.tensors, plan_shards(specs, options.max_shard_bytes));
  OrderedBlocks stream(blocks.size(), std::min(options.threads, kMaxConvertThreads),
                       [&](size_t i, Buffer& buffer) { read_block(reader, blocks[i], buffer); });
  ProgressBar progress("converting", static_cast<int64_t>(summary.bytes >> 20), "MiB");
  uint64_t done = 0;
  writer.write([&](const TensorSpec& spec, const HfFolderWriter::Sink& sink) {
    for (uint64_t left = spec_bytes(spec); left > 0;) {
      if (interrupt_requested()) throw InterruptedError("interrupted; nothing was written");
      const std::string_view bytes = stream.next();
      sink(bytes);
      left -= bytes.size();
      progress.update(static_cast<int64_t>((done += bytes.size()) >> 20));
    }
  });
  return summary;
}

}  // namespace shardloom::checkpoint
