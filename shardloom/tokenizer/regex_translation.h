// Oniguruma (Ruby syntax, as the `tokenizers` package uses it) -> PCRE2 with UTF and UCP.
#pragma once

#include <string>
#include <string_view>

namespace shardloom::tokenizer {

// `pattern` with \s and \S written out, because \s of PCRE2 has U+180E. Throws DataError, which
// begins with `place`, for constructs that the two engines read differently: \w \b \h ^ $ and the
// like, sets within sets, names of scripts.
std::string translate_to_pcre2(std::string_view pattern, const std::string& place);

}  // namespace shardloom::tokenizer
