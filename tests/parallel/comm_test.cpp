// Collectives of the user's own, memory from the backend's allocator, and an optimizer that is
// still at work when the next forward comes.
#include <gmock/gmock.h>

#include <thread>

#include "tests/parallel/nets.h"

namespace shardloom::parallel::testing {
namespace {

using distributed::Group;
using distributed::Pending;
using distributed::Reduction;

// Every rank's part by a broadcast of its own, from memory that it hands out itself.
class BroadcastingAllGather : public AllGather {
 public:
  at::Tensor allocate(at::IntArrayRef sizes, const at::TensorOptions& options) override {
    allocated.push_back(at::empty(sizes, options));
    return allocated.back();
  }
  Pending call(const at::Tensor& output,
               const at::Tensor& input,
               Group& group,
               const std::string& label) override {
    labels.push_back(label);
    EXPECT_TRUE(output.is_alias_of(allocated.back()));
    EXPECT_EQ(output.numel(), input.numel() * group.size());
    for (int r = 0; r < group.size(); ++r) {
      const at::Tensor part = output.narrow(0, r * input.numel(), input.numel());
      group.broadcast(part, r, label).wait();
    }
    return {};
  }
  std::vector<at::Tensor> allocated;
  std::vector<std::string> labels;
};

// All parts to their ranks, summed there in rank order.
class ExchangingReduceScatter : public ReduceScatter {
 public:
  at::Tensor allocate(at::IntArrayRef sizes, const at::TensorOptions& options) override {
    ++allocations;
    return at::empty(sizes, options);
  }
  Pending call(const at::Tensor& output,
               const at::Tensor& input,
               Group& group,
               Reduction reduction,
               const std::string& label) override {
    ++calls;
    const at::Tensor parts = at::empty_like(input);
    const std::vector<int64_t> splits(group.size(), output.numel());
    group.all_to_all(parts, input, splits, splits, label).wait();
    output.zero_();
    for (int r = 0; r < group.size(); ++r)
      output.add_(parts.narrow(0, r * output.numel(), output.numel()));
    if (reduction == Reduction::kAverage) output.div_(group.size());
    return {};
  }
  int allocations = 0;
  int calls = 0;
};

// Another backend, with an allocator of its own.
class AllocatingBackend : public c10d::Backend {
 public:
  explicit AllocatingBackend(c10::intrusive_ptr<c10d::Backend> inner)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}
  const std::string getBackendName() const override { return inner_->getBackendName(); }
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    allocated.push_back(at::empty({size}, options));
    return allocated.back();
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output,
                                                 at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override {
    expect_own(output);
    expect_own(input);
    return inner_->_allgather_base(output, input, options);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    expect_own(output);
    expect_own(input);
    return inner_->_reduce_scatter_base(output, input, options);
  }
  std::vector<at::Tensor> allocated;

