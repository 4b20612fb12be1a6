#include "tests/parallel/nets.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "shardloom/base/error.h"

namespace shardloom::parallel::testing {
namespace {

const at::TensorOptions kFloats = at::TensorOptions().dtype(at::kFloat);

void compare(nn::Module& sharded, const Tensors& whole, double tolerance, bool gradients) {
  size_t compared = 0;
  for (const ShardedParameter& p : sharded_parameters(sharded)) {
    const auto expected = whole.find(p.tensor.name);
    const at::Tensor actual = gradients ? p.parameter.grad() : p.tensor.local;
    ASSERT_EQ(actual.defined(), expected != whole.end()) << p.tensor.name;
    if (!actual.defined()) continue;
    const at::Tensor rows = expected->second.narrow(0, p.tensor.first_row, p.tensor.local.size(0));
    ++compared;
    if (tolerance == 0) {
      EXPECT_TRUE(same_bits(actual, rows))
          << p.tensor.name << " differs by "
          << (rows.numel() ? (actual - rows).abs().max().item<double>() : 0.0);
    } else if (rows.numel() > 0) {
      EXPECT_LE((actual - rows).abs().max().item<double>(), tolerance) << p.tensor.name;
    }
  }
  EXPECT_EQ(compared, whole.size());
}

}  // namespace

Block::Block(int64_t dim, int64_t hidden)
    : norm(dim, 1e-6, kFloats), up(dim, hidden, true, kFloats), down(hidden, dim, true, kFloats) {
  register_module("norm", norm);
  register_module("up", up);
  register_module("down", down);
}

at::Tensor Block::forward(const at::Tensor& x) { return x + down(at::gelu(up(norm(x)))); }

Net::Net(const NetSizes& n) : embed(n.vocab, n.dim, kFloats), head(n.dim, n.vocab, false, kFloats) {
  for (int64_t i = 0; i < n.blocks; ++i) blocks.emplace_back(n.dim, n.hidden);
  register_module("embed", embed);
  register_module("blocks", blocks);
  register_module("head", head);
  fill_parameters(*this);
}

at::Tensor Net::forward(const at::Tensor& ids) {
  at::Tensor x = embed(ids);
  for (auto& block : blocks) x = (*block)(x);
  return head(x);
}

Tower::Tower(int64_t num_blocks, int64_t dim, int64_t hidden) : head(dim, dim, true, kFloats) {
  for (int64_t i = 0; i < num_blocks; ++i) blocks.emplace_back(dim, hidden);
  register_module("blocks", blocks);
  register_module("head", head);
  fill_parameters(*this);
}

at::Tensor Tower::forward(const at::Tensor& given) {
  at::Tensor x = given;
  for (auto& block : blocks) x = (*block)(x);
  return head(x);
}

Weights::Weights(const std::vector<at::Tensor>& values) : w(values.begin(), values.end()) {
  for (size_t i = 0; i < w.size(); ++i) register_parameter(fmt::format("w{}", i), w[i]);
}

at::Tensor Weights::forward(const at::Tensor& x) {
  at::Tensor sum = at::zeros({}, x.options());
  for (const at::Tensor& one : w) {
    if (at::isFloatingType(one.scalar_type())) sum = sum + one.to(x.scalar_type()).pow(2).sum();
  }
  return x * sum;
}

void fill_parameters(nn::Module& module, uint64_t seed) {
  const at::NoGradGuard no_grad;
  at::manual_seed(seed);
  for (const auto& p : unique_parameters(module)) {
    p.tensor->normal_(0, 0.3);
    p.tensor->requires_grad_();
  }
}

std::shared_ptr<World> world_of(const RankContext& rank, BackendKind backend) {
  static int made = 0;  // each world of a test needs names of its own in the store
  const auto store = c10::make_intrusive<c10d::PrefixStore>(std::to_string(made++), rank.store);
  return World::over(store, rank.rank, rank.size, backend, std::chrono::seconds(60));
}

std::shared_ptr<const DeviceMesh> mesh_of(const RankContext& rank, BackendKind backend) {
  return std::make_shared<const DeviceMesh>(
      *world_of(rank, backend), std::vector<std::pair<std::string, int>>{{"dp_shard", rank.size}});
}

std::shared_ptr<const DeviceMesh> hsdp_mesh_of(const RankContext& rank, int replicas) {
  return std::make_shared<const DeviceMesh>(
      *world_of(rank), std::vector<std::pair<std::string, int>>{
                           {"dp_replicate", replicas}, {"dp_shard", rank.size / replicas}});
}

at::Tensor ids_of(int rank, int step, const NetSizes& sizes) {
  return (at::arange(10, at::kLong) * 7 + rank * 31 + step * 17)
      .remainder(sizes.vocab)
      .view({2, 5});
}

at::Tensor inputs_of(int rank, int step, int64_t dim) {
  return (at::arange(4 * dim, at::kFloat) * 0.37 + rank * 1.7 + step * 0.9).sin().view({4, dim});
}

at::Tensor loss_of(Net& net, const at::Tensor& ids) {
  return at::cross_entropy_loss(net(ids).flatten(0, 1).to(at::kFloat), ids.roll(1, 1).flatten());
}

at::Tensor loss_of(Tower& net, const at::Tensor& inputs) {
  return net(inputs).to(at::kFloat).pow(2).mean();
}

at::Tensor loss_of(Weights& net, const at::Tensor& inputs) {
  return net(inputs).to(at::kFloat).pow(2).mean();
}

std::vector<nn::NamedTensor> unique_parameters(const nn::Module& module) {
  std::vector<nn::NamedTensor> unique;
  for (const auto& p : module.named_parameters()) {
    const bool tied = std::any_of(unique.begin(), unique.end(), [&](const auto& other) {
      return other.tensor->is_same(*p.tensor);
    });
    if (!tied) unique.push_back(p);
  }
  return unique;
}

Tensors gradients(nn::Module& module) {
  Tensors out;
  for (const auto& p : unique_parameters(module)) {
    if (p.tensor->grad().defined()) out.emplace(p.name, p.tensor->grad());
  }
  return out;
}

Tensors values(nn::Module& module) {
  Tensors out;
  for (const auto& p : unique_parameters(module)) out.emplace(p.name, p.tensor->detach());
  return out;
}

void expect_gradients(nn::Module& sharded, const Tensors& whole, double tolerance) {
  compare(sharded, whole, tolerance, /*gradients=*/true);
}

void expect_values(nn::Module& sharded, const Tensors& whole, double tolerance) {
  compare(sharded, whole, tolerance, /*gradients=*/false);
}

void step_whole(nn::Module& module, double lr) {
  const at::NoGradGuard no_grad;
  for (const auto& p : unique_parameters(module)) {
    if (p.tensor->grad().defined()) p.tensor->sub_(p.tensor->grad() * lr);
    p.tensor->mutable_grad().reset();
  }
}

void step_sharded(nn::Module& module, double lr) {
  const at::NoGradGuard no_grad;
  for (ShardedParameter& p : sharded_parameters(module)) {
    if (p.parameter.grad().defined()) p.tensor.local.sub_(p.parameter.grad() * lr);
    p.parameter.mutable_grad().reset();
  }
}

void expect_same_step(Net& whole, Net& net, const RankContext& rank, int step, double tolerance) {
  expect_same_step(
      whole, net, rank, step, [](int r, int s) { return ids_of(r, s); }, tolerance);
}

void expect_same_step(
    Tower& whole, Tower& net, const RankContext& rank, int step, double tolerance) {
  expect_same_step(
      whole, net, rank, step, [](int r, int s) { return inputs_of(r, s); }, tolerance);
}

EventRecorder::EventRecorder(nn::Module& root, bool with_reshards) {
  FsdpModule::of(root).set_event_listener([events = events_, with_reshards](const UnitEvent& e) {
    const char* kind = e.action == UnitAction::kAllGather       ? "AG"
                       : e.action == UnitAction::kReduceScatter ? "RS"
                       : e.action == UnitAction::kAllReduce     ? "AR"
                                                                : "free";
    if (e.action == UnitAction::kReshard && !with_reshards) return;
    events->push_back(std::string(kind) + " " + e.unit);
  });
}

std::vector<std::string> EventRecorder::take() { return std::exchange(*events_, {}); }

int EventRecorder::count(const std::string& kind) const {
  return static_cast<int>(std::count_if(events_->begin(), events_->end(), [&](const auto& event) {
    return event.rfind(kind + " ", 0) == 0;
  }));
}

std::string EventRecorder::take_counts() {
  const std::string text = fmt::format("AG {} RS {} AR {}", count("AG"), count("RS"), count("AR"));
  events_->clear();
  return text;
}

std::string config_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError";
  return "";
}

}  // namespace shardloom::parallel::testing
