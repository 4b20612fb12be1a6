// tokenizer.json of the `tokenizers` package.
#include "shardloom/base/error.h"
#include "shardloom/tokenizer/splitter.h"
#include "shardloom/tokenizer/tokenizer_data.h"

namespace shardloom::tokenizer {
namespace {

class JsonReader {
 public:
  explicit JsonReader(const std::filesystem::path& file) : root_(read_tokenizer_file(file)) {
    data_.place = file.string();
  }

  TokenizerData run() {
    if (!root_.is_object()) throw DataError("{}: expected an object", data_.place);
    read_normalizer(member(root_, "normalizer"));
    read_pre_tokenizer(member(root_, "pre_tokenizer"));
    check_processor("post_processor");
    check_processor("decoder");
    read_model(member(root_, "model"));
    const Json& added = member(root_, "added_tokens");
    if (!added.is_null() && !added.is_array()) refuse("added_tokens", added.type_name());
    for (const Json& rule : added) {
      const Json& id = member(rule, "id");
      if (!id.is_number_integer()) {
        throw DataError("{}: added token {} has no whole number as its id", data_.place,
                        rule.dump());
      }
      add_token(rule, id.get<int64_t>(), data_);
    }
    return std::move(data_);
  }

 private:
  // The member, or null when there is none.
  static const Json& member(const Json& object, const char* key) {
    static const Json null;
    if (!object.is_object()) return null;
    const auto found = object.find(key);
    return found == object.end() ? null : *found;
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& value) const {
    throw DataError("{}: {} = {} is not supported; this reads byte-level BPE as in Qwen2 and Qwen3",
                    data_.place, what, value);
  }

  void expect(const Json& object,
              const std::string& path,
              const char* key,
              const Json& wanted) const {
    const Json& value = member(object, key);
    if (value != wanted) refuse(path + "." + key, value.dump());
  }

  static std::string type_of(const Json& object) {
    const Json& type = member(object, "type");
    return type.is_string() ? type.get<std::string>() : "";
  }

  void read_normalizer(const Json& normalizer) {
    if (normalizer.is_null()) return;
    if (type_of(normalizer) == "Sequence") {
      for (const Json& part : member(normalizer, "normalizers")) read_normalizer(part);
    } else if (type_of(normalizer) == "NFC") {
      data_.use_nfc = true;
    } else {
      refuse("normalizer", normalizer.dump());
    }
  }

  // A Split by regex followed by ByteLevel without its own regex, or ByteLevel alone with it.
  void read_pre_tokenizer(const Json& pre_tokenizer) {
    const Json single = Json::array({pre_tokenizer});
    const bool is_sequence = type_of(pre_tokenizer) == "Sequence";
    const Json& parts = is_sequence ? member(pre_tokenizer, "pretokenizers") : single;
    const bool has_split = parts.size() == 2;
    if (parts.empty() || parts.size() > 2 || type_of(parts.back()) != "ByteLevel" ||
        (has_split && type_of(parts[0]) != "Split")) {
      refuse("pre_tokenizer", pre_tokenizer.dump());
    }
    expect(parts.back(), "pre_tokenizer.ByteLevel", "add_prefix_space", false);
    expect(parts.back(), "pre_tokenizer.ByteLevel", "use_regex", !has_split);
    data_.pattern = has_split ? read_split(parts[0]) : std::string(kGpt2Pattern);
  }

  std::string read_split(const Json& split) const {
    expect(split, "pre_tokenizer.Split", "behavior", "Isolated");
    expect(split, "pre_tokenizer.Split", "invert", false);
    const Json& pattern = member(split, "pattern");
    const Json& regex = member(pattern, "Regex");
    if (!regex.is_string()) refuse("pre_tokenizer.Split.pattern", pattern.dump());
    return regex.get<std::string>();
  }

  // ByteLevel only moves offsets here; another post-processor would add tokens that encode() does
  // not.
  void check_processor(const char* key) const {
    const Json& processor = member(root_, key);
    if (!processor.is_null() && type_of(processor) != "ByteLevel") refuse(key, processor.dump());
  }

  void read_model(const Json& model) {
    const std::string type = type_of(model);
    // Files of old versions leave the type out.
    if (!model.is_object() || (!type.empty() && type != "BPE")) {
      refuse("model.type", "\"" + type + "\"");
    }
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& value = member(model, key);
      if (!value.is_null() && value != "" && value != 0.0) {
        refuse(fmt::format("model.{}", key), value.dump());
      }
    }
    for (const char* key : {"byte_fallback", "ignore_merges"}) {
      const Json& value = member(model, key);
      if (!value.is_null() && value != false) refuse(fmt::format("model.{}", key), value.dump());
    }
    add_vocabulary(member(model, "vocab"), data_);
    const Json& merges = member(model, "merges");
    if (!merges.is_array()) throw DataError("{}: model.merges is missing", data_.place);
    data_.merges.reserve(merges.size());
    for (const Json& merge : merges) read_merge(merge);
  }

  // "left right" or ["left", "right"].
  void read_merge(const Json& merge) {
    const std::string place = fmt::format("{}: model.merges[{}]", data_.place, data_.merges.size());
    if (merge.is_string()) {
      const std::string_view both = merge.get_ref<const std::string&>();
      const size_t blank = both.find(' ');
      if (blank != std::string_view::npos) {
        add_merge(both.substr(0, blank), both.substr(blank + 1), place, data_);
        return;
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      add_merge(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(),
                place, data_);
      return;
    }
    throw DataError("{}: expected two tokens, found {}", place, merge.dump());
  }

  Json root_;
  TokenizerData data_;
};

}  // namespace

TokenizerData read_tokenizer_json(const std::filesystem::path& file) {
  return JsonReader(file).run();
}

}  // namespace shardloom::tokenizer
