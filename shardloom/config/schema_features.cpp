// The tables of the sections features and tools.
#include "shardloom/config/schema_builder.h"

namespace shardloom::config {

template <>
const Section& section_of<LossCfg>() {
  using T = LossCfg;
  static const Section section =
      SectionBuilder<T>()
          .add("loss_type", &T::loss_type,
               "Normalisation of the loss, always over the global batch. raw, default and "
               "per_token_loss: mean over all targets. per_sample_loss: mean over the samples with "
               "targets of each sample's mean. square_loss: samples weighted by 1 / sqrt(targets).",
               one_of({"raw", "default", "per_sample_loss", "per_token_loss", "square_loss"},
                      {{"custom", "the model's own loss is called raw"},
                       {"token_loss", "did you mean per_token_loss?"}}))
          .add("router_aux_loss_coef", &T::router_aux_loss_coef,
               "Weight of the router's load-balancing loss.", at_least(0))
          .add("router_aux_loss_offload", &T::router_aux_loss_offload,
               "Keep router logits in host memory.");
  return section;
}

template <>
const Section& section_of<ChunklossPlan>() {
  using T = ChunklossPlan;
  static const Section section =
      SectionBuilder<T>()
          .add("apply_module", &T::apply_module, "The output layer, as one pattern.", non_empty())
          .add("chunk_size", &T::chunk_size, "Positions per chunk.", at_least(1))
          .add("total_chunk_size", &T::total_chunk_size, "Positions x samples per chunk (dynamic).",
               at_least(1))
          .add("impl_type", &T::impl_type, "Implementation.", one_of({"legacy", "cce"}))
          .add("vocab_tile_size", &T::vocab_tile_size, "Vocabulary entries per tile (cce).",
               at_least(1));
  return section;
}

template <>
const Section& section_of<ActivationOffloadPlan>() {
  using T = ActivationOffloadPlan;
  static const Section section =
      SectionBuilder<T>()
          .add("apply_modules", &T::apply_modules,
               "Modules whose input moves to host memory until backward, in execution order, as "
               "patterns.")
          .add("impl", &T::impl, "Implementation.", one_of({"legacy", "stash"}));
  return section;
}

template <>
const Section& section_of<ChunkmbsPlan>() {
  using T = ChunkmbsPlan;
  static const Section section =
      SectionBuilder<T>()
          .add("apply_modules", &T::apply_modules,
               "Modules that run on slices of the batch, as patterns.")
          .add("chunk_mbs", &T::chunk_mbs, "Samples per slice.", at_least(1))
          .add("batch_dim", &T::batch_dim, "Batch dimension of the arguments.", at_least(0))
          .add("chunk_arg_indexs", &T::chunk_arg_indexs, "Positional arguments to slice.",
               at_least(0))
          .add("chunk_kwarg_names", &T::chunk_kwarg_names, "Named arguments to slice.");
  return section;
}

template <>
const Section& section_of<EpBalancePlan>() {
  static const Section section = SectionBuilder<EpBalancePlan>().add(
      "max_dup_experts_num", &EpBalancePlan::max_dup_experts_num,
      "Most copies of busy experts per rank.", at_least(0));
  return section;
}

template <>
const Section& section_of<SwapPlan>() {
  using T = SwapPlan;
  static const Section section =
      SectionBuilder<T>()
          .add("capacity_mb", &T::capacity_mb, "Device memory kept for swapped tensors.",
               at_least(0))
          .add("keep_rate", &T::keep_rate, "Share that stays on the device.", between(0, 1))
          .add("enable_prefetch", &T::enable_prefetch, "Bring tensors back ahead of their use.")
          .add("cpu_arena_slab_size_mb", &T::cpu_arena_slab_size_mb, "Host memory taken at a time.",
               at_least(1))
          .add("cpu_arena_pool_policy", &T::cpu_arena_pool_policy, "Host memory policy.")
          .add("pin_memory", &T::pin_memory, "Pinned host memory.")
          .add("eviction_policy", &T::eviction_policy, "Which tensor leaves first.",
               one_of({"fifo", "belady"}));
  return section;
}

template <>
const Section& section_of<FeaturesConfig>() {
  using T = FeaturesConfig;
  static const Section section =
      SectionBuilder<T>()
          .add("loss_cfg", &T::loss_cfg, "The loss.")
          .add("recompute", &T::recompute,
               "Run forward again in backward instead of keeping activations.")
          .add("recompute_plan", &T::recompute_plan, "Plan of recompute.")
          .add("enable_chunk_loss", &T::enable_chunk_loss,
               "Compute logits and loss in chunks of the sequence.")
          .add("enable_dynamic_chunk_loss", &T::enable_dynamic_chunk_loss,
               "Choose the chunk from total_chunk_size and the batch.")
          .add("chunkloss_plan", &T::chunkloss_plan, "Plan of the chunked loss.")
          .add("enable_activation_offload", &T::enable_activation_offload,
               "Move activations to host memory between forward and backward.")
          .add("activation_offload_plan", &T::activation_offload_plan,
               "Plan of activation offload.")
          .add("swap_plan", &T::swap_plan, "Memory of activation offload with impl: stash.")
          .add("enable_chunk_mbs", &T::enable_chunk_mbs, "Run modules on slices of the batch.")
          .add("chunkmbs_plan", &T::chunkmbs_plan, "Plan of enable_chunk_mbs.")
          .add("enable_ep_balance", &T::enable_ep_balance, "Copy busy experts to other ranks.")
          .add("ep_balance_plan", &T::ep_balance_plan, "Plan of enable_ep_balance.")
          .add("skip_moe_pad_tokens", &T::skip_moe_pad_tokens, "Leave padding out of the experts.");
  return section;
}

template <>
const Section& section_of<StaticProfileParam>() {
  using T = StaticProfileParam;
  static const Section section =
      SectionBuilder<T>()
          .add("level", &T::level, "Detail.", one_of({"level0", "level1", "level2"}))
          .add("with_stack", &T::with_stack, "Record call stacks.")
          .add("with_memory", &T::with_memory, "Record memory.")
          .add("record_shapes", &T::record_shapes, "Record tensor shapes.")
          .add("with_cpu", &T::with_cpu, "Record host activity.")
          .add("save_path", &T::save_path, "Folder of the traces.", non_empty())
          .add("start_step", &T::start_step, "First step.", at_least(0))
          .add("end_step", &T::end_step, "First step that is not recorded.", at_least(0))
          .add("data_simplification", &T::data_simplification, "Drop raw data.")
          .add("aic_metrics_type", &T::aic_metrics_type, "Counters of the device.",
               one_of({"PipeUtilization", "ArithmeticUtilization"}))
          .add("analyse_flag", &T::analyse_flag, "Analyse at the end.");
  return section;
}

template <>
const Section& section_of<ProfileConfig>() {
  using T = ProfileConfig;
  static const Section section =
      SectionBuilder<T>()
          .add("enable", &T::enable, "Write a time line of some steps.")
          .add("profile_type", &T::profile_type, "Kind of profile.", one_of({"static", "dynamic"}))
          .add("ranks", &T::ranks, "Ranks that are profiled; [-1] is all.", at_least(-1))
          .add("static_param", &T::static_param, "Settings of the time line.");
  return section;
}

template <>
const Section& section_of<MemoryProfileConfig>() {
  using T = MemoryProfileConfig;
  static const Section section =
      SectionBuilder<T>()
          .add("enable", &T::enable, "Record memory allocations.")
          .add("start_step", &T::start_step, "First step.", at_least(0))
          .add("end_step", &T::end_step, "Step at which the record is written.", at_least(0))
          .add("save_path", &T::save_path, "Folder of the records.", non_empty())
          .add("dump_ranks", &T::dump_ranks, "Ranks that write.", at_least(-1))
          .add("stacks", &T::stacks, "Call stacks.", one_of({"all", "python"}))
          .add("max_entries", &T::max_entries, "Most entries; null is no limit.", at_least(1))
          .add("mem_info", &T::mem_info, "Print peak memory of each step.");
  return section;
}

template <>
const Section& section_of<TensorboardConfig>() {
  using T = TensorboardConfig;
  static const Section section =
      SectionBuilder<T>()
          .add("enable", &T::enable, "Write TensorBoard events; see also training.metrics_dir.")
          .add("dir", &T::dir, "Folder of the events.");
  return section;
}

template <>
const Section& section_of<ToolsConfig>() {
  using T = ToolsConfig;
  static const Section section = SectionBuilder<T>()
                                     .add("profile", &T::profile, "Time profile.")
                                     .add("memory_profile", &T::memory_profile, "Memory profile.")
                                     .add("tensorboard", &T::tensorboard, "TensorBoard.");
  return section;
}

}  // namespace shardloom::config
