// `shardloom convert`, and the same as `mm-convert ExpertMergeDcpConverter`.
#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "shardloom/base/error.h"
#include "shardloom/base/interrupt.h"
#include "shardloom/base/log.h"
#include "shardloom/base/strings.h"
#include "shardloom/checkpoint/convert/dcp_to_hf.h"
#include "shardloom/checkpoint/convert/hf_to_dcp.h"
#include "shardloom/cli/command.h"
#include "shardloom/cli/threads.h"
#include "shardloom/models/model.h"
#include "shardloom/tokenizer/tokenizer.h"

namespace shardloom::cli {
namespace {

constexpr const char* kModelId = "internvl3_5";

constexpr const char* kMemory =
    "Streams with up to 8 threads (OMP_NUM_THREADS): on top of what the program itself takes (120 "
    "MiB),\nmemory stays below twice the largest layer.";

constexpr uint64_t kLargestShard = uint64_t{1} << 60;

const std::map<std::string, checkpoint::DType> kTypes = {{"bf16", checkpoint::DType::kBF16},
                                                         {"fp16", checkpoint::DType::kF16},
                                                         {"fp32", checkpoint::DType::kF32}};

using TokenId = decltype(models::BuildOptions::token_id);

checkpoint::DescribeModel describe_model(const std::filesystem::path& folder,
                                         const TokenId& token_id = {}) {
  return [folder, token_id](std::optional<int64_t> num_hidden_layers) {
    models::BuildOptions build;
    build.folder = folder;
    build.token_id = token_id;
    build.num_hidden_layers = num_hidden_layers;
    build.tensor_options = at::TensorOptions().dtype(at::kFloat).device(at::kMeta);
    const std::shared_ptr<models::Model> model = models::model_registry().get(kModelId)(build);
    checkpoint::ConvertModel described;
    described.sources = [model](nn::Layout layout) { return model->weight_sources(layout); };
    described.layout = model->layout();
    described.may_ignore = [model](const std::string& key) { return model->may_ignore(key); };
    described.config = [model](const std::string& dtype, nn::Layout layout) {
      return model->export_config(dtype, layout);
    };
    return described;
  };
}

// The -HF config.json gives the id of the picture token, which only the tokenizer knows.
TokenId token_ids_for(const checkpoint::DcpToHfOptions& options) {
  if (options.layout != "hf") return {};
  const auto tokenizer = std::make_shared<const tokenizer::Tokenizer>(
      tokenizer::Tokenizer::from_folder(options.hf_dir));
  return [tokenizer](const std::string& token) -> std::optional<int64_t> {
    const auto id = tokenizer->id(token);
    return id ? std::optional<int64_t>(*id) : std::nullopt;
  };
}

int report(const std::function<checkpoint::ConvertSummary()>& convert) {
  install_interrupt_handlers();
  const auto start = std::chrono::steady_clock::now();
  const checkpoint::ConvertSummary done = convert();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log::info("{}: {} tensors, {} in {:.1f} s ({:.2f} GB/s)", done.folder.string(), done.tensors,
            human_bytes(done.bytes), seconds, static_cast<double>(done.bytes) / 1e9 / seconds);
  return static_cast<int>(ExitCode::kOk);
}

void add_hf_to_dcp(CLI::App& parent, Action& action, const std::string& call) {
  CLI::App* command = parent.add_subcommand(
      "hf_to_dcp", "Hugging Face weights into a checkpoint that training.load takes");
  auto options = std::make_shared<checkpoint::HfToDcpOptions>();
  command->add_option("--hf_dir", options->hf_dir, "HF folder: config.json and *.safetensors")
      ->required();
  command
      ->add_option("--save_dir", options->save_dir,
                   "New folder: gets release/ and latest_checkpointed_iteration.txt")
      ->required();
  command->add_option(
      "--dcp_prefix", options->dcp_prefix,
      "Text in front of every parameter's name; \"model.\" suits the Megatron-style "
      "path of MindSpeed MM, shardloom loads both");
  command->add_option("--hf_prefix", options->hf_prefix,
                      "Text that the tensors of hf_dir carry in front of their usual names; "
                      "dcp_prefix takes its place");
  command->footer(
      fmt::format("{}\nExample:\n  {} hf_to_dcp --hf_dir models/InternVL3_5-30B-A3B "
                  "--save_dir models/InternVL3_5-30B-A3B-dcp",
                  kMemory, call));
  command->callback([options, &action] {
    action = [options] {
      options->threads = num_threads();
      return report([&] { return hf_to_dcp(*options, describe_model(options->hf_dir)); });
    };
  });
}

void add_dcp_to_hf(CLI::App& parent, Action& action, const std::string& call) {
  CLI::App* command = parent.add_subcommand(
      "dcp_to_hf", "A checkpoint's weights into a Hugging Face folder; its optimizer is left out");
  auto options = std::make_shared<checkpoint::DcpToHfOptions>();
  command
      ->add_option("--hf_dir", options->hf_dir,
                   "HF folder of the original: config.json, tokenizer, names of the weights")
      ->required();
  command
      ->add_option("--dcp_dir", options->dcp_dir,
                   "release/ or iter_NNNNNNN/; the folder above stands for its latest")
      ->required();
  command->add_option("--save_dir", options->save_dir, "New folder")->required();
  command->add_option("--dcp_prefix", options->dcp_prefix,
                      "Text in front of every parameter's name; found out when not given");
  command->add_option("--hf_prefix", options->hf_prefix,
                      "Text to put in front of every name that is written");
  command
      ->add_option_function<std::string>(
          "--dtype", [options](const std::string& name) { options->dtype = kTypes.at(name); },
          "bf16, fp16 or fp32 (default: as stored)")
      ->check(CLI::IsMember(kTypes));
  command
      ->add_option("--layout", options->layout,
                   "Names of the weights and config.json: those of hf_dir (auto), of the remote "
                   "code (InternVLChatModel), or of transformers (hf, the -HF folders)")
      ->check(CLI::IsMember({"auto", "remote_code", "hf"}))
      ->capture_default_str();
  command
      ->add_option("--max_shard_size", options->max_shard_bytes,
                   "Largest file, such as 5GB or 500MB (default 5GB)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->check(CLI::Range(uint64_t{1}, kLargestShard));
  command->footer(fmt::format(
      "{}\nExample:\n  {} dcp_to_hf --hf_dir models/InternVL3_5-30B-A3B --dcp_dir out/iter_0002000 "
      "--save_dir out/hf --dtype bf16",
      kMemory, call));
  command->callback([options, &action] {
    action = [options] {
      options->threads = num_threads();
      return report([&] {
        return dcp_to_hf(*options, describe_model(options->hf_dir, token_ids_for(*options)));
      });
    };
  });
}

void add_both(CLI::App& parent, Action& action, const std::string& call) {
  parent.require_subcommand(1);
  add_hf_to_dcp(parent, action, call);
  add_dcp_to_hf(parent, action, call);
  parent.footer("Example:\n  " + call + " hf_to_dcp --help");
}

}  // namespace

void add_convert_command(CLI::App& app, Action& action) {
  add_both(
      *app.add_subcommand("convert", "Change the format of weights: HF folder, DCP checkpoint"),
      action, "shardloom convert");
}

void add_mm_convert_commands(CLI::App& app, Action& action) {
  add_both(*app.add_subcommand("ExpertMergeDcpConverter",
                               "InternVL3.5: HF folder and DCP checkpoint with merged experts"),
           action, "mm-convert ExpertMergeDcpConverter");
}

}  // namespace shardloom::cli
