// The printable alphabet of byte-level BPE files (GPT-2): each byte is written as one code point
// below U+0144. Bytes that print ("!".."~", U+00A1..U+00AC, U+00AE..U+00FF) stand for themselves,
// the other 68 are U+0100 upwards.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace shardloom::tokenizer {

// UTF-8 text of the code point that stands for `byte`.
std::string printable_byte(unsigned char byte);

// Bytes of a vocabulary entry; nothing when it holds a code point outside the alphabet.
std::optional<std::string> bytes_of_printable(std::string_view printable);

}  // namespace shardloom::tokenizer
