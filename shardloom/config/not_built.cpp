#include "shardloom/config/not_built.h"

#include <algorithm>

namespace shardloom::config {

// Remove a line once its feature is built. Keys of plans stay out: they are inert while their
// switch is off.
const std::vector<NotBuilt>& not_built_keys() {
  static const std::vector<NotBuilt> keys = {
      {"parallel.tensor_parallel_size", {"1"}, ""},
      {"parallel.tp_plan.colwise_parallel", {"[]"}, ""},
      {"parallel.tp_plan.rowwise_parallel", {"[]"}, ""},
      {"parallel.tp_plan.sequence_parallel", {"[]"}, ""},
      {"parallel.ring_attention_size", {"1"}, ""},
      {"parallel.recompute", {"false"}, "this is an older place; the switch is features.recompute"},
      {"parallel.fsdp_plan.param_dtype", {"null", "fp32", "bf16", "fp16"}, ""},
      {"parallel.fsdp_plan.reduce_dtype", {"null", "fp32", "bf16", "fp16"}, ""},
      {"parallel.fsdp_plan.pregather", {"false"}, ""},
      {"parallel.fsdp_plan.output_dtype", {"null", "fp32", "bf16", "fp16"}, ""},
      {"parallel.ep_plan.dispatcher", {"alltoall", "allgather"}, ""},
      {"parallel.ep_plan._gradient_divide_factor", {"null"}, ""},
      {"model.mtp_num_layers", {"0"}, ""},
      {"model.skip_flash_attn_recompute", {"null", "false"}, ""},
      {"model.gdn_implementation", {"null"}, ""},
      {"data.dataset_param.basic_parameters.template",
       {"null", "internvl2_5"},
       "use dataset_param.conv_style"},
      {"data.dataset_param.basic_parameters.chat_template",
       {"null"},
       "use dataset_param.conv_style"},
      {"data.dataset_param.basic_parameters.train_on_prompt", {"false"}, ""},
      {"data.dataset_param.basic_parameters.mask_history", {"false"}, ""},
      {"data.dataset_param.basic_parameters.packing", {"null", "false"}, ""},
      {"data.dataset_param.basic_parameters.neat_packing", {"false"}, ""},
      {"data.dataset_param.basic_parameters.streaming",
       {"false"},
       "files are mapped, not read into memory"},
      {"data.dataset_param.basic_parameters.tool_format", {"null"}, ""},
      {"data.dataset_param.basic_parameters.stage", {"null", "sft"}, ""},
      {"data.dataset_param.basic_parameters.val_dataset", {"null"}, ""},
      {"data.dataset_param.basic_parameters.val_max_samples", {"null"}, ""},
      {"data.dataset_param.basic_parameters.val_rate", {"null", "0.0"}, ""},
      {"data.dataset_param.preprocess_parameters.split_special_tokens", {"false"}, ""},
      {"data.dataset_param.preprocess_parameters.image_resolution",
       {"512"},
       "use dataset_param.image_size"},
      {"data.dataset_param.preprocess_parameters.video_resolution", {"128"}, ""},
      {"data.dataset_param.preprocess_parameters.image_max_pixels",
       {"589824"},
       "use dataset_param.max_dynamic_patch"},
      {"data.dataset_param.preprocess_parameters.image_min_pixels",
       {"1024"},
       "use dataset_param.min_dynamic_patch"},
      {"data.dataset_param.preprocess_parameters.video_max_pixels", {"65536"}, ""},
      {"data.dataset_param.preprocess_parameters.video_min_pixels", {"256"}, ""},
      {"data.dataset_param.preprocess_parameters.video_fps", {"2.0"}, ""},
      {"data.dataset_param.preprocess_parameters.video_maxlen", {"128"}, ""},
      {"data.dataset_param.preprocess_parameters.image_do_pan_and_scan", {"false"}, ""},
      {"data.dataset_param.preprocess_parameters.crop_to_patches",
       {"false"},
       "use dataset_param.max_dynamic_patch"},
      {"data.dataset_param.preprocess_parameters.use_audio_in_video", {"false"}, ""},
      {"data.dataset_param.preprocess_parameters.audio_sampling_rate", {"16000"}, ""},
      {"data.dataset_param.attr.formatting", {"sharegpt"}, ""},
      {"data.dataset_param.attr.observation_tag", {"observation"}, ""},
      {"data.dataset_param.attr.function_tag", {"function_call"}, ""},
      {"data.dataset_param.attr.videos", {"null"}, ""},
      {"data.dataset_param.attr.audios", {"null"}, ""},
      {"data.dataset_param.attr.tools", {"null"}, ""},
      {"data.dataset_param.attr.ranking", {"false"}, ""},
      {"data.dataset_param.attr.chosen", {"null"}, ""},
      {"data.dataset_param.attr.rejected", {"null"}, ""},
      {"data.dataset_param.attr.prompt", {"null"}, ""},
      {"data.dataset_param.attr.query", {"null"}, ""},
      {"data.dataset_param.attr.response", {"null"}, ""},
      {"data.dataset_param.attr.history", {"null"}, ""},
      {"data.dataloader_param.dataloader_mode", {"sampler"}, ""},
      {"data.dataloader_param.data_sharding", {"false"}, ""},
      {"features.loss_cfg.router_aux_loss_offload", {"false"}, ""},
      {"features.enable_chunk_mbs", {"false"}, ""},
      {"features.enable_ep_balance", {"false"}, ""},
      {"features.skip_moe_pad_tokens", {"false"}, ""},
      {"training.device", {"auto", "cpu"}, ""},
      {"training.lr_scaling_plan", {"null", "[]"}, ""},
      {"training.optimizer", {"adamw"}, ""},
      {"training.no_decay_modules", {"[]"}, ""},
      {"training.no_decay_params", {"[]"}, ""},
      {"training.load_rank0_and_broadcast", {"false"}, ""},
      {"training.metrics.grad_norm_per_layer", {"false"}, ""},
      {"training.metrics.token_stats", {"false"}, ""},
      {"training.metrics.token_stats_per_rank", {"false"}, ""},
      {"training.lora.enable", {"false"}, ""},
      {"training.quantization_plan.recipe_name", {"null"}, ""},
      {"training.profile.enable", {"false"}, "this is an older place; see tools.profile"},
      {"training.enable_full_determinism", {"null", "false"}, ""},
      {"training.ckpt_manager", {"null"}, "see save_format"},
      {"training.load_checkpoint_path", {"null"}, "use training.load"},
      {"training.save_steps", {"null"}, "use save_interval"},
      {"training.max_steps", {"null"}, "use train_iters"},
      {"tools.profile.enable", {"false"}, ""},
      {"tools.memory_profile.enable", {"false"}, ""},
      {"tools.tensorboard.enable", {"false"}, "set training.metrics_dir"},
  };
  return keys;
}

bool is_builtin_plugin(const std::string& plugin) {
  static const std::vector<std::string> builtin = {
      "mindspeed_mm/fsdp/models/internvl3_5",
      "mindspeed_mm/fsdp/data/datasets/internvl3_5",
  };
  std::string path = plugin;
  if (path.find('/') == std::string::npos) std::replace(path.begin(), path.end(), '.', '/');
  return std::find(builtin.begin(), builtin.end(), path) != builtin.end();
}

}  // namespace shardloom::config
