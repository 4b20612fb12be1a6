#include "shardloom/checkpoint/checkpoint_reader.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "shardloom/base/error.h"
#include "shardloom/base/log.h"
#include "shardloom/checkpoint/hf_weights.h"
#include "shardloom/checkpoint/state_names.h"

namespace shardloom::checkpoint {
namespace {

// One after the other of [0, count) in each thread. The first error ends all.
void for_each_in_threads(size_t count, const std::function<void(size_t)>& action) {
  std::atomic<size_t> next = 0;
  std::exception_ptr error;
  std::mutex mutex;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        action(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    const size_t threads = std::min<size_t>(count, static_cast<size_t>(at::get_num_threads()));
    for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

void read_one(const dcp::Reader& reader, const WantedTensor& wanted) {
  const dcp::TensorEntry& entry = reader.tensor(wanted.name);
  const at::Tensor& local = wanted.target.local;
  if (local.numel() == 0) return;
  const at::ScalarType type = scalar_type_of_state(entry.dtype);
  const bool direct = local.scalar_type() == type && local.is_cpu() && local.is_contiguous();
  const at::Tensor rows =
      direct ? local : at::empty(local.sizes(), at::TensorOptions().dtype(type));
  reader.read_box(wanted.name, rows_box(wanted.target),
                  {static_cast<char*>(rows.mutable_data_ptr()), rows.nbytes(), entry.dtype, {}});
  if (!direct) local.copy_(rows);
}

}  // namespace

dcp::Box rows_box(const distributed::ShardedTensor& tensor) {
  dcp::Box box{std::vector<int64_t>(tensor.shape.size()), tensor.local.sizes().vec()};
  if (!box.offsets.empty()) box.offsets[0] = tensor.first_row;
  return box;
}

at::ScalarType scalar_type_of_state(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return at::kByte;
    case DType::kI64:
      return at::kLong;
    default:
      return scalar_type(dtype, "the state");
  }
}

DType dtype_of_state(at::ScalarType type) {
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kU8, DType::kI64}) {
    if (scalar_type_of_state(dtype) == type) return dtype;
  }
  throw InternalError("a state of type {} cannot be saved", c10::toString(type));
}

KeyProblems check_wanted(const dcp::Reader& reader, const std::vector<WantedTensor>& wanted) {
  KeyProblems problems;
  problems.wanted = wanted.size();
  const auto& tensors = reader.metadata().tensors;
  for (const WantedTensor& w : wanted) {
    const auto found = tensors.find(w.name);
    if (found == tensors.end()) {
      problems.missing.push_back(w.name);
    } else if (found->second.shape != w.target.shape) {
      problems.misshapen.push_back(fmt::format("{}: {} in the checkpoint, {} is wanted", w.name,
                                               shape_text(found->second.shape),
                                               shape_text(w.target.shape)));
    } else if (w.target.local.is_floating_point()) {
      scalar_type(found->second.dtype, reader.folder().string() + ": " + w.name);
    }
  }
  return problems;
}

void read_wanted(const dcp::Reader& reader, const std::vector<WantedTensor>& wanted) {
  std::vector<const WantedTensor*> present;
  for (const WantedTensor& w : wanted) {
    if (reader.metadata().tensors.contains(w.name)) present.push_back(&w);
  }
  for_each_in_threads(present.size(), [&](size_t i) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    read_one(reader, *present[i]);
  });
}

void load_dcp_weights(const dcp::Reader& reader,
                      const std::vector<distributed::ShardedTensor>& parameters,
                      const DcpLoadOptions& options) {
  std::vector<std::string> names;
  for (const auto& p : parameters) names.push_back(p.name);
  const std::string prefix = detect_prefix(reader.metadata(), names);
  std::vector<WantedTensor> wanted;
  std::set<std::string> known;
  for (const auto& p : parameters) {
    wanted.push_back({model_key(p.name, prefix).name, p});
    known.insert(wanted.back().name);
  }
  KeyProblems problems = check_wanted(reader, wanted);
  const std::string begin = model_key("", prefix).name;
  const std::string root = model_key("").name;
  for (const auto& [name, entry] : reader.metadata().tensors) {
    if (!name.starts_with(root) || known.contains(name)) continue;
    const bool ignored = name.starts_with(begin) && options.may_ignore &&
                         options.may_ignore(name.substr(begin.size()));
    if (!ignored) problems.unexpected.push_back(name);
  }
  report_key_problems(reader.folder().string(), problems, options.strict, options.verbose);
  if (options.verbose) {
    log::info("weights: {} ({} tensors named {}<parameter>)", reader.folder().string(),
              wanted.size() - problems.missing.size(), begin);
  }
  read_wanted(reader, wanted);
}

}  // namespace shardloom::checkpoint
