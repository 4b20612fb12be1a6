// Shared by the tests of config/megatron.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "shardloom/config/megatron/translate.h"
#include "tests/config/config_test_util.h"

namespace shardloom::config::megatron {

using Flags = std::vector<std::string>;

inline std::string source_path(const std::string& name) {
  return std::string(SHARDLOOM_SOURCE_DIR) + "/" + name;
}

// The flags that every run needs, then `more`.
inline Flags with_required(const Flags& more = {}) {
  Flags flags = {"--use-torch-fsdp2",
                 "--untie-embeddings-and-output-weights",
                 "--fsdp2-config-path=fsdp2.yaml",
                 "--mm-model=model.json",
                 "--mm-data=data.json",
                 "--micro-batch-size=2",
                 "--seq-length=256",
                 "--train-iters=60",
                 "--lr=1.0e-3"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// A run of files that this test writes; each may be changed before load().
struct WrittenFiles {
  std::string fsdp2 = "sharding_size: auto\n";
  std::string model = R"({"model_id": "internvl", "init_from_hf_path": "hf"})";
  std::string data = R"({"dataset_param": {"dataset_type": "multimodal",
  "basic_parameters": {"data_path": "train.jsonl"}}, "dataloader_param": {"shuffle": true}})";

  // The test's own, so that tests may run at the same time.
  static std::filesystem::path folder() {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    const std::filesystem::path path =
        std::filesystem::path(::testing::TempDir()) /
        (std::string("megatron_") + test->test_suite_name() + "_" + test->name());
    std::filesystem::create_directories(path);
    return path;
  }

  MegatronConfig load(const Flags& more = {}) const {
    const auto write = [&](const char* name, const std::string& text) {
      std::ofstream(folder() / name) << text;
      return (folder() / name).string();
    };
    Flags flags = with_required(more);
    flags[2] = "--fsdp2-config-path=" + write("fsdp2.yaml", fsdp2);
    flags[3] = "--mm-model=" + write("model.json", model);
    flags[4] = "--mm-data=" + write("data.json", data);
    return load_megatron_config(flags);
  }
  TrainConfig config(const Flags& more = {}) const { return load(more).loaded.config; }
  // Without the folder of the files.
  std::string error(const Flags& more = {}) const {
    std::string text = error_of([&] { load(more); });
    const std::string prefix = folder().string() + "/";
    for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix))
      text.erase(at, prefix.size());
    return text;
  }
};

}  // namespace shardloom::config::megatron
