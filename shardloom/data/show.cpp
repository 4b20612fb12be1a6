#include "shardloom/data/show.h"

#include <algorithm>
#include <numeric>

#include "shardloom/tokenizer/chat_template.h"

namespace shardloom::data {
namespace {

const std::vector<int64_t>& ints_of(const SampleView& view, const std::string& name) {
  static const std::vector<int64_t> none;
  const auto found = view.sample.arrays.find(name);
  return found == view.sample.arrays.end() ? none : found->second.ints;
}

int64_t count_targets(const std::vector<int64_t>& labels) {
  return std::count_if(labels.begin(), labels.end(),
                       [](int64_t label) { return label != tokenizer::kIgnoredLabel; });
}

// "151644 8948 198 151671 x256 198": runs of more than two equal numbers are folded.
std::string fold_runs(const std::vector<int64_t>& values) {
  std::string text;
  for (size_t begin = 0; begin < values.size();) {
    size_t end = begin;
    while (end < values.size() && values[end] == values[begin]) ++end;
    const size_t run = end - begin;
    for (size_t i = 0; i < (run > 2 ? 1 : run); ++i) {
      if (!text.empty()) text += ' ';
      text += fmt::format("{}", values[begin]);
    }
    if (run > 2) text += fmt::format(" x{}", run);
    begin = end;
  }
  return text;
}

// "a a a a a" of a tag -> "a x5", so that the text of a picture stays readable.
std::string fold_tag(const std::string& text, const std::string& tag) {
  std::string folded;
  size_t at = 0;
  for (size_t found = text.find(tag); found != std::string::npos; found = text.find(tag, at)) {
    size_t end = found;
    int64_t run = 0;
    while (text.compare(end, tag.size(), tag) == 0) {
      end += tag.size();
      ++run;
    }
    folded += text.substr(at, found - at) + tag;
    if (run > 1) folded += fmt::format(" x{} ", run);
    at = end;
  }
  return folded + text.substr(at);
}

}  // namespace

OrderedJson to_json(const SampleView& view) {
  const auto& labels = ints_of(view, "labels");
  const auto& flags = ints_of(view, "image_flags");
  OrderedJson images = OrderedJson::array();
  for (const auto& picture : view.pictures) {
    images.push_back({{"path", picture.path},
                      {"width", picture.width},
                      {"height", picture.height},
                      {"tile_sha256", picture.tile_sha256}});
  }
  return {{"index", view.sample.index},
          {"place", view.sample.place},
          {"tokens", ints_of(view, "input_ids").size()},
          {"targets", count_targets(labels)},
          {"truncated", view.sample.is_truncated},
          {"text", view.text},
          {"input_ids", ints_of(view, "input_ids")},
          {"labels", labels},
          {"tiles", std::accumulate(flags.begin(), flags.end(), int64_t{0})},
          {"images", images}};
}

std::string to_text(const SampleView& view) {
  const auto& ids = ints_of(view, "input_ids");
  const auto& labels = ints_of(view, "labels");
  std::string text = fmt::format(
      "sample {} ({})\n{} tokens, {} with a label{}\n\n", view.sample.index, view.sample.place,
      ids.size(), count_targets(labels), view.sample.is_truncated ? ", cut to cutoff_len" : "");
  text += fmt::format("text:\n{}\n", fold_tag(view.text, "<IMG_CONTEXT>"));
  text += fmt::format("input_ids:\n{}\n\nlabels:\n{}\n", fold_runs(ids), fold_runs(labels));
  for (const auto& picture : view.pictures) {
    text +=
        fmt::format("\n{}: {} x {} pixels, {} {}\n", picture.path, picture.width, picture.height,
                    picture.tile_sha256.size(), picture.tile_sha256.size() == 1 ? "tile" : "tiles");
    for (const auto& hash : picture.tile_sha256) text += fmt::format("  sha256 {}\n", hash);
  }
  if (view.pictures.empty()) text += "\nno picture\n";
  return text;
}

}  // namespace shardloom::data
