// Conversation -> token ids and labels, as the InternVL chat trainers do it
// (preprocess_internvl2_5).
//
// A message is `<|im_start|>{system|user|assistant}\n{text}<|im_end|>\n`, tokenised on its own, so
// that nothing merges across messages. A system message always comes first; without one in the
// conversation the style's default text is used. Labels (not shifted): the answer text and
// <|im_end|> of every assistant message; -100 elsewhere. The role header is masked by its number of
// ids, so that an answer that begins with newlines loses the one that merges with the header's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shardloom/tokenizer/tokenizer.h"

namespace shardloom::tokenizer {

inline constexpr int64_t kIgnoredLabel = -100;
// Stands in user text where a picture goes; it is text, not a token.
inline constexpr std::string_view kImageTag = "<image>";

enum class Role { kSystem, kUser, kAssistant };

struct ChatMessage {
  Role role = Role::kUser;
  std::string text;
};

// Positions [begin, end) of one picture: <img>, its <IMG_CONTEXT> ids, </img>.
struct ImageSpan {
  int64_t begin = 0;
  int64_t end = 0;
};

struct RenderedChat {
  std::vector<int64_t> ids;
  std::vector<int64_t> labels;  // one per id; -100 = no target
  std::vector<ImageSpan> images;
};

// Tokens that only the template may write: <|im_start|>, <img>, <IMG_CONTEXT>, <|endoftext|>, ...
const std::vector<std::string>& structural_tokens();
// The first structural token written in `text`.
std::optional<std::string_view> find_structural_token(std::string_view text);

// Number of kImageTag in the user messages.
int64_t count_image_tags(const std::vector<ChatMessage>& messages);

class ChatTemplate {
 public:
  // `style` names the template ("internvl2_5"). Throws ConfigError for an unknown style and
  // DataError when the tokenizer, which must outlive the template, lacks one of the style's tokens.
  // `system_text` replaces the style's default.
  ChatTemplate(const Tokenizer& tokenizer,
               const std::string& style,
               const std::optional<std::string>& system_text = {});

  // The i-th kImageTag of the user messages becomes <img> + context_tokens[i] x <IMG_CONTEXT> +
  // </img>; further tags stay text. Structural tokens typed in a message are encoded as plain text.
  // There must be a tag for each entry of context_tokens.
  RenderedChat render(const std::vector<ChatMessage>& messages,
                      const std::vector<int64_t>& context_tokens) const;

  int64_t pad_id() const { return pad_; }
  int64_t context_id() const { return context_; }

 private:
  void append_message(const ChatMessage& message,
                      const std::vector<int64_t>& context_tokens,
                      RenderedChat& chat) const;
  void append_text(std::string_view text, RenderedChat& chat) const;
  int32_t token(std::string_view content) const;

  const Tokenizer& tokenizer_;
  std::string default_system_;
  int32_t message_start_ = 0;
  int32_t message_end_ = 0;
  int32_t image_start_ = 0;
  int32_t image_end_ = 0;
  int32_t context_ = 0;
  int32_t pad_ = 0;
  std::vector<int32_t> plain_ids_;  // structural tokens this tokenizer has
  size_t answer_header_size_ = 0;   // ids of `<|im_start|>assistant\n`
};

}  // namespace shardloom::tokenizer
