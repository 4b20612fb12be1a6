// Bandwidth of saving and loading a sharded state, as training does it: one rank of several under
// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (benchmarks/compare_checkpoint.sh).
//   checkpoint_bench FOLDER [MIB=1024]
// 16 fp32 matrices whose rows are spread over the ranks. Times are those from barrier to barrier; a
// save ends with the data on disk and the checkpoint in its place, a load with every value in the
// tensors. Loads compare checksums and read from the page cache unless it says "cold". "blocks"
// lines: what a step waits for a save that is written in the background (training.save_async), the
// first of a run, whose buffer was begun three seconds before, and a later one; "unprepared": the
// first one without that.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "shardloom/base/error.h"
#include "shardloom/checkpoint/checkpoint_reader.h"
#include "shardloom/checkpoint/checkpoint_saver.h"
#include "shardloom/checkpoint/save_root.h"
#include "shardloom/distributed/world.h"

namespace shardloom::checkpoint {
namespace {

using distributed::World;

constexpr int64_t kTensors = 16;
constexpr int64_t kColumns = 1024;

CheckpointState make_state(const World& world, int64_t mib) {
  const int64_t rows = (mib << 20) / kTensors / kColumns / 4;
  const auto own = distributed::shard_rows(rows, world.rank(), world.size());
  CheckpointState state;
  for (int64_t i = 0; i < kTensors; ++i) {
    const StateKey key = model_key(fmt::format("layer{}.weight", i));
    distributed::ShardedTensor tensor{
        key.name, at::rand({own.count, kColumns}), {rows, kColumns}, own.first, world.group()};
    state.tensors.push_back({key, std::move(tensor), DType::kF32});
  }
  return state;
}

double seconds_of(const World& world, const std::function<void()>& action) {
  world.group()->barrier("bench");
  const auto start = std::chrono::steady_clock::now();
  action();
  world.group()->barrier("bench");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void measure(const World& world,
             const char* what,
             int64_t mib,
             const std::function<void()>& action) {
  const double seconds = seconds_of(world, action);
  if (world.rank() == 0)
    std::printf("%s %.3f GB/s\n", what, static_cast<double>(mib << 20) / 1e9 / seconds);
}

void measure_blocking(const World& world, const char* what, const std::function<void()>& action) {
  const double seconds = seconds_of(world, action);
  if (world.rank() == 0) std::printf("%s %.1f ms\n", what, seconds * 1e3);
}

// Memory that no byte was written to yet, as that of a model that has just been built.
std::vector<WantedTensor> make_targets(const CheckpointState& saved) {
  std::vector<WantedTensor> wanted;
  for (const StateTensor& tensor : saved.tensors) {
    wanted.push_back({tensor.key.name, tensor.tensor});
    wanted.back().target.local = at::empty_like(tensor.tensor.local);
  }
  return wanted;
}

void load(const World& world,
          const char* what,
          int64_t mib,
          const CheckpointState& saved,
          const std::filesystem::path& folder) {
  const auto wanted = make_targets(saved);
  measure(world, what, mib,
          [&] { read_wanted(dcp::Reader(folder, {.verify_crc = true}), wanted); });
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i].target.local.equal(saved.tensors[i].tensor.local)) {
      throw InternalError("rank {}: {} differs", world.rank(), wanted[i].name);
    }
  }
}

// Clean pages only: what was saved is on disk.
void evict(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const int fd = ::open(entry.path().c_str(), O_RDONLY);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

int run(const std::filesystem::path& root, int64_t mib) {
  const auto world = World::connect(distributed::WorldOptions::from_environment());
  at::manual_seed(world->rank());
  const CheckpointState state = make_state(*world, mib);
  CheckpointSaver saver(root, world->group(), {});
  measure(*world, "save", mib, [&] { saver.save(1, state); });
  {
    CheckpointSaver unprepared(root / "background", world->group(), {.in_background = true});
    measure_blocking(*world, "unprepared async save blocks", [&] { unprepared.save(1, state); });
    unprepared.finish();
  }
  CheckpointSaver background(root / "background", world->group(), {.in_background = true});
  background.prepare(state);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  for (const char* what : {"first async save blocks", "async save blocks"}) {
    measure_blocking(*world, what, [&] { background.save(1, state); });
    background.finish();
  }
  const auto folder = checkpoint_folder(root, 1);
  for (int i = 0; i < 2; ++i) load(*world, "load", mib, state, folder);
  if (world->rank() == 0) evict(folder);
  load(*world, "load cold", mib, state, folder);
  return 0;
}

}  // namespace
}  // namespace shardloom::checkpoint

int main(int argc, char** argv) {
  if (argc < 2) return std::fputs("usage: checkpoint_bench FOLDER [MIB]\n", stderr), 2;
  return shardloom::checkpoint::run(argv[1], argc > 2 ? std::atoll(argv[2]) : 1024);
}
