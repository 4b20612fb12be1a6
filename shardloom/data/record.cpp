#include "shardloom/data/record.h"

#include "shardloom/base/strings.h"
#include "shardloom/data/jsonl.h"

namespace shardloom::data {
namespace {

using tokenizer::ChatMessage;
using tokenizer::Role;

std::string keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& item : object.items()) keys.push_back(item.key());
  return join(keys, ", ");
}

// "a number", "an array", "null": how JSON people name what stands there.
std::string kind_of(const Json& value) {
  const std::string name = value.type_name();
  if (value.is_null()) return name;
  return (value.is_array() || value.is_object() ? "an " : "a ") + name;
}

// What is set is used, and an empty value ("", [], null) counts as absent.
bool is_given(const Json& record, const std::string& key) {
  const auto found = record.find(key);
  return found != record.end() && !found->is_null() && *found != "" && *found != Json::array();
}

class RecordReader {
 public:
  RecordReader(const Json& record, const std::string& place, const RecordFormat& format)
      : record_(record), place_(place), format_(format), attr_(format.attr) {}

  Record read() {
    refuse_unsupported_media();
    read_messages();
    read_images();
    check_order();
    if (!format_.structural_tokens_as_text) refuse_structural_tokens();
    match_image_tags();
    return std::move(result_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    throw DataError("{}: {}", place_, fmt::format(text, std::forward<Args>(args)...));
  }

  void refuse_unsupported_media() const {
    for (const char* key : {"video", "videos", "audio", "audios"}) {
      if (is_given(record_, key)) {
        fail("\"{}\" is not supported yet; remove the record or the key", key);
      }
    }
  }

  void read_messages() {
    const auto turns = record_.find(attr_.messages);
    if (turns == record_.end()) {
      const std::string remedy =
          record_.contains("messages")
              ? "; for OpenAI-style records set data.dataset_param.attr: {messages: messages, "
                "role_tag: role, "
                "content_tag: content, user_tag: user, assistant_tag: assistant}"
              : "; if the turns have another name, set data.dataset_param.attr.messages";
      fail("no \"{}\" (keys: {}){}", attr_.messages, keys_of(record_), remedy);
    }
    if (!turns->is_array()) fail("\"{}\" is {}, not a list", attr_.messages, kind_of(*turns));
    if (attr_.system && is_given(record_, *attr_.system)) {
      const Json& text = record_.at(*attr_.system);
      if (!text.is_string()) fail("\"{}\" is {}, not a string", *attr_.system, kind_of(text));
      result_.messages.push_back({Role::kSystem, text.get<std::string>()});
    }
    first_turn_ = result_.messages.size();
    for (size_t turn = 0; turn < turns->size(); ++turn) read_turn((*turns)[turn], turn);
    if (turns->empty()) fail("\"{}\" is empty", attr_.messages);
  }

  void read_turn(const Json& value, size_t turn) {
    if (!value.is_object()) fail("turn {} is {}, not an object", turn, kind_of(value));
    const std::string& role = string_of(value, turn, attr_.role_tag, "role_tag");
    const std::string& text = string_of(value, turn, attr_.content_tag, "content_tag");
    result_.messages.push_back({role_of(role, turn), text});
  }

  const std::string& string_of(const Json& value,
                               size_t turn,
                               const std::string& key,
                               const char* attr_name) const {
    const auto found = value.find(key);
    if (found == value.end()) {
      fail(
          "turn {} has no \"{}\" (keys: {}); if it has another name, set "
          "data.dataset_param.attr.{}",
          turn, key, keys_of(value), attr_name);
    }
    if (!found->is_string())
      fail("turn {}: \"{}\" is {}, not a string", turn, key, kind_of(*found));
    return found->get_ref<const std::string&>();
  }

  Role role_of(const std::string& role, size_t turn) const {
    if (role == attr_.user_tag) return Role::kUser;
    if (role == attr_.assistant_tag) return Role::kAssistant;
    if (role == attr_.system_tag) return Role::kSystem;
    fail(
        "turn {}: unknown role \"{}\"; roles are {}, {} and {} (other names: "
        "data.dataset_param.attr.user_tag, "
        "assistant_tag, system_tag)",
        turn, role, attr_.user_tag, attr_.assistant_tag, attr_.system_tag);
  }

  void read_images() {
    const std::string key = attr_.images.value_or("image");
    for (const char* other : {"image", "images"}) {
      if (other != key && is_given(record_, other)) {
        fail("pictures stand under \"{0}\", not \"{1}\"; set data.dataset_param.attr.images: {0}",
             other, key);
      }
    }
    if (!is_given(record_, key)) return;
    const Json& images = record_.at(key);
    if (images.is_string()) {
      result_.images = {images.get<std::string>()};
      return;
    }
    if (!images.is_array())
      fail("\"{}\" is {}, not a path or a list of paths", key, kind_of(images));
    for (const auto& image : images) {
      if (!image.is_string() || image == "") {
        fail("\"{}\"[{}] is {}, not a path", key, result_.images.size(),
             image == "" ? "empty" : kind_of(image));
      }
      result_.images.push_back(image.get<std::string>());
    }
  }

  void check_order() const {
    const auto& messages = result_.messages;
    size_t next = messages.front().role == Role::kSystem ? 1 : 0;
    if (next == messages.size()) fail("no {} turn", attr_.user_tag);
    for (Role expected = Role::kUser; next < messages.size(); ++next) {
      if (messages[next].role != expected) {
        fail("turn {} is {}, but {} is expected there (turns alternate {}, {}; {} only first)",
             next - first_turn_, name_of(messages[next].role), name_of(expected), attr_.user_tag,
             attr_.assistant_tag, attr_.system_tag);
      }
      expected = expected == Role::kUser ? Role::kAssistant : Role::kUser;
    }
  }

  const std::string& name_of(Role role) const {
    if (role == Role::kSystem) return attr_.system_tag;
    return role == Role::kUser ? attr_.user_tag : attr_.assistant_tag;
  }

  void refuse_structural_tokens() const {
    for (size_t i = 0; i < result_.messages.size(); ++i) {
      const auto token = tokenizer::find_structural_token(result_.messages[i].text);
      if (!token) continue;
      const std::string where = i < first_turn_ ? fmt::format("\"{}\"", *attr_.system)
                                                : fmt::format("turn {}", i - first_turn_);
      fail(
          "{} contains the structural token {}; remove it, or set "
          "data.dataset_param.structural_tokens: plain to "
          "read such tokens as ordinary text",
          where, *token);
    }
  }

  void match_image_tags() {
    const int64_t tags = tokenizer::count_image_tags(result_.messages);
    const auto images = static_cast<int64_t>(result_.images.size());
    if (tags == images || (images == 0 && format_.structural_tokens_as_text)) return;
    if (tags > 0) {
      fail("{} {} in the {} turns, but {} image{}{}", tags,
           tags == 1 ? "<image> tag" : "<image> tags", attr_.user_tag, images,
           images == 1 ? "" : "s",
           images == 0
               ? "; if the tag is ordinary text, set data.dataset_param.structural_tokens: plain"
               : "");
    }
    const size_t first_user = result_.messages.front().role == Role::kSystem ? 1 : 0;
    std::string& text = result_.messages[first_user].text;
    for (int64_t i = 0; i < images; ++i) text.insert(0, std::string(tokenizer::kImageTag) + "\n");
  }

  const Json& record_;
  const std::string& place_;
  const RecordFormat& format_;
  const config::DatasetAttr& attr_;
  Record result_;
  size_t first_turn_ = 0;  // position of turn 0 in result_.messages
};

}  // namespace

Record parse_record(std::string_view line, const std::string& place, const RecordFormat& format) {
  return RecordReader(parse_record_line(line, place), place, format).read();
}

}  // namespace shardloom::data
