#include "shardloom/tokenizer/chat_template.h"

#include <algorithm>

#include "shardloom/base/error.h"
#include "shardloom/base/registry.h"

namespace shardloom::tokenizer {
namespace {

struct ChatStyle {
  std::string default_system;
};

const Registry<ChatStyle>& chat_styles() {
  static const Registry<ChatStyle> styles = [] {
    Registry<ChatStyle> list("conv_style");
    list.add(
        "internvl2_5",
        {"你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开发的"
         "多模态大语言模型。"});
    return list;
  }();
  return styles;
}

const char* header(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system\n";
    case Role::kUser:
      return "user\n";
    case Role::kAssistant:
      return "assistant\n";
  }
  return "";
}

}  // namespace

const std::vector<std::string>& structural_tokens() {
  static const std::vector<std::string> tokens = {
      "<|im_start|>",   "<|im_end|>",    "<|endoftext|>",    "<img>",
      "</img>",         "<IMG_CONTEXT>", "<|vision_start|>", "<|vision_end|>",
      "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"};
  return tokens;
}

std::optional<std::string_view> find_structural_token(std::string_view text) {
  for (size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
    for (const auto& token : structural_tokens()) {
      if (text.substr(at).starts_with(token)) return token;
    }
  }
  return std::nullopt;
}

int64_t count_image_tags(const std::vector<ChatMessage>& messages) {
  int64_t count = 0;
  for (const auto& message : messages) {
    if (message.role != Role::kUser) continue;
    for (size_t at = message.text.find(kImageTag); at != std::string::npos;
         at = message.text.find(kImageTag, at + kImageTag.size())) {
      ++count;
    }
  }
  return count;
}

ChatTemplate::ChatTemplate(const Tokenizer& tokenizer,
                           const std::string& style,
                           const std::optional<std::string>& system_text)
    : tokenizer_(tokenizer),
      default_system_(system_text.value_or(chat_styles().get(style).default_system)),
      message_start_(token("<|im_start|>")),
      message_end_(token("<|im_end|>")),
      image_start_(token("<img>")),
      image_end_(token("</img>")),
      context_(token("<IMG_CONTEXT>")),
      pad_(token("<|endoftext|>")),
      answer_header_size_(1 + tokenizer.encode(header(Role::kAssistant)).size()) {
  for (const auto& content : structural_tokens()) {
    if (const auto id = tokenizer.id(content)) plain_ids_.push_back(*id);
  }
}

int32_t ChatTemplate::token(std::string_view content) const {
  if (const auto id = tokenizer_.id(content)) return *id;
  throw DataError(
      "the tokenizer has no token {}, which the chat template needs; is this the tokenizer of an "
      "InternVL "
      "model?",
      content);
}

RenderedChat ChatTemplate::render(const std::vector<ChatMessage>& messages,
                                  const std::vector<int64_t>& context_tokens) const {
  RenderedChat chat;
  if (messages.empty() || messages.front().role != Role::kSystem) {
    append_message({Role::kSystem, default_system_}, context_tokens, chat);
  }
  for (const auto& message : messages) append_message(message, context_tokens, chat);
  SHARDLOOM_CHECK(chat.images.size() == context_tokens.size(), "{} image tags for {} images",
                  chat.images.size(), context_tokens.size());
  return chat;
}

void ChatTemplate::append_message(const ChatMessage& message,
                                  const std::vector<int64_t>& context_tokens,
                                  RenderedChat& chat) const {
  auto& ids = chat.ids;
  const size_t begin = ids.size();
  ids.push_back(message_start_);
  const std::string text = header(message.role) + message.text;
  std::string_view rest = text;
  while (message.role == Role::kUser && chat.images.size() < context_tokens.size()) {
    const size_t tag = rest.find(kImageTag);
    if (tag == std::string_view::npos) break;
    append_text(rest.substr(0, tag), chat);
    const auto start = static_cast<int64_t>(ids.size());
    ids.push_back(image_start_);
    ids.insert(ids.end(), static_cast<size_t>(context_tokens[chat.images.size()]), context_);
    ids.push_back(image_end_);
    chat.images.push_back({start, static_cast<int64_t>(ids.size())});
    rest.remove_prefix(tag + kImageTag.size());
  }
  append_text(rest, chat);
  ids.push_back(message_end_);
  append_text("\n", chat);

  chat.labels.resize(ids.size(), kIgnoredLabel);
  if (message.role != Role::kAssistant) return;
  for (size_t i = begin + answer_header_size_; i + 1 < ids.size(); ++i) chat.labels[i] = ids[i];
}

void ChatTemplate::append_text(std::string_view text, RenderedChat& chat) const {
  const std::vector<int32_t> encoded = tokenizer_.encode_with_plain(text, plain_ids_);
  chat.ids.insert(chat.ids.end(), encoded.begin(), encoded.end());
}

}  // namespace shardloom::tokenizer
