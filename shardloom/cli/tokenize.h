// `shardloom tokenize`: JSON lines in, JSON lines out.
#pragma once

#include <istream>
#include <ostream>
#include <string>

#include "shardloom/tokenizer/tokenizer.h"

namespace shardloom::cli {

// For each line {"text": "..."} of `in` writes {"ids": [...]}. Throws DataError with "<name>:line"
// for a line that is something else; `name` says what is read, such as "<stdin>".
void encode_lines(const tokenizer::Tokenizer& tokenizer,
                  std::istream& in,
                  std::ostream& out,
                  const std::string& name);

// The way back: {"ids": [...]} -> {"text": "..."}.
void decode_lines(const tokenizer::Tokenizer& tokenizer,
                  std::istream& in,
                  std::ostream& out,
                  const std::string& name);

}  // namespace shardloom::cli
