// Unicode Normalization Form C.
#pragma once

#include <string>
#include <string_view>

namespace shardloom::tokenizer {

// NFC of `text` (valid UTF-8): `text` itself when it is in NFC already, else a view of `buffer`.
std::string_view to_nfc(std::string_view text, std::string& buffer);

}  // namespace shardloom::tokenizer