 private:
  void expect_own(const at::Tensor& tensor) const {
    EXPECT_TRUE(std::any_of(allocated.begin(), allocated.end(),
                            [&](const at::Tensor& own) { return own.is_alias_of(tensor); }));
  }
  c10::intrusive_ptr<c10d::Backend> inner_;
};

std::shared_ptr<const DeviceMesh> mesh_over(const RankContext& rank,
                                            c10::intrusive_ptr<c10d::Backend> backend) {
  std::vector<int> ranks(rank.size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_shared<const DeviceMesh>(std::vector<distributed::MeshAxis>{
      {"dp_shard", std::make_shared<Group>("dp_shard", ranks, rank.rank, std::move(backend))}});
}

TEST(CustomComm, AUnitsCollectivesAreReplacedAndGivenBack) {
  expect_ranks(3, [](const RankContext& rank) {
    Net whole, net;
    fill_parameters(whole);
    fill_parameters(net);
    shard_blocks(net, mesh_of(rank));
    const auto gather = std::make_shared<BroadcastingAllGather>();
    const auto reduce = std::make_shared<ExchangingReduceScatter>();
    FsdpModule unit = FsdpModule::of(net.blocks[1]);
    unit.set_custom_all_gather(gather);
    unit.set_custom_reduce_scatter(reduce);
    for (int step = 0; step < 2; ++step) expect_same_step(whole, net, rank, step);
    // Forward and backward of two steps; input and output of two reductions.
    EXPECT_THAT(gather->labels,
                ::testing::AllOf(::testing::SizeIs(4), ::testing::Each("unit blocks.1")));
    EXPECT_EQ(gather->allocated.size(), 4u);
    EXPECT_EQ(reduce->calls, 2);
    EXPECT_EQ(reduce->allocations, 4);
    unit.set_custom_all_gather(nullptr);
    unit.set_custom_reduce_scatter(nullptr);
    expect_same_step(whole, net, rank, 2);
    EXPECT_EQ(gather->labels.size(), 4u);
    EXPECT_EQ(reduce->calls, 2);
  });
}

// Such a unit is otherwise gathered and reduced in place.
TEST(CustomComm, AUnitOfOneParameter) {
  expect_ranks(2, [](const RankContext& rank) {
    Weights whole({at::ones({5, 3})}), net({at::ones({5, 3})});
    fill_parameters(whole);
    fill_parameters(net);
    fully_shard(net, mesh_of(rank));
    const auto gather = std::make_shared<BroadcastingAllGather>();
    const auto reduce = std::make_shared<ExchangingReduceScatter>();
    FsdpModule::of(net).set_custom_all_gather(gather);
    FsdpModule::of(net).set_custom_reduce_scatter(reduce);
    expect_same_step(whole, net, rank, 0, [](int r, int step) { return inputs_of(r, step); });
    EXPECT_EQ(gather->allocated.size(), 1u);
    EXPECT_EQ(gather->allocated[0].numel(), 2 * 3 * 3);  // rows 3 + 2, padded
    EXPECT_EQ(reduce->allocations, 2);
  });
}

TEST(CustomComm, MemoryFromTheBackendsAllocator) {
  expect_ranks(2, [](const RankContext& rank) {
    Net whole, net;
    fill_parameters(whole);
    fill_parameters(net);
    const auto backend =
        c10::make_intrusive<AllocatingBackend>(rank.group(BackendKind::kShm, "allocating"));
    const auto mesh = mesh_over(rank, backend);
    shard_blocks(net, mesh);
    for (nn::Module* module :
         std::vector<nn::Module*>{&net, &net.blocks[0], &net.blocks[1], &net.blocks[2]})
      FsdpModule::of(*module).set_allocate_memory_from_process_group_for_comm(true);
    EventRecorder events(net);
    expect_same_step(whole, net, rank, 0);
    // One for each gather, two for each reduction.
    EXPECT_EQ(backend->allocated.size(),
              static_cast<size_t>(events.count("AG") + 2 * events.count("RS")));
  });
}

TEST(CustomComm, ABackendWithoutAnAllocatorKeepsPlainMemory) {
  expect_ranks(2, [](const RankContext& rank) {
    Net whole, net;
    fill_parameters(whole);
    fill_parameters(net);
    shard_blocks(net, mesh_of(rank));
    FsdpModule::of(net).set_allocate_memory_from_process_group_for_comm(true);
    expect_same_step(whole, net, rank, 0);
  });
}

TEST(CustomComm, EitherCustomOrTheBackendsMemory) {
  expect_ranks(1, [](const RankContext& rank) {
    Net net;
    shard_blocks(net, mesh_of(rank));
    FsdpModule unit = FsdpModule::of(net.blocks[0]);
    unit.set_custom_reduce_scatter(std::make_shared<ExchangingReduceScatter>());
    EXPECT_THAT(config_error([&] { unit.set_allocate_memory_from_process_group_for_comm(true); }),
                ::testing::HasSubstr("custom reduce-scatter"));
  });
}

// The optimizer runs in a thread of its own; the next forward waits for it before it gathers.
TEST(PostOptimEvent, IsWaitedForOnceBeforeTheFirstGather) {
  expect_ranks(2, [](const RankContext& rank) {
    Net whole, net;
    fill_parameters(whole);
    fill_parameters(net);
    shard_blocks(net, mesh_of(rank));
    EventRecorder events(net);
    FsdpModule root = FsdpModule::of(net);
    int waits = 0;
    for (int step = 0; step < 3; ++step) {
      const auto inputs = [](int r, int s) { return ids_of(r, s); };
      run_serially(whole, rank.size, step, inputs);
      loss_of(net, ids_of(rank.rank, step)).backward();
      expect_gradients(net, gradients(whole));
      step_whole(whole);
      events.take();
      auto optimizer = std::make_shared<std::thread>([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        step_sharded(net);
      });
      root.set_post_optim_event([&, optimizer] {
        ++waits;
        EXPECT_EQ(events.count("AG"), 0);
        optimizer->join();
      });
    }
    const at::NoGradGuard no_grad;
    net(ids_of(0, 0));
    net(ids_of(0, 0));
    EXPECT_EQ(waits, 3);
    expect_values(net, values(whole));
  });
}

}  // namespace
}  // namespace shardloom::parallel::testing
