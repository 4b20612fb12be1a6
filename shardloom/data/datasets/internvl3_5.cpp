#include "shardloom/data/datasets/internvl3_5.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "shardloom/base/log.h"
#include "shardloom/data/collate.h"
#include "shardloom/data/sha256.h"

namespace shardloom::data {
namespace {

using tokenizer::kIgnoredLabel;

std::vector<std::filesystem::path> to_paths(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

// (image_size / patch)^2 patches, of which pixel shuffle makes downsample_ratio^2 as many tokens.
int64_t count_tokens_per_tile(int64_t image_size, const ModelFacts& facts) {
  const double side = static_cast<double>(image_size) / static_cast<double>(facts.patch_size) *
                      facts.downsample_ratio;
  if (image_size < 1 || image_size % facts.patch_size != 0 || side != std::floor(side)) {
    throw ConfigError(
        "data.dataset_param.image_size {} must be a multiple of {} (patch size {} / downsample "
        "ratio {})",
        image_size, static_cast<double>(facts.patch_size) / facts.downsample_ratio,
        facts.patch_size, facts.downsample_ratio);
  }
  return static_cast<int64_t>(side * side);
}

RgbImage white_tile(int64_t size) {
  const auto side = static_cast<int>(size);
  return {side, side, std::vector<uint8_t>(static_cast<size_t>(size * size * 3), 255)};
}

}  // namespace

InternVL35Dataset::InternVL35Dataset(const config::DatasetParam& param, const ModelFacts& facts)
    : param_(param),
      facts_(facts),
      format_{param.attr, param.structural_tokens == "plain"},
      files_(to_paths(param.basic_parameters.dataset)),
      tokenizer_(tokenizer::Tokenizer::from_folder(
          param.preprocess_parameters.model_name_or_path.value_or(facts.model_folder))),
      template_(tokenizer_, param.conv_style, param.system_message),
      image_size_(param.image_size.value_or(facts.image_size)),
      tokens_per_tile_(count_tokens_per_tile(image_size_, facts)),
      size_(std::min(files_.size(), param.basic_parameters.max_samples.value_or(files_.size()))) {
  if (facts.conv_style != param.conv_style) {
    log::warn(
        "the model's config names the template \"{}\", data.dataset_param.conv_style is \"{}\"",
        facts.conv_style, param.conv_style);
  }
}

std::vector<Picture> InternVL35Dataset::load_pictures(const Record& record,
                                                      const std::string& place) const {
  const auto count = static_cast<int64_t>(record.images.size());
  std::vector<Picture> pictures;
  for (const auto& name : record.images) {
    // Several pictures share the tiles.
    const int64_t max_tiles = std::max<int64_t>(1, param_.max_dynamic_patch / count);
    const TileOptions tiles{
        .image_size = static_cast<int>(image_size_),
        .min_tiles = static_cast<int>(std::min(param_.min_dynamic_patch, max_tiles)),
        .max_tiles = static_cast<int>(max_tiles),
        .use_thumbnail = param_.use_thumbnail};
    const auto path = resolve_picture(param_.basic_parameters.dataset_dir, name, place);
    pictures.push_back(
        load_picture(path, place, {param_.apply_exif_orientation, param_.scale_16bit}, tiles));
  }
  return pictures;
}

InternVL35Dataset::Prepared InternVL35Dataset::prepare(int64_t index) const {
  const std::string place = files_.place(index);
  const Record record = parse_record(files_.line(index), place, format_);
  Prepared prepared;
  prepared.pictures = load_pictures(record, place);
  std::vector<int64_t> context_tokens;
  for (const auto& picture : prepared.pictures) {
    context_tokens.push_back(static_cast<int64_t>(picture.tiles.size()) * tokens_per_tile_);
  }
  prepared.chat = template_.render(record.messages, context_tokens);
  prepared.is_truncated = truncate(prepared.chat, prepared.pictures, place);
  check_ids(prepared.chat, place);
  return prepared;
}

bool InternVL35Dataset::truncate(tokenizer::RenderedChat& chat,
                                 const std::vector<Picture>& pictures,
                                 const std::string& place) const {
  const int64_t limit = param_.basic_parameters.cutoff_len;
  if (static_cast<int64_t>(chat.ids.size()) <= limit) return false;
  for (size_t i = 0; i < pictures.size(); ++i) {
    const auto& span = chat.images[i];
    if (span.end <= limit) continue;
    throw DataError(
        "{}: picture {} ({} tiles, {} tokens) ends at token {}, but cutoff_len is {}; raise "
        "data.dataset_param.basic_parameters.cutoff_len or lower "
        "data.dataset_param.max_dynamic_patch",
        place, pictures[i].path.string(), pictures[i].tiles.size(), span.end - span.begin, span.end,
        limit);
  }
  chat.ids.resize(static_cast<size_t>(limit));
  chat.labels.resize(static_cast<size_t>(limit));
  return true;
}

void InternVL35Dataset::check_ids(const tokenizer::RenderedChat& chat,
                                  const std::string& place) const {
  const int64_t largest = *std::max_element(chat.ids.begin(), chat.ids.end());
  if (facts_.vocab_rows == 0 || largest < facts_.vocab_rows) return;
  throw DataError(
      "{}: token id {} (\"{}\") is beyond the {} embedding rows of the model in {}; its tokenizer "
      "and weights do "
      "not belong together",
      place, largest, tokenizer_.decode({static_cast<int32_t>(largest)}), facts_.vocab_rows,
      facts_.model_folder);
}

Sample InternVL35Dataset::to_sample(int64_t index, Prepared prepared) const {
  std::vector<RgbImage> tiles;
  for (auto& picture : prepared.pictures) {
    std::move(picture.tiles.begin(), picture.tiles.end(), std::back_inserter(tiles));
  }
  const int64_t flag = tiles.empty() ? 0 : 1;
  if (tiles.empty()) tiles.push_back(white_tile(image_size_));
  const auto num_tiles = static_cast<int64_t>(tiles.size());
  const auto tile_values = static_cast<size_t>(image_size_ * image_size_ * 3);
  std::vector<float> pixels(tiles.size() * tile_values);
  for (size_t i = 0; i < tiles.size(); ++i)
    normalize_to_chw(tiles[i], pixels.data() + i * tile_values);

  const auto length = static_cast<int64_t>(prepared.chat.ids.size());
  Sample sample{.index = index,
                .place = files_.place(index),
                .arrays = {},
                .is_truncated = prepared.is_truncated};
  sample.arrays["input_ids"] = Array::of_ints({length}, std::move(prepared.chat.ids));
  sample.arrays["labels"] = Array::of_ints({length}, std::move(prepared.chat.labels));
  sample.arrays["pixel_values"] =
      Array::of_floats({num_tiles, 3, image_size_, image_size_}, std::move(pixels));
  sample.arrays["image_flags"] =
      Array::of_ints({num_tiles}, std::vector<int64_t>(tiles.size(), flag));
  return sample;
}

Sample InternVL35Dataset::get(int64_t index) const { return to_sample(index, prepare(index)); }

SampleView InternVL35Dataset::view(int64_t index) const {
  Prepared prepared = prepare(index);
  SampleView view;
  view.text = tokenizer_.decode({prepared.chat.ids.begin(), prepared.chat.ids.end()});
  for (const auto& picture : prepared.pictures) {
    PictureView& shown = view.pictures.emplace_back(
        PictureView{picture.path.string(), picture.width, picture.height, {}});
    for (const auto& tile : picture.tiles) shown.tile_sha256.push_back(sha256_hex(tile.pixels));
  }
  view.sample = to_sample(index, std::move(prepared));
  return view;
}

Batch InternVL35Dataset::collate(const std::vector<Sample>& samples) const {
  Batch batch;
  int64_t longest = 1;
  for (const auto& sample : samples) {
    const auto& labels = sample.arrays.at("labels").ints;
    batch.sample_indices.push_back(sample.index);
    batch.sample_places.push_back(sample.place);
    batch.num_tokens += static_cast<int64_t>(labels.size());
    batch.num_targets += static_cast<int64_t>(labels.size()) -
                         std::count(labels.begin(), labels.end(), kIgnoredLabel);
    longest = std::max(longest, static_cast<int64_t>(labels.size()));
  }
  const int64_t length =
      param_.pad_to == "cutoff_len" ? param_.basic_parameters.cutoff_len : longest;
  batch.arrays["input_ids"] = pad_right(samples, "input_ids", length, template_.pad_id());
  batch.arrays["labels"] = pad_right(samples, "labels", length, kIgnoredLabel);
  batch.arrays["attention_mask"] = mask_from_lengths(samples, "input_ids", length);
  batch.arrays["pixel_values"] =
      concatenate(samples, "pixel_values", Array::of_floats({0, 3, image_size_, image_size_}, {}));
  batch.arrays["image_flags"] = concatenate(samples, "image_flags", Array::of_ints({0}, {}));
  return batch;
}

std::string InternVL35Dataset::fingerprint() const {
  return fmt::format("{} samples of {}", size_, files_.fingerprint());
}

}  // namespace shardloom::data
