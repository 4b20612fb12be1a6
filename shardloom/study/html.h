// Self-contained pages: well-formed XHTML in one file, no script, nothing loaded from outside.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardloom::study {

// Text between tags or in an attribute. What XML cannot hold (control characters, bytes that are
// not UTF-8) becomes U+FFFD.
std::string escape(std::string_view text);

// The whole page; `title` is text and is its heading too, `body` is markup.
std::string page(const std::string& title, const std::string& body);

// A heading and what stands below it; `heading` is text, `body` is markup.
std::string section(const std::string& heading, const std::string& body);

// Names and what is said of them, as lines; texts.
using Facts = std::vector<std::pair<std::string, std::string>>;
std::string facts(const Facts& facts);
// The same for a terminal.
std::string facts_text(const Facts& facts);

std::string paragraph(const std::string& text);
std::string list(const std::vector<std::string>& items);

// Texts; the first column names the row, the others are numbers on the right. Rows may be shorter
// than the header.
struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};
std::string table(const Table& table);
// The same for a terminal: columns aligned, two spaces between them.
std::string table_text(const Table& table);

}  // namespace shardloom::study
