#include "shardloom/config/megatron/arguments.h"

#include <fmt/format.h>

#include <map>

#include "shardloom/base/strings.h"
#include "shardloom/config/megatron/flags.h"

namespace shardloom::config::megatron {
namespace {

Place place_of(std::string text) {
  return Place{std::make_shared<const std::string>(std::move(text))};
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const FlagGroup& group : flag_groups()) {
    for (const Flag& flag : group.flags()) names.push_back(flag.name());
  }
  for (const IgnoredFlag& flag : ignored_flags()) names.push_back(flag.name);
  return names;
}

const Flag* find_flag(const std::string& name) {
  for (const FlagGroup& group : flag_groups()) {
    for (const Flag& flag : group.flags()) {
      if (flag.name() == name) return &flag;
    }
  }
  return nullptr;
}

template <typename Row>
const Row* find_row(const std::vector<Row>& rows, const std::string& name) {
  for (const Row& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

class Parser {
 public:
  explicit Parser(const std::vector<std::string>& tokens) : tokens_(tokens) {}

  Arguments run() {
    while (next_ < tokens_.size()) read_one();
    if (!parsed_.help && !parsed_.reference) {
      check_required();
      check_supported();
    }
    if (!parsed_.help) problems_.throw_if_any();
    return std::move(parsed_);
  }

 private:
  void error(const std::string& message) { problems_.error(place_of("command line"), message); }

  void read_one() {
    const std::string& token = tokens_[next_++];
    if (token == "-h") {
      parsed_.help = true;
      return;
    }
    if (!token.starts_with("--")) {
      error(fmt::format("expected a flag such as --lr, got \"{}\"", token));
      return;
    }
    const size_t equals = token.find('=');
    const std::string name = token.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = token.substr(equals + 1);
    if (const Flag* flag = find_flag(name)) {
      if (take_value(name, !flag->is_switch, value) && is_new(name, value)) store(*flag, value);
    } else if (const IgnoredFlag* ignored = find_row(ignored_flags(), name)) {
      take_value(name, ignored->has_value, value);
    } else {
      if (!value) take_optional_value();
      const RefusedFlag* refused = find_row(refused_flags(), name);
      error(refused != nullptr
                ? fmt::format("{} is not supported; {}", name, refused->remedy)
                : fmt::format("unknown flag {}{}", name, did_you_mean(name, all_names())));
    }
  }

  // Takes the token behind the flag where the flag has a value; false after a fault.
  bool take_value(const std::string& name, bool wanted, std::optional<std::string>& value) {
    if (!wanted) {
      if (value) error(fmt::format("{} takes no value, got \"{}\"", name, *value));
      return !value;
    }
    if (!value) value = take_optional_value();
    if (!value) {
      error(fmt::format("{} needs a value", name));
      given_.emplace(name, "");
    }
    return value.has_value();
  }

  std::optional<std::string> take_optional_value() {
    if (next_ >= tokens_.size() || tokens_[next_].starts_with("--")) return std::nullopt;
    return tokens_[next_++];
  }

  // False for a repetition; one with another value is a fault.
  bool is_new(const std::string& name, const std::optional<std::string>& value) {
    const std::string text = value.value_or("");
    const auto [it, added] = given_.emplace(name, text);
    if (!added && it->second != text) {
      error(fmt::format("{} is given twice: {} and {}", name, it->second, text));
    }
    return added;
  }

  void store(const Flag& flag, const std::optional<std::string>& value) {
    YamlNode node;
    node.kind = YamlNode::Kind::kScalar;
    node.place = place_of("command line");
    node.text = value.value_or("true");
    node.quoted = flag.is_text;
    Sources unused;
    ReadContext context{problems_, unused};
    flag.field.codec->read(node, flag.name(), flag.field.get(&parsed_), context);
    parsed_.sources[flag.field.name] =
        place_of(value ? fmt::format("{} {}", flag.name(), *value) : flag.name());
  }

  void check_required() {
    for (const FlagGroup& group : flag_groups()) {
      for (const Flag& flag : group.flags()) {
        if (flag.field.codec->required() && !given_.contains(flag.name()))
          error(flag.name() + " is missing");
      }
    }
    if (!parsed_.use_torch_fsdp2)
      error("--use-torch-fsdp2 is missing; training without fully_shard is not supported");
    if (!parsed_.untie_embeddings_and_output_weights) {
      error(
          "--untie-embeddings-and-output-weights is missing; an output layer that shares the "
          "embedding's weights is not supported");
    }
  }

  void check_supported() {
    const auto only_one = [&](const char* name, int64_t value) {
      if (value != 1) error(fmt::format("{} {} is not supported yet; only 1 is", name, value));
    };
    only_one("--tensor-model-parallel-size", parsed_.tensor_model_parallel_size);
    only_one("--pipeline-model-parallel-size", parsed_.pipeline_model_parallel_size);
    if (parsed_.calculate_per_sample_loss && parsed_.calculate_per_token_loss) {
      error(
          "--calculate-per-sample-loss and --calculate-per-token-loss are both given; remove one "
          "of them");
    }
    if (parsed_.bf16 && parsed_.fp16) error("--bf16 and --fp16 are both given; remove one of them");
  }

  const std::vector<std::string>& tokens_;
  size_t next_ = 0;
  Arguments parsed_;
  std::map<std::string, std::string> given_;
  Problems problems_;
};

}  // namespace

Arguments parse_arguments(const std::vector<std::string>& args) { return Parser(args).run(); }

}  // namespace shardloom::config::megatron
