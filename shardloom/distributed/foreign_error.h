// Texts of exceptions that torch and gloo throw.
#pragma once

#include <string_view>

namespace shardloom::distributed {

// The first line (a C++ stack trace follows it), without a leading "[.../pair.cc:123] ".
inline std::string_view short_text(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  const size_t source = text.find(".cc:");
  const size_t end = text.find("] ");
  if (text.starts_with('[') && source < end && end != text.npos) text.remove_prefix(end + 2);
  return text;
}

}  // namespace shardloom::distributed
