// One line of a ShareGPT/LLaVA style JSONL file as a checked record: who says what, and which
// pictures.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shardloom/config/train_config.h"
#include "shardloom/tokenizer/chat_template.h"

namespace shardloom::data {

struct Record {
  // An optional system message, then user and assistant in turn, beginning with the user. The user
  // messages hold exactly images.size() image tags (none stands for a picture when there is no
  // image).
  std::vector<tokenizer::ChatMessage> messages;
  std::vector<std::string> images;  // paths as written in the record
};

struct RecordFormat {
  config::DatasetAttr attr;                // names of keys and roles
  bool structural_tokens_as_text = false;  // else a structural token typed in a message is an error
};

// Parses and checks one line. Throws DataError that starts with `place` and names turn (counted
// from 0), key and value seen. Pictures without any image tag in a user message get one tag a line
// before the text of the first user message; otherwise the numbers of tags and pictures must agree.
// In a record without pictures a tag is an error, or ordinary text when structural_tokens_as_text
// is set.
Record parse_record(std::string_view line, const std::string& place, const RecordFormat& format);

}  // namespace shardloom::data
