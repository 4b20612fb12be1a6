#include "shardloom/distributed/world.h"

#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/log.h"

namespace shardloom::distributed {
namespace {

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

World::World(c10::intrusive_ptr<c10d::Store> store,
             int rank,
             int size,
             BackendKind backend,
             std::chrono::milliseconds timeout,
             c10::Device device)
    : store_(std::move(store)),
      rank_(rank),
      size_(size),
      backend_(backend),
      timeout_(timeout),
      device_(device) {
  SHARDLOOM_CHECK(size > 0 && rank >= 0 && rank < size, "rank {} of {}", rank, size);
  const std::chrono::milliseconds limit = watchdog_limit();
  if (size > 1 && backend != BackendKind::kFake && limit.count() > 0) {
    watchdog_ = std::make_unique<Watchdog>(store_, rank, limit,
                                           [](const std::string& text) { log::warn("{}", text); });
  }
  group_ = make_group("world", first_ranks(size));
}

World::~World() = default;

std::shared_ptr<World> World::alone(c10::Device device) {
  return over(c10::make_intrusive<c10d::HashStore>(), 0, 1, BackendKind::kAuto, default_timeout(),
              device);
}

std::shared_ptr<World> World::connect(const WorldOptions& options,
                                      BackendKind backend,
                                      std::chrono::milliseconds timeout,
                                      c10::Device device) {
  return over(connect_store(options, timeout), options.rank, options.world_size, backend, timeout,
              device);
}

std::shared_ptr<World> World::fake(int rank, int size) {
  return over(nullptr, rank, size, BackendKind::kFake);
}

std::shared_ptr<World> World::over(c10::intrusive_ptr<c10d::Store> store,
                                   int rank,
                                   int size,
                                   BackendKind backend,
                                   std::chrono::milliseconds timeout,
                                   c10::Device device) {
  return std::shared_ptr<World>(new World(std::move(store), rank, size, backend, timeout, device));
}

std::shared_ptr<Group> World::make_group(const std::string& name, std::vector<int> ranks) {
  const auto self = std::find(ranks.begin(), ranks.end(), rank_);
  SHARDLOOM_CHECK(self != ranks.end() && *std::max_element(ranks.begin(), ranks.end()) < size_,
                  "group {} of ranks {} on rank {} of {}", name, fmt::join(ranks, ", "), rank_,
                  size_);
  const std::string key = group_key(name, ranks);
  SHARDLOOM_CHECK(keys_.insert(key).second, "two groups {}", key);
  const int rank = static_cast<int>(self - ranks.begin());
  c10::intrusive_ptr<c10d::Store> store;
  if (backend_ != BackendKind::kFake) {
    store = c10::make_intrusive<c10d::PrefixStore>(key, store_);
  }
  auto backend = make_backend(backend_, store, rank, static_cast<int>(ranks.size()), name, timeout_,
                              ranks, device_);
  auto group = std::make_shared<Group>(name, std::move(ranks), rank, std::move(backend));
  if (watchdog_ != nullptr) watchdog_->watch(group->log());
  return group;
}

}  // namespace shardloom::distributed
