#include "shardloom/config/megatron/data_json.h"

#include <fmt/format.h>

#include "shardloom/config/megatron/document.h"
#include "shardloom/config/megatron/picture_pipeline.h"

namespace shardloom::config {
namespace {

// One section, or a list of them.
template <typename T>
class OneOrMoreCodec : public Codec {
 public:
  void read(const YamlNode& node,
            const std::string& path,
            void* target,
            ReadContext& context) const override {
    auto& values = *static_cast<std::vector<T>*>(target);
    if (node.kind == YamlNode::Kind::kSequence) {
      list_.read(node, path, target, context);
      if (values.empty()) context.problems.error(node.place, path + " is empty");
      return;
    }
    values.resize(1);
    context.sources[path] = node.place;
    section_of<T>().read(node, path, &values[0], context);
  }
  std::string dump(const void* target) const override { return list_.dump(target); }
  std::string type_name() const override { return "section or list of sections"; }
  bool required() const override { return true; }

 private:
  ListCodec<T> list_{Rule{}};
};

Rule repeat_rule() {
  Rule rule = above(0);
  rule.max = 1'000'000;
  return rule;
}

}  // namespace

template <>
const Section& section_of<megatron::DataSource>() {
  using T = megatron::DataSource;
  static const Section section =
      SectionBuilder<T>()
          .add("data_path", &T::data_path, "JSONL file of samples.", required())
          .add("data_folder", &T::data_folder,
               "Folder that image paths start from; empty is the working folder.")
          .add("repeat_time", &T::repeat_time,
               "Below 1 takes that part from the start, above 1 repeats the list.", repeat_rule());
  return section;
}

template <>
const Section& section_of<megatron::TransformParam>() {
  using T = megatron::TransformParam;
  static const Section section =
      SectionBuilder<T>()
          .add("mean", &T::mean, "Of norm_fun: [0.485, 0.456, 0.406]. Of Pad2Square: any.")
          .add("std", &T::std_, "Of norm_fun: [0.229, 0.224, 0.225].")
          .add("size", &T::size, "Of Resize: the side of a tile, twice.", at_least(1))
          .add("interpolation", &T::interpolation, "Of Resize: BICUBIC.")
          .add_without_effect("antialias", &T::antialias, "Of Resize; pictures always are.");
  return section;
}

template <>
const Section& section_of<megatron::ImageTransform>() {
  using T = megatron::ImageTransform;
  static const Section section =
      SectionBuilder<T>()
          .add("trans_type", &T::trans_type, "Pad2Square, Resize, ToTensor, norm_fun.", required())
          .add("param", &T::param, "Its parameters.");
  return section;
}

template <>
const Section& section_of<megatron::TrainPipeline>() {
  static const Section section = SectionBuilder<megatron::TrainPipeline>().add(
      "image", &megatron::TrainPipeline::image,
      "Pad2Square (may be left out), Resize, ToTensor, norm_fun, in this order. Another pipeline, "
      "size, interpolation, mean or std is refused.");
  return section;
}

template <>
const Section& section_of<megatron::MmPreprocessParameters>() {
  using T = megatron::MmPreprocessParameters;
  static const Section section =
      SectionBuilder<T>()
          .add("image_reader_type", &T::image_reader_type, "How pictures are read.",
               one_of({"torchvision"}))
          .add("train_pipeline", &T::train_pipeline, "From picture to values.");
  return section;
}

template <>
const Section& section_of<megatron::TokenizerConfig>() {
  using T = megatron::TokenizerConfig;
  static const Section section =
      SectionBuilder<T>()
          .add("from_pretrained", &T::from_pretrained,
               "Folder of the tokenizer; null is init_from_hf_path of model.json.", non_empty())
          .add_without_effect("hub_backend", &T::hub_backend, "Files are always local.")
          .add_without_effect("autotokenizer_name", &T::autotokenizer_name,
                              "The folder's files say it.")
          .add("add_eos_token", &T::add_eos_token,
               "Not supported, only false: the template ends each turn.")
          .add_without_effect("use_fast", &T::use_fast, "Both give the same tokens.");
  return section;
}

template <>
const Section& section_of<megatron::MmDatasetParam>() {
  using T = megatron::MmDatasetParam;
  static const char* const kVideo = "Of videos, which are not supported yet.";
  static const Section section =
      SectionBuilder<T>()
          .add("dataset_type", &T::dataset_type,
               "Name in the data set registry; multimodal is InternVL3.5's (internvl3_5).",
               required())
          .add_with(std::make_shared<OneOrMoreCodec<megatron::DataSource>>(), "basic_parameters",
                    &T::basic_parameters, "Files of samples, read one after the other.")
          .add("preprocess_parameters", &T::preprocess_parameters, "Pictures.")
          .add("tokenizer_config", &T::tokenizer_config, "The tokenizer.")
          .add("use_text_processer", &T::use_text_processer,
               "Make tokens of the text; only true is supported.")
          .add("template_name", &T::template_name, "Conversation template.",
               one_of({"internvl2_5"}))
          .add("patch_size", &T::patch_size, "Must be the model's; null is that.", at_least(1))
          .add("image_size", &T::image_size,
               "Side of a tile in pixels; must be the model's; null is that.", at_least(1))
          .add("down_sample_ratio", &T::down_sample_ratio, "Must be the model's; null is that.",
               above(0))
          .add("group_by_length", &T::group_by_length,
               "true pads a batch to its longest sample, false to --seq-length. Order and loss are "
               "the same.")
          .add("dynamic_image_size", &T::dynamic_image_size,
               "Cut pictures into tiles; false resizes each to one tile.")
          .add("use_thumbnail", &T::use_thumbnail,
               "Add the whole picture as one more tile when it is cut.")
          .add("min_dynamic_patch", &T::min_dynamic_patch, "Fewest tiles.", between(1, 1024))
          .add("max_dynamic_patch", &T::max_dynamic_patch,
               "Most tiles; 1 resizes a picture to one tile.", between(1, 1024))
          .add_without_effect("min_num_frame", &T::min_num_frame, kVideo)
          .add_without_effect("max_num_frame", &T::max_num_frame, kVideo)
          .add_without_effect("sampling_method", &T::sampling_method, kVideo)
          .add("on_bad_sample", &T::on_bad_sample,
               "A sample that cannot be used stops the run, or is left out and reported (ours).",
               one_of({"stop", "skip"}));
  return section;
}

template <>
const Section& section_of<megatron::MmCollateParam>() {
  using T = megatron::MmCollateParam;
  static const Section section =
      SectionBuilder<T>()
          .add_without_effect("model_name", &T::model_name,
                              "Each data set brings its own collate rule.")
          .add_without_effect("pad_id", &T::pad_id,
                              "Padding is masked by the length of a sample, never by a token's id, "
                              "so that text with this id stays visible.");
  return section;
}

template <>
const Section& section_of<megatron::MmDataloaderParam>() {
  using T = megatron::MmDataloaderParam;
  static const Section section =
      SectionBuilder<T>()
          .add("dataloader_mode", &T::dataloader_mode, "How batches are drawn.",
               one_of({"sampler"}))
          .add("sampler_type", &T::sampler_type, "Order of the samples.",
               one_of({"BaseRandomBatchSampler"}))
          .add("shuffle", &T::shuffle,
               "Draw each epoch in a new order; false reads the files in order.")
          .add("shuffle_seed", &T::shuffle_seed,
               "The order of an epoch follows from --seed and the epoch, or from the epoch alone "
               "(the order of the Python reference) (ours).",
               one_of({"training", "epoch"}))
          .add("drop_last", &T::drop_last,
               "Drop the incomplete last batch of an epoch; false is not possible.")
          .add("pin_memory", &T::pin_memory, "Pinned host memory for batches that go to a device.")
          .add("num_workers", &T::num_workers,
               "Threads that prepare samples; null is --num-workers (ours).", between(0, 4096))
          .add("collate_param", &T::collate_param, "How samples become a batch.");
  return section;
}

template <>
const Section& section_of<megatron::DataJson>() {
  using T = megatron::DataJson;
  static const Section section =
      SectionBuilder<T>()
          .add("dataset_param", &T::dataset_param, "The data.")
          .add("dataloader_param", &T::dataloader_param, "Order and threads.");
  return section;
}

}  // namespace shardloom::config

namespace shardloom::config::megatron {
namespace {

void check_text(const DataJson& data, Problems& problems) {
  const auto refuse = [&](const std::string& path, const char* message) {
    problems.error(place_in(data.sources, path), fmt::format("{} {}", path, message));
  };
  if (!data.dataset_param.use_text_processer) {
    refuse("dataset_param.use_text_processer", "is false, which is not supported; set it to true");
  }
  if (data.dataset_param.tokenizer_config.add_eos_token) {
    refuse("dataset_param.tokenizer_config.add_eos_token",
           "is true, which is not supported: the template ends each turn; set it to false");
  }
}

}  // namespace

DataJson parse_data_json(std::string_view text, const std::string& origin) {
  Problems problems;
  DataJson parsed = parse_json_document<DataJson>(text, origin, problems);
  if (problems.ok()) {
    check_text(parsed, problems);
    check_picture_pipeline(parsed, problems);
  }
  problems.throw_if_any();
  return parsed;
}

DataJson load_data_json(const std::filesystem::path& path) {
  return parse_data_json(read_document(path, "--mm-data"), path.string());
}

}  // namespace shardloom::config::megatron
