// The tables of the section data.
#include "shardloom/config/schema_builder.h"

namespace shardloom::config {

template <>
const Section& section_of<BasicParameters>() {
  using T = BasicParameters;
  static const Section section =
      SectionBuilder<T>()
          .add_with(paths_codec(required()), "dataset", &T::dataset,
                    "JSONL files: one path, several separated by commas, or a list. A "
                    "path with a comma must "
                    "stand in a list.")
          .add("dataset_dir", &T::dataset_dir, "Folder that image paths are relative to.",
               non_empty())
          .add("cutoff_len", &T::cutoff_len, "Longest sequence in tokens.", at_least(1))
          .add("max_samples", &T::max_samples, "Use only the first samples; null uses all.",
               at_least(1))
          .add("template", &T::template_, "Conversation template; see conv_style.")
          .add("chat_template", &T::chat_template, "Chat template text.")
          .add_without_effect("enable_thinking", &T::enable_thinking,
                              "The conversation template has no thinking switch.")
          .add("train_on_prompt", &T::train_on_prompt, "Train on the questions too.")
          .add("mask_history", &T::mask_history, "Train on the last answer only.")
          .add("packing", &T::packing, "Several samples in one sequence.")
          .add("neat_packing", &T::neat_packing, "Packing without attention across samples.")
          .add("streaming", &T::streaming, "Read the data as a stream without random access.")
          .add("tool_format", &T::tool_format, "Format of tool calls.")
          .add("stage", &T::stage, "Kind of training; null is sft.",
               one_of({"sft", "pretrain", "rm"}))
          .add("val_dataset", &T::val_dataset, "Files of the validation data.")
          .add("val_max_samples", &T::val_max_samples, "Validation samples to use.", at_least(1))
          .add("val_rate", &T::val_rate, "Share of the samples kept for validation.",
               between_half_open(0, 1))
          .add_without_effect("cache_dir", &T::cache_dir,
                              "Samples are prepared on the fly; there is no cache.")
          .add_without_effect("overwrite_cache", &T::overwrite_cache, "There is no cache.")
          .add_without_effect("preprocessing_batch_size", &T::preprocessing_batch_size,
                              "There is no preprocessing pass.", at_least(1))
          .add_without_effect("preprocessing_num_workers", &T::preprocessing_num_workers,
                              "There is no preprocessing pass; see dataloader_param.num_workers.",
                              at_least(1))
          .add_without_effect("preprocess_on_fly", &T::preprocess_on_fly, "Always so.")
          .add_without_effect("async_preprocess", &T::async_preprocess,
                              "Always so; see dataloader_param.num_workers.")
          .add_without_effect("async_preprocess_buffer_size", &T::async_preprocess_buffer_size,
                              "See dataloader_param.prefetch_factor.", at_least(1));
  return section;
}

template <>
const Section& section_of<PreprocessParameters>() {
  using T = PreprocessParameters;
  static const Section section =
      SectionBuilder<T>()
          .add("model_name_or_path", &T::model_name_or_path,
               "Tokenizer folder; null is model.model_name_or_path.", non_empty())
          .add_without_effect("use_fast_tokenizer", &T::use_fast_tokenizer,
                              "There is one tokenizer.")
          .add("split_special_tokens", &T::split_special_tokens,
               "Encode special tokens as plain text.")
          .add("image_resolution", &T::image_resolution, "See dataset_param.image_size.",
               at_least(1))
          .add("video_resolution", &T::video_resolution, "Video size.", at_least(1))
          .add("image_max_pixels", &T::image_max_pixels, "See dataset_param.max_dynamic_patch.",
               at_least(0))
          .add("image_min_pixels", &T::image_min_pixels, "See dataset_param.min_dynamic_patch.",
               at_least(0))
          .add("video_max_pixels", &T::video_max_pixels, "Largest video frame.", at_least(0))
          .add("video_min_pixels", &T::video_min_pixels, "Smallest video frame.", at_least(0))
          .add("video_fps", &T::video_fps, "Frames per second taken from a video.", above(0))
          .add("video_maxlen", &T::video_maxlen, "Most frames of a video.", at_least(1))
          .add("image_do_pan_and_scan", &T::image_do_pan_and_scan, "Pan and scan.")
          .add("crop_to_patches", &T::crop_to_patches, "See dataset_param.max_dynamic_patch.")
          .add("use_audio_in_video", &T::use_audio_in_video, "Use the sound of videos.")
          .add("audio_sampling_rate", &T::audio_sampling_rate, "Samples per second of audio.",
               at_least(1))
          .add_without_effect("trust_remote_code", &T::trust_remote_code,
                              "No Python code is ever run.");
  return section;
}

template <>
const Section& section_of<DatasetAttr>() {
  using T = DatasetAttr;
  static const Section section =
      SectionBuilder<T>()
          .add("formatting", &T::formatting, "Form of a record.",
               one_of({"sharegpt", "alpaca", "multimodal_tool", "openai"}))
          .add("messages", &T::messages, "Key of the list of turns.", non_empty())
          .add("role_tag", &T::role_tag, "Key of a turn's role.", non_empty())
          .add("content_tag", &T::content_tag, "Key of a turn's text.", non_empty())
          .add("user_tag", &T::user_tag, "Role of questions.", non_empty())
          .add("assistant_tag", &T::assistant_tag, "Role of answers.", non_empty())
          .add("system_tag", &T::system_tag, "Role of the system text.", non_empty())
          .add("images", &T::images, "Key of the image paths; null is image.", non_empty())
          .add("observation_tag", &T::observation_tag, "Role of tool results.")
          .add("function_tag", &T::function_tag, "Role of tool calls.")
          .add("videos", &T::videos, "Key of the video paths.")
          .add("audios", &T::audios, "Key of the audio paths.")
          .add("tools", &T::tools, "Key of the tool list.")
          .add("system", &T::system, "Key of a system text beside the turns.")
          .add("ranking", &T::ranking, "Records hold a chosen and a rejected answer.")
          .add("chosen", &T::chosen, "Key of the chosen answer.")
          .add("rejected", &T::rejected, "Key of the rejected answer.")
          .add("prompt", &T::prompt, "Key of the prompt (alpaca).")
          .add("query", &T::query, "Key of the query (alpaca).")
          .add("response", &T::response, "Key of the response (alpaca).")
          .add("history", &T::history, "Key of the history (alpaca).");
  return section;
}

template <>
const Section& section_of<DatasetParam>() {
  using T = DatasetParam;
  static const Section section =
      SectionBuilder<T>()
          .add("dataset_type", &T::dataset_type,
               "Name in the data set registry, for example internvl3_5.", required())
          .add("image_size", &T::image_size,
               "Side of a tile in pixels; null is the model's force_image_size.", at_least(1))
          .add("min_dynamic_patch", &T::min_dynamic_patch, "Fewest tiles an image is cut into.",
               between(1, 1024))
          .add("max_dynamic_patch", &T::max_dynamic_patch,
               "Most tiles an image is cut into; 1 resizes it to one tile.", between(1, 1024))
          .add("use_thumbnail", &T::use_thumbnail,
               "Add the whole image as one more tile when it is cut.")
          .add("conv_style", &T::conv_style, "Conversation template.", one_of({"internvl2_5"}))
          .add("system_message", &T::system_message, "System text instead of the template's own.")
          .add("pad_to", &T::pad_to, "Pad a batch to its longest sample or to cutoff_len.",
               one_of({"longest", "cutoff_len"}))
          .add("on_bad_sample", &T::on_bad_sample,
               "A sample that cannot be used stops the run, or is left out and reported.",
               one_of({"stop", "skip"}))
          .add("structural_tokens", &T::structural_tokens,
               "Special tokens typed inside a message are an error, or are encoded as plain text.",
               one_of({"error", "plain"}))
          .add("apply_exif_orientation", &T::apply_exif_orientation,
               "Turn images as their EXIF data says.")
          .add("scale_16bit", &T::scale_16bit,
               "Scale 16-bit gray images instead of clipping them at 255.")
          .add("basic_parameters", &T::basic_parameters, "Files and lengths.")
          .add("preprocess_parameters", &T::preprocess_parameters, "Tokenizer and media.")
          .add("attr", &T::attr, "Names of the keys and roles in a record.");
  return section;
}

template <>
const Section& section_of<CollateParam>() {
  using T = CollateParam;
  static const Section section =
      SectionBuilder<T>()
          .add_without_effect("collator_id", &T::collator_id,
                              "Each data set brings its own collate rule.")
          .add_without_effect("model_name", &T::model_name, "Older name of collator_id.")
          .add_without_effect("ignore_pad_token_for_loss", &T::ignore_pad_token_for_loss,
                              "Padding never enters the loss.")
          .add_without_effect(
              "pad_to_multiple_of", &T::pad_to_multiple_of,
              "Padding is masked, so its amount changes no result; see dataset_param.pad_to.",
              at_least(1));
  return section;
}

template <>
const Section& section_of<DataloaderParam>() {
  using T = DataloaderParam;
  static const Section section =
      SectionBuilder<T>()
          .add("dataloader_mode", &T::dataloader_mode, "How batches are drawn.",
               one_of({"sampler", "base"}))
          .add("sampler_type", &T::sampler_type, "Order of the samples.",
               one_of({"BaseRandomBatchSampler"}))
          .add("shuffle", &T::shuffle,
               "Draw each epoch in a new order; false reads the file in order.")
          .add("shuffle_seed", &T::shuffle_seed,
               "The order of an epoch follows from training.seed and the epoch, or from the epoch "
               "alone (the order of "
               "the Python reference).",
               one_of({"training", "epoch"}))
          .add("drop_last", &T::drop_last,
               "Drop the incomplete last batch of an epoch; false is not possible.")
          .add("pin_memory", &T::pin_memory, "Pinned host memory for batches that go to a device.")
          .add("num_workers", &T::num_workers,
               "Threads that prepare samples; 0 prepares them in the training thread.",
               between(0, 4096))
          .add("prefetch_factor", &T::prefetch_factor,
               "Batches prepared ahead per thread; null is 2.", between(1, 4096))
          .add("data_sharding", &T::data_sharding, "Each rank shuffles its own part of the data.")
          .add_without_effect("enable_preload", &T::enable_preload,
                              "Batches are always prepared in the background.")
          .add_without_effect("persistent_workers", &T::persistent_workers,
                              "Threads always live as long as the run.")
          .add("collate_param", &T::collate_param, "How samples become a batch.");
  return section;
}

template <>
const Section& section_of<DataConfig>() {
  using T = DataConfig;
  static const Section section =
      SectionBuilder<T>()
          .add("dataset_param", &T::dataset_param, "The training data.")
          .add("val_dataset_param", &T::val_dataset_param,
               "The validation data, with the keys of dataset_param; read when "
               "training.val_interval is set.")
          .add("dataloader_param", &T::dataloader_param, "Order and threads.");
  return section;
}

}  // namespace shardloom::config
