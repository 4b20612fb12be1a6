#include <fmt/format.h>

#include "shardloom/config/megatron/arguments.h"
#include "shardloom/config/megatron/flags.h"

namespace shardloom::config::megatron {
namespace {

constexpr const char* kExample = R"(Usage: pretrain_transformers FLAGS

Fine-tunes a model as Megatron-style scripts do. Flags are written --flag value or --flag=value.

Example:
  pretrain_transformers --use-torch-fsdp2 --untie-embeddings-and-output-weights \
    --fsdp2-config-path examples/tiny/megatron/fsdp2_config.yaml \
    --mm-model examples/tiny/megatron/model.json --mm-data examples/tiny/megatron/data.json \
    --micro-batch-size 2 --seq-length 256 --train-iters 60 --lr 1.0e-3 --lr-decay-style cosine \
    --lr-warmup-fraction 0.1 --weight-decay 0 --log-interval 1
)";

constexpr size_t kMeaningColumn = 40;

std::string default_of(const Flag& flag, const Arguments& defaults) {
  if (flag.field.codec->required()) return "required";
  return flag.field.codec->dump(flag.field.get(&defaults));
}

void add_line(std::string& out, const std::string& left, const std::string& right) {
  if (left.size() + 2 > kMeaningColumn) {
    out += fmt::format("{}\n{:{}}{}\n", left, "", kMeaningColumn, right);
  } else {
    out += fmt::format("{:{}}{}\n", left, kMeaningColumn, right);
  }
}

}  // namespace

std::string arguments_help() {
  const Arguments defaults;
  std::string out = kExample;
  for (const FlagGroup& group : flag_groups()) {
    out += fmt::format("\n{}:\n", group.title());
    for (const Flag& flag : group.flags()) {
      const std::string meaning(flag.field.meaning);
      if (flag.is_switch) {
        add_line(out, "  " + flag.name(), meaning);
      } else {
        add_line(out, fmt::format("  {} {}", flag.name(), flag.is_text ? "TEXT" : "NUMBER"),
                 fmt::format("{} [{}]", meaning, default_of(flag, defaults)));
      }
    }
  }
  out += "\nAccepted without effect:\n";
  for (const IgnoredFlag& flag : ignored_flags()) add_line(out, "  " + flag.name, flag.meaning);
  return out;
}

std::string arguments_markdown() {
  const Arguments defaults;
  std::string out = "\n## Flags\n";
  for (const FlagGroup& group : flag_groups()) {
    out += fmt::format(
        "\n### {}\n\n| flag | value | default | meaning | YAML key |\n|---|---|---|---|---|\n",
        group.title());
    for (const Flag& flag : group.flags()) {
      const std::string value = default_of(flag, defaults);
      const std::string default_text = flag.is_switch                 ? ""
                                       : flag.field.codec->required() ? value
                                                                      : fmt::format("`{}`", value);
      out += fmt::format("| {} | {} | {} | {} | {} |\n", flag.name(),
                         flag.is_switch ? "" : flag.field.codec->type_name(), default_text,
                         flag.field.meaning, flag.yaml_key);
    }
  }
  out += "\n### Accepted without effect\n\n| flag | value | why |\n|---|---|---|\n";
  for (const IgnoredFlag& flag : ignored_flags()) {
    out += fmt::format("| {} | {} | {} |\n", flag.name, flag.has_value ? "any" : "", flag.meaning);
  }
  out += "\n### Refused\n\n| flag | instead |\n|---|---|\n";
  for (const RefusedFlag& flag : refused_flags())
    out += fmt::format("| {} | {} |\n", flag.name, flag.remedy);
  return out;
}

}  // namespace shardloom::config::megatron
