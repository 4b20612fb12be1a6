#include "shardloom/config/megatron/reference.h"

#include "shardloom/config/megatron/arguments.h"
#include "shardloom/config/megatron/data_json.h"
#include "shardloom/config/megatron/fsdp2_config.h"
#include "shardloom/config/megatron/model_json.h"
#include "shardloom/config/reference.h"
#include "shardloom/config/schema_builder.h"

namespace shardloom::config {

// Defined beside their readers.
template <>
const Section& section_of<megatron::Fsdp2Config>();
template <>
const Section& section_of<megatron::ModelJson>();
template <>
const Section& section_of<megatron::DataSource>();
template <>
const Section& section_of<megatron::TransformParam>();
template <>
const Section& section_of<megatron::DataJson>();

}  // namespace shardloom::config

namespace shardloom::config::megatron {
namespace {

constexpr const char* kIntroduction = R"(# Megatron-style path: flags and files

Generated from the tables by `pretrain_transformers --reference > docs/megatron.md`; do not edit.

A run is a command line in Megatron's flags and three files: `fsdp2_config.yaml` (sharding), `model.json` (model and loss) and
`data.json` (data). They are translated into the configuration of `shardloom train` ([reference](config.md)), so that both
paths train with the same code and give the same numbers.

- Unknown flags and keys, wrong types, missing values and contradictions are errors; all faults of the command line are reported
  at once, then all of the files, with line and column.
- Defaults are Megatron's (for example `--seed 1234`, `--weight-decay 0.01`, `--lr-decay-style linear`, `--log-interval 100`).
- JSON files are plain JSON (no comments, no comma behind the last entry), with the types of the YAML file. Keys and flags marked
  *(ours)* are not in the Python reference.
- Module patterns are those of the YAML file: whole module names without the prefix `model.`, with `{*}`, `{a-b}` and
  `{0-20,25,30-40}` for an index. A pattern that matches nothing is an error.
- What would give another result than asked for is refused by name: another picture pipeline, size, mean or interpolation, an
  incomplete last batch, a linear decay to another rate than 0.

Status of a key: empty = supported; *no effect* = accepted so that existing files load, nothing here depends on it.
)";

template <typename T>
std::string part(const std::string& title, const std::string& introduction = "") {
  const T defaults;
  return "\n" + title + "\n" + introduction + section_markdown(section_of<T>(), &defaults, "###");
}

}  // namespace

std::string reference_markdown() {
  return kIntroduction + arguments_markdown() +
         part<Fsdp2Config>("## fsdp2_config.yaml", "\nGiven by `--fsdp2-config-path`.\n") +
         part<ModelJson>("## model.json", "\nGiven by `--mm-model`.\n") +
         part<DataJson>("## data.json", "\nGiven by `--mm-data`.\n") +
         part<DataSource>("### An entry of dataset_param.basic_parameters") +
         part<TransformParam>("### param of a step of train_pipeline.image");
}

}  // namespace shardloom::config::megatron
