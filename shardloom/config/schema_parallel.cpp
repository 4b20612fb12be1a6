// The tables of the sections parallel and model.
#include "shardloom/config/schema_builder.h"

namespace shardloom::config {
namespace {

// Types by their names in YAML files; torch's are refused with the right one.
Rule float_type() {
  return one_of({"fp16", "bf16", "fp32", "fp64"}, {{"bfloat16", "write bf16"},
                                                   {"float16", "write fp16"},
                                                   {"half", "write fp16"},
                                                   {"float32", "write fp32"},
                                                   {"float", "write fp32"},
                                                   {"float64", "write fp64"}});
}

Rule size() { return between(1, 1'000'000); }

}  // namespace

template <>
const Section& section_of<TpPlan>() {
  static const Section section =
      SectionBuilder<TpPlan>()
          .add("colwise_parallel", &TpPlan::colwise_parallel, "Modules split by columns.")
          .add("rowwise_parallel", &TpPlan::rowwise_parallel, "Modules split by rows.")
          .add("sequence_parallel", &TpPlan::sequence_parallel,
               "Modules split along the sequence.");
  return section;
}

template <>
const Section& section_of<FsdpPlan>() {
  using T = FsdpPlan;
  static const Section section =
      SectionBuilder<T>()
          .add("apply_modules", &T::apply_modules,
               "Modules that become sharding units, as patterns; the order is the prefetch order "
               "and should be that of "
               "execution. Everything else belongs to the root unit.")
          .add("ignored_modules", &T::ignored_modules, "Modules left out of sharding.")
          .add("hook_modules", &T::hook_modules,
               "Parents that gather and free all their sub-units at once.")
          .add("param_dtype", &T::param_dtype,
               "Compute type: parameters are cast to it when they are gathered. null keeps the "
               "stored type. Stored "
               "parameters, reduced gradients and optimizer state are always fp32.",
               float_type())
          .add("reduce_dtype", &T::reduce_dtype,
               "Type in which gradients are reduced; null is param_dtype.", float_type())
          .add("output_dtype", &T::output_dtype,
               "Type that outputs of units are cast to; null leaves them.", float_type())
          .add("cast_forward_inputs", &T::cast_forward_inputs,
               "Cast floating-point inputs of units to param_dtype.")
          .add("reshard_after_forward", &T::reshard_after_forward,
               "Free gathered parameters after forward and gather them again for backward.")
          .add("num_to_forward_prefetch", &T::num_to_forward_prefetch,
               "Units gathered ahead in forward; 0 leaves the order to the run time.", at_least(0))
          .add("num_to_backward_prefetch", &T::num_to_backward_prefetch,
               "Units gathered ahead in backward; 0 leaves the order to the run time.", at_least(0))
          .add("pregather", &T::pregather, "Gather every unit before each step.")
          .add("cpu_offload", &T::cpu_offload, "Keep sharded parameters in pinned host memory.");
  return section;
}

template <>
const Section& section_of<EpPlan>() {
  using T = EpPlan;
  static const Section section =
      SectionBuilder<T>()
          .add("apply_modules", &T::apply_modules, "Modules that hold the experts, as patterns.")
          .add("apply_efsdp_modules", &T::apply_efsdp_modules,
               "Experts that are also sharded over their own mesh; empty is apply_modules.")
          .add("dispatcher", &T::dispatcher, "How tokens reach their experts.",
               one_of({"alltoall", "allgather", "mc2"}))
          .add_without_effect("use_npu_fused_ops", &T::use_npu_fused_ops,
                              "The fastest kernel of the device is always used.")
          .add("_gradient_divide_factor", &T::_gradient_divide_factor,
               "Divisor of expert gradients; null is the world size.", above(0));
  return section;
}

template <>
const Section& section_of<RecomputePlan>() {
  using T = RecomputePlan;
  static const Section section =
      SectionBuilder<T>()
          .add("apply_modules", &T::apply_modules,
               "Modules whose forward runs again in backward, as patterns.")
          .add("use_reentrant", &T::use_reentrant, "Recompute as a nested backward pass.")
          .add("op_replay_scopes", &T::op_replay_scopes,
               "Operations whose results are kept instead.");
  return section;
}

template <>
const Section& section_of<ParallelConfig>() {
  using T = ParallelConfig;
  static const Section section =
      SectionBuilder<T>()
          .add("data_parallel_size", &T::data_parallel_size,
               "Ranks that read different samples; if given, it must be world / (tensor * ring * "
               "ulysses).",
               size())
          .add_with(auto_int_codec(size()), "fully_shard_parallel_size",
                    &T::fully_shard_parallel_size,
                    "Ranks that share one copy of the parameters; auto is world / tensor.")
          .add("tensor_parallel_size", &T::tensor_parallel_size, "Tensor parallelism.", size())
          .add("tp_plan", &T::tp_plan, "Plan of tensor parallelism.")
          .add("ring_attention_size", &T::ring_attention_size, "Ring attention.", size())
          .add("ulysses_parallel_size", &T::ulysses_parallel_size,
               "Context parallelism: ranks that share one sequence.", size())
          .add("expert_parallel_size", &T::expert_parallel_size,
               "Ranks over which the experts are divided.", size())
          .add("expert_fully_shard_parallel_size", &T::expert_fully_shard_parallel_size,
               "Ranks that share one copy of an expert; null is world / (ep * edp).", size())
          .add("expert_data_parallel_size", &T::expert_data_parallel_size,
               "Copies of each expert; follows from expert_fully_shard_parallel_size where that "
               "alone is "
               "given.",
               size())
          .add_unused("recompute", &T::recompute, "Older place of features.recompute.")
          .add_unused("recompute_plan", &T::recompute_plan,
                      "Older place of features.recompute_plan.")
          .add("fsdp_plan", &T::fsdp_plan, "Plan of parameter sharding.")
          .add("ep_plan", &T::ep_plan, "Plan of expert parallelism.");
  return section;
}

template <>
const Section& section_of<ModelConfig>() {
  using T = ModelConfig;
  static const Section section =
      SectionBuilder<T>()
          .add("model_id", &T::model_id, "Name in the model registry, for example internvl3_5.",
               required())
          .add("model_name_or_path", &T::model_name_or_path,
               "Local folder with config.json and the tokenizer, and the weights unless "
               "training.load is set.",
               required())
          .add("num_hidden_layers", &T::num_hidden_layers,
               "Layers of the language model to keep; null keeps all.", at_least(1))
          .add("random_init", &T::random_init,
               "Start from random weights (seeded by training.seed) instead of loading any.")
          .add("freeze", &T::freeze,
               "Modules that are not trained, as patterns; all parameters below them are meant.")
          .add_without_effect(
              "attn_implementation", &T::attn_implementation,
              "Every choice computes the same exact attention here.",
              one_of({"eager", "sdpa", "flash_attention_2", "flash_attention_3", "native-sparse"}))
          .add_without_effect("trust_remote_code", &T::trust_remote_code,
                              "No Python code is ever run.")
          .add("mtp_num_layers", &T::mtp_num_layers, "Multi-token prediction layers.", at_least(0))
          .add("mtp_loss_scaling_factor", &T::mtp_loss_scaling_factor,
               "Weight of the multi-token prediction loss.", at_least(0))
          .add_without_effect("use_grouped_expert_matmul", &T::use_grouped_expert_matmul,
                              "Experts are always computed as grouped matrix products.")
          .add("skip_flash_attn_recompute", &T::skip_flash_attn_recompute,
               "Keep attention results in recompute.")
          .add("gdn_implementation", &T::gdn_implementation, "Kernel of gated delta-net layers.");
  return section;
}

}  // namespace shardloom::config
