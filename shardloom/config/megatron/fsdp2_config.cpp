#include "shardloom/config/megatron/fsdp2_config.h"

#include <fmt/format.h>

#include "shardloom/config/megatron/document.h"

namespace shardloom::config {
namespace {

// A key that is given without a value keeps its default.
class NullKeepsDefault : public Codec {
 public:
  explicit NullKeepsDefault(std::shared_ptr<const Codec> inner) : inner_(std::move(inner)) {}

  void read(const YamlNode& node,
            const std::string& path,
            void* target,
            ReadContext& context) const override {
    if (node.kind == YamlNode::Kind::kNull) {
      context.sources[path] = node.place;
    } else {
      inner_->read(node, path, target, context);
    }
  }
  std::string dump(const void* target) const override { return inner_->dump(target); }
  std::string type_name() const override { return inner_->type_name() + " or null"; }

 private:
  std::shared_ptr<const Codec> inner_;
};

std::shared_ptr<const Codec> modules() {
  return std::make_shared<NullKeepsDefault>(make_codec<Patterns>({}));
}

const Rule& float_type() {
  static const Rule rule = one_of({"fp16", "bf16", "fp32", "fp64"});
  return rule;
}

}  // namespace

template <>
const Section& section_of<megatron::Fsdp2Config>() {
  using T = megatron::Fsdp2Config;
  static const Section section =
      SectionBuilder<T>()
          .add_with(
              std::make_shared<NullKeepsDefault>(auto_int_codec(between(1, 1'000'000))),
              "sharding_size", &T::sharding_size,
              "Ranks that share one copy of the parameters; null is 1 (each has all), auto is all.")
          .add_with(modules(), "sub_modules_to_wrap", &T::sub_modules_to_wrap,
                    "Units of parameters, in the order in which they run, as patterns.")
          .add_with(modules(), "ignored_modules", &T::ignored_modules,
                    "Modules whose parameters are not sharded, as patterns.")
          .add("reshard_after_forward", &T::reshard_after_forward,
               "Free gathered parameters between forward and backward.")
          .add("param_dtype", &T::param_dtype,
               "Type of gathered parameters and of the computation; null keeps the stored one.",
               float_type())
          .add("reduce_dtype", &T::reduce_dtype,
               "Type in which gradients are reduced; null is param_dtype.", float_type())
          .add("output_dtype", &T::output_dtype,
               "Type that outputs of units are cast to; null leaves them.", float_type())
          .add("cast_forward_inputs", &T::cast_forward_inputs,
               "Cast floating-point inputs of units to param_dtype.")
          .add("offload_to_cpu", &T::offload_to_cpu,
               "Keep shards, gradients and optimizer in host memory.")
          .add_without_effect("pin_memory", &T::pin_memory,
                              "Of offload_to_cpu; host memory is pinned where it helps.")
          .add("num_to_forward_prefetch", &T::num_to_forward_prefetch,
               "Units gathered ahead in forward.", at_least(0))
          .add("num_to_backward_prefetch", &T::num_to_backward_prefetch,
               "Units gathered ahead in backward.", at_least(0))
          .add_with(modules(), "recompute_modules", &T::recompute_modules,
                    "Modules that run again in backward, as patterns.")
          .add("use_reentrant", &T::use_reentrant, "How they run again; the result is the same.")
          .add("align_fsdp_param_groups", &T::align_fsdp_param_groups,
               "Not supported yet, only false.")
          .add("expert_parallel_size", &T::expert_parallel_size,
               "Ranks over which the experts are divided.", between(1, 1'000'000))
          .add("reshard_local_experts", &T::reshard_local_experts,
               "Shard a rank's experts over the ranks that have the same ones; false keeps them "
               "whole.")
          .add_with(modules(), "moe_modules", &T::moe_modules,
                    "Modules that hold the experts, as patterns.");
  return section;
}

}  // namespace shardloom::config

namespace shardloom::config::megatron {

Fsdp2Config parse_fsdp2_config(std::string_view text, const std::string& origin) {
  Problems problems;
  Fsdp2Config parsed = parse_document<Fsdp2Config>(text, origin, problems);
  if (parsed.align_fsdp_param_groups) {
    problems.error(place_in(parsed.sources, "align_fsdp_param_groups"),
                   "align_fsdp_param_groups: true is not supported yet (here it must be false)");
  }
  problems.throw_if_any();
  return parsed;
}

Fsdp2Config load_fsdp2_config(const std::filesystem::path& path) {
  return parse_fsdp2_config(read_document(path, "--fsdp2-config-path"), path.string());
}

}  // namespace shardloom::config::megatron
