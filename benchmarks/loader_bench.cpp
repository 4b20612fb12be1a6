// The way of a sample: indexing a JSONL file, parsing records, whole batches of the embedded tiny
// data set.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "shardloom/data/jsonl.h"
#include "shardloom/data/loader.h"
#include "shardloom/data/record.h"

namespace {

using namespace shardloom;

const std::filesystem::path kTiny = std::filesystem::path(SHARDLOOM_SOURCE_DIR) / "examples/tiny";

void index_lines(benchmark::State& state) {
  const auto path = std::filesystem::temp_directory_path() / "shardloom_loader_bench.jsonl";
  {
    std::ofstream file(path);
    const std::string line =
        R"({"conversations": [{"from": "human", "value": ")" + std::string(900, 'x') + "\"}]}\n";
    for (int i = 0; i < 100000; ++i) file << line;
  }
  for (auto _ : state) benchmark::DoNotOptimize(data::JsonlFiles({path}).size());
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>(std::filesystem::file_size(path)));
  std::filesystem::remove(path);
}
BENCHMARK(index_lines)->Unit(benchmark::kMillisecond);

void parse_records(benchmark::State& state) {
  const data::JsonlFiles files({kTiny / "data/train.jsonl"});
  int64_t index = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(data::parse_record(files.line(index), "x:1", {}));
    index = (index + 1) % files.size();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(parse_records);

void load_batches(benchmark::State& state) {
  config::DatasetParam param;
  param.max_dynamic_patch = 1;
  param.image_size = state.range(1);
  param.basic_parameters.dataset = {(kTiny / "data/train.jsonl").string()};
  param.basic_parameters.dataset_dir = (kTiny / "data").string();
  param.basic_parameters.cutoff_len = 1024;
  const std::shared_ptr<const data::Dataset> dataset =
      data::dataset_registry().get("internvl3_5")(param, (kTiny / "model").string());
  data::Loader loader(dataset, {.num_samples = dataset->size(), .micro_batch_size = 2},
                      {.num_workers = static_cast<int>(state.range(0))});
  for (auto _ : state) benchmark::DoNotOptimize(loader.next());
  state.SetItemsProcessed(2 * state.iterations());
}
BENCHMARK(load_batches)
    ->ArgsProduct({{0, 1, 2}, {112, 448}})
    ->ArgNames({"workers", "image_size"})
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
