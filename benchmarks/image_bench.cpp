// Pictures on one thread: from a 640 x 480 JPEG in memory to normalised 448 x 448 floats, whole and
// by stage. benchmarks/image_peer.py runs this and the same chain in Pillow and numpy alternately.
#include <benchmark/benchmark.h>

#include <vector>

#include "shardloom/base/files.h"
#include "shardloom/data/image/image.h"

namespace shardloom::data {
namespace {

constexpr int kSide = 448;

const std::string& jpeg_bytes() {
  static const std::string bytes =
      read_file(SHARDLOOM_SOURCE_DIR "/tests/data/images/jpeg/photo_640x480.jpg");
  return bytes;
}

void BM_Whole(benchmark::State& state) {
  std::vector<float> out(size_t{3} * kSide * kSide);
  for (auto _ : state) {
    normalize_to_chw(resize_bicubic(decode_rgb(jpeg_bytes(), "bench"), kSide, kSide), out.data());
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_Whole)->Unit(benchmark::kMicrosecond);

void BM_Decode(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(decode_rgb(jpeg_bytes(), "bench"));
}
BENCHMARK(BM_Decode)->Unit(benchmark::kMicrosecond);

void BM_Resize(benchmark::State& state) {
  const RgbImage image = decode_rgb(jpeg_bytes(), "bench");
  for (auto _ : state) benchmark::DoNotOptimize(resize_bicubic(image, kSide, kSide));
}
BENCHMARK(BM_Resize)->Unit(benchmark::kMicrosecond);

void BM_Normalize(benchmark::State& state) {
  const RgbImage image = resize_bicubic(decode_rgb(jpeg_bytes(), "bench"), kSide, kSide);
  std::vector<float> out(size_t{3} * kSide * kSide);
  for (auto _ : state) {
    normalize_to_chw(image, out.data());
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(BM_Normalize)->Unit(benchmark::kMicrosecond);

// Twelve tiles and a thumbnail.
void BM_Tiles(benchmark::State& state) {
  const RgbImage image = decode_rgb(jpeg_bytes(), "bench");
  for (auto _ : state) benchmark::DoNotOptimize(make_tiles(image, {.max_tiles = 12}));
}
BENCHMARK(BM_Tiles)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace shardloom::data

BENCHMARK_MAIN();
