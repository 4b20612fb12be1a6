#include "shardloom/parallel/context_parallel.h"

#include <map>

#include "shardloom/base/error.h"
#include "shardloom/base/split_evenly.h"
#include "shardloom/distributed/autograd_collectives.h"
#include "shardloom/nn/module_names.h"

namespace shardloom::parallel {
namespace {

using distributed::Group;

// A module that cuts its input and joins its output sees the whole length only at the input.
class SequenceSplit : public nn::CallWrapper {
 public:
  SequenceSplit(std::string name, std::shared_ptr<Group> group, bool split, bool gather)
      : label_("context parallel " + name),
        group_(std::move(group)),
        split_(split),
        gather_(gather) {}

  void around(const std::shared_ptr<nn::Call>& call, const std::function<void()>& inner) override {
    at::Tensor* input = call->inputs().at(0);
    const std::vector<int64_t> parts = split_evenly(input->size(1), group_->size());
    if (split_) *input = own_part(*input, 1, *group_);
    inner();
    if (!gather_) return;
    at::Tensor* output = call->outputs().at(0);
    *output = distributed::gather_along(*output, 1, parts, group_, label_);
  }

 private:
  std::string label_;
  std::shared_ptr<Group> group_;
  bool split_, gather_;
};

// Heads and sequence change places: [B, own S, all heads, d] <-> [B, all S, own heads, d].
class HeadExchange {
 public:
  HeadExchange(std::shared_ptr<Group> group, std::string label, std::vector<int64_t> parts)
      : group_(std::move(group)), label_(std::move(label)), parts_(std::move(parts)) {}

  at::Tensor to_heads(const at::Tensor& x_BShd) const {
    const int64_t W = group_->size(), B = x_BShd.size(0), S = x_BShd.size(1), d = x_BShd.size(3);
    const int64_t h = x_BShd.size(2) / W;
    // Rows are single values: rank r gets the heads of its number for all of my positions.
    const at::Tensor sent =
        x_BShd.reshape({B, S, W, h, d}).permute({2, 0, 1, 3, 4}).reshape({W * B * S * h * d});
    std::vector<int64_t> from;
    for (const int64_t part : parts_) from.push_back(B * part * h * d);
    const at::Tensor received = distributed::all_to_all_rows(
        sent, from, std::vector<int64_t>(static_cast<size_t>(W), B * S * h * d), group_, label_);
    std::vector<at::Tensor> pieces;
    int64_t first = 0;
    for (size_t r = 0; r < parts_.size(); ++r) {
      pieces.push_back(received.narrow(0, first, from[r]).view({B, parts_[r], h, d}));
      first += from[r];
    }
    return at::cat(pieces, 1);
  }

  at::Tensor to_sequence(const at::Tensor& x_BShd) const {
    const int64_t W = group_->size(), B = x_BShd.size(0), h = x_BShd.size(2), d = x_BShd.size(3);
    const int64_t own = parts_[static_cast<size_t>(group_->rank())];
    std::vector<at::Tensor> pieces;
    std::vector<int64_t> to;
    int64_t first = 0;
    for (const int64_t part : parts_) {
      pieces.push_back(x_BShd.narrow(1, first, part).reshape({B * part * h * d}));
      to.push_back(B * part * h * d);
      first += part;
    }
    const at::Tensor received = distributed::all_to_all_rows(
        at::cat(pieces), std::vector<int64_t>(static_cast<size_t>(W), B * own * h * d), to, group_,
        label_);
    return received.view({W, B, own, h, d}).permute({1, 2, 0, 3, 4}).reshape({B, own, W * h, d});
  }

 private:
  std::shared_ptr<Group> group_;
  std::string label_;
  std::vector<int64_t> parts_;
};

class HeadParallelAttention : public nn::CallWrapper {
 public:
  HeadParallelAttention(std::string name, std::shared_ptr<Group> group)
      : name_(std::move(name)), group_(std::move(group)) {}

  void around(const std::shared_ptr<nn::Call>& call, const std::function<void()>& inner) override {
    const std::vector<at::Tensor*> qkv = call->inputs();
    const HeadExchange exchange(group_, "context parallel " + name_,
                                parts_of_all_ranks(qkv.at(0)->size(1)));
    check_heads(qkv[0]->size(2), qkv[1]->size(2));
    *qkv[0] = exchange.to_heads(*qkv[0]);
    for (const size_t i : {size_t{1}, size_t{2}}) *qkv[i] = exchange.to_heads(repeat(*qkv[i]));
    inner();
    at::Tensor* output = call->outputs().at(0);
    *output = exchange.to_sequence(*output);
  }

 private:
  // Fewer key/value heads than ranks: each is copied, and autograd sums the copies' gradients.
  at::Tensor repeat(const at::Tensor& x_BSgd) const {
    const int64_t ranks = group_->size();
    return x_BSgd.size(2) >= ranks ? x_BSgd : x_BSgd.repeat_interleave(ranks / x_BSgd.size(2), 2);
  }

  void check_heads(int64_t heads, int64_t kv_heads) const {
    const int64_t ranks = group_->size();
    if (heads % ranks == 0 && (kv_heads % ranks == 0 || ranks % kv_heads == 0)) return;
    throw ConfigError(
        "{}: {} heads and {} key/value heads do not divide among {} context-parallel ranks", name_,
        heads, kv_heads, ranks);
  }

  // The whole length, from the parts that the ranks hold: they were cut by split_evenly().
  std::vector<int64_t> parts_of_all_ranks(int64_t own) const {
    const at::Tensor lengths = at::empty({group_->size()}, at::kLong);
    group_->all_gather(lengths, at::full({1}, own, at::kLong), name_ + " lengths").wait();
    const auto* values = lengths.const_data_ptr<int64_t>();
    return std::vector<int64_t>(values, values + group_->size());
  }

  std::string name_;
  std::shared_ptr<Group> group_;
};

}  // namespace

at::Tensor own_part(const at::Tensor& whole, int64_t dim, const Group& group) {
  const std::vector<int64_t> parts = split_evenly(whole.size(dim), group.size());
  int64_t first = 0;
  for (int r = 0; r < group.rank(); ++r) first += parts[static_cast<size_t>(r)];
  return whole.narrow(dim, first, parts[static_cast<size_t>(group.rank())]);
}

void context_parallel(nn::Module& root,
                      const ContextParallelSeams& seams,
                      const std::shared_ptr<Group>& group) {
  if (group->size() == 1) return;
  const nn::ModulesByName modules(root);
  const auto find = [&](const std::string& name) -> nn::Module& {
    return modules.get(name, "context parallelism");
  };
  std::map<std::string, std::pair<bool, bool>> cuts;
  for (const std::string& name : seams.split_inputs) cuts[name].first = true;
  for (const std::string& name : seams.gather_outputs) cuts[name].second = true;
  for (const auto& [name, cut] : cuts)
    find(name).add_wrapper(std::make_shared<SequenceSplit>(name, group, cut.first, cut.second));
  for (const std::string& name : seams.attention)
    find(name).add_wrapper(std::make_shared<HeadParallelAttention>(name, group));
}

}  // namespace shardloom::parallel
