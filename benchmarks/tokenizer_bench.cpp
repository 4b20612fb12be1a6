// Tokenizer throughput on one thread, in MB/s of text, with the Qwen3 vocabulary.
//
//   tokenizer_bench [Google Benchmark options]
//   tokenizer_bench --write-texts DIR      writes the texts, for benchmarks/tokenizer_peer.py
//
// The texts are drawn from the vocabulary: words with a probability of about 1 / rank, as in
// natural text, and some words that are not in the vocabulary. A text is encoded paragraph by
// paragraph, as the samples of a data set are.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "shardloom/tokenizer/tokenizer.h"
#include "shardloom/tokenizer/utf8.h"

namespace shardloom::tokenizer {
namespace {

constexpr size_t kTextBytes = 2 << 20;
const std::filesystem::path kModel = SHARDLOOM_SOURCE_DIR "/tests/data/tokenizer/qwen3";

using Paragraphs = std::vector<std::string>;

const Tokenizer& qwen() {
  static const Tokenizer tokenizer = Tokenizer::from_folder(kModel);
  return tokenizer;
}

// Vocabulary entries, most frequent first, for which keep(text) holds.
template <typename Keep>
std::vector<std::string> words_where(Keep keep) {
  std::vector<std::string> words;
  for (int32_t id = 0; id < qwen().added_tokens().front().id; ++id) {
    std::string text = qwen().decode({id});
    if (keep(text)) words.push_back(std::move(text));
  }
  return words;
}

class Writer {
 public:
  explicit Writer(std::vector<std::string> words) : words_(std::move(words)) {}

  size_t below(size_t limit) { return random_() % limit; }

  // Rank r with a probability of about 1 / r.
  const std::string& word() {
    const double uniform = static_cast<double>(random_()) / 4294967296.0;
    return words_[static_cast<size_t>(std::pow(static_cast<double>(words_.size()), uniform)) - 1];
  }

 private:
  std::vector<std::string> words_;
  std::mt19937 random_{1};
};

template <typename Sentence>
Paragraphs write_text(Sentence sentence) {
  Paragraphs paragraphs;
  for (size_t bytes = 0; bytes < kTextBytes; bytes += paragraphs.back().size()) {
    std::string paragraph;
    while (paragraph.size() < 600) paragraph += sentence();
    paragraphs.push_back(std::move(paragraph));
  }
  return paragraphs;
}

const Paragraphs& english() {
  static const Paragraphs paragraphs = [] {
    Writer writer(words_where([](const std::string& text) {
      return text.size() > 1 && text[0] == ' ' &&
             text.find_first_not_of("abcdefghijklmnopqrstuvwxyz", 1) == text.npos;
    }));
    return write_text([&] {
      std::string sentence;
      for (size_t left = 6 + writer.below(14); left > 0; --left) {
        sentence += writer.word();
        if (writer.below(12) == 0) sentence += writer.word().substr(1);  // mostly an unknown word
        if (writer.below(9) == 0) sentence += ",";
        if (writer.below(40) == 0) sentence += fmt::format(" {}", writer.below(2000));
      }
      return sentence.append(writer.below(5) == 0 ? ".\n" : ".");
    });
  }();
  return paragraphs;
}

const Paragraphs& chinese() {
  static const Paragraphs paragraphs = [] {
    Writer writer(words_where([](const std::string& text) {
      for (size_t pos = 0; pos < text.size(); pos += 3) {
        const char32_t c = decode_utf8(text, pos).value;
        if (c < 0x4E00 || c > 0x9FFF) return false;
      }
      return true;
    }));
    return write_text([&] {
      std::string sentence;
      for (size_t clauses = 1 + writer.below(4); clauses > 0; --clauses) {
        for (size_t left = 2 + writer.below(6); left > 0; --left) sentence += writer.word();
        sentence += clauses > 1 ? "，" : "。";
      }
      return sentence;
    });
  }();
  return paragraphs;
}

void encode(benchmark::State& state, const Paragraphs& paragraphs) {
  int64_t bytes = 0;
  for (auto _ : state) {
    for (const std::string& paragraph : paragraphs) {
      benchmark::DoNotOptimize(qwen().encode(paragraph));
      bytes += static_cast<int64_t>(paragraph.size());
    }
  }
  state.SetBytesProcessed(bytes);
}

void decode(benchmark::State& state, const Paragraphs& paragraphs) {
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& paragraph : paragraphs) ids.push_back(qwen().encode(paragraph));
  int64_t bytes = 0;
  for (auto _ : state) {
    for (const auto& list : ids) bytes += static_cast<int64_t>(qwen().decode(list).size());
  }
  state.SetBytesProcessed(bytes);
}

void encode_english(benchmark::State& state) { encode(state, english()); }
void encode_chinese(benchmark::State& state) { encode(state, chinese()); }
void decode_english(benchmark::State& state) { decode(state, english()); }
void load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::from_folder(kModel));
}

BENCHMARK(encode_english)->Unit(benchmark::kMillisecond);
BENCHMARK(encode_chinese)->Unit(benchmark::kMillisecond);
BENCHMARK(decode_english)->Unit(benchmark::kMillisecond);
BENCHMARK(load)->Unit(benchmark::kMillisecond);

// One paragraph a block, blocks ended by a NUL byte.
void write_file(const std::filesystem::path& path, const Paragraphs& paragraphs) {
  std::ofstream out(path, std::ios::binary);
  for (const std::string& paragraph : paragraphs) out << paragraph << '\0';
}

}  // namespace
}  // namespace shardloom::tokenizer

int main(int argc, char** argv) {
  using namespace shardloom::tokenizer;
  if (argc == 3 && std::string(argv[1]) == "--write-texts") {
    write_file(std::filesystem::path(argv[2]) / "english.txt", english());
    write_file(std::filesystem::path(argv[2]) / "chinese.txt", chinese());
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
