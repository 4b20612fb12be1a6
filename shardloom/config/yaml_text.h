// The characters of a YAML file, before and after the parser has seen them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace shardloom::config {

// Without a byte order mark, with LF alone and without tabs where they mean nothing. `origin` names
// the file. Throws ConfigError with the place of what is no text or no YAML indentation.
std::string plain_text(std::string_view raw, const std::shared_ptr<const std::string>& origin);

// yaml-cpp's message about line `line` (from 1), in plain words where its own are none, and what
// most likely went wrong there.
std::string syntax_fault(std::string_view text, int line, const std::string& message);

}  // namespace shardloom::config
