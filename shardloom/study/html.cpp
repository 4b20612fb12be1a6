#include "shardloom/study/html.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardloom/base/strings.h"

namespace shardloom::study {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 66rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
tbody th, td { white-space: nowrap; }
th:first-child { text-align: left; font-weight: normal; }
thead th, thead th:first-child { font-weight: 600; }
tbody tr:nth-child(even) { background: var(--soft); }
svg { display: block; width: 100%; height: auto; margin: .5rem 0 1.5rem; }
pre { overflow-x: auto; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; }
dt { opacity: .75; } dd { margin: 0; overflow-wrap: anywhere; }
)";

bool is_xml_character(unsigned char c) { return c >= 0x20 || c == '\t' || c == '\n'; }

void append_escaped(std::string_view valid_utf8, std::string& out) {
  for (const char c : valid_utf8) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        if (is_xml_character(static_cast<unsigned char>(c))) {
          out += c;
        } else {
          out += kReplacement;
        }
    }
  }
}

std::string row_html(std::vector<std::string> cells, size_t num_columns, bool is_header) {
  cells.resize(std::max(cells.size(), num_columns));
  std::string text = "<tr>";
  for (size_t i = 0; i < cells.size(); ++i) {
    const char* tag = is_header || i == 0 ? "th" : "td";
    text += fmt::format("<{0}>{1}</{0}>", tag, escape(cells[i]));
  }
  return text + "</tr>\n";
}

size_t width(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string row_text(const std::vector<std::string>& cells, const std::vector<size_t>& widths) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths[i] - width(cells[i]), ' ');
    line += i == 0 ? cells[i] + padding : "  " + padding + cells[i];
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  while (const auto bad = find_invalid_utf8(text)) {
    append_escaped(text.substr(0, *bad), out);
    out += kReplacement;
    text.remove_prefix(*bad + 1);
  }
  append_escaped(text, out);
  return out;
}

std::string page(const std::string& title, const std::string& body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n{2}</body>\n</"
      "html>\n",
      escape(title), kStyle, body);
}

std::string section(const std::string& heading, const std::string& body) {
  return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", escape(heading), body);
}

std::string facts(const Facts& facts) {
  std::string text = "<dl>\n";
  for (const auto& [name, value] : facts) {
    text += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value));
  }
  return text + "</dl>\n";
}

std::string facts_text(const Facts& facts) {
  size_t widest = 0;
  for (const auto& [name, value] : facts) widest = std::max(widest, width(name));
  std::string text;
  for (const auto& [name, value] : facts) {
    text += name + std::string(widest - width(name) + 2, ' ') + value + "\n";
  }
  return text;
}

std::string paragraph(const std::string& text) { return "<p>" + escape(text) + "</p>\n"; }

std::string list(const std::vector<std::string>& items) {
  std::string text = "<ul>\n";
  for (const std::string& item : items) text += "<li>" + escape(item) + "</li>\n";
  return text + "</ul>\n";
}

std::string table(const Table& table) {
  std::string rows;
  for (const auto& row : table.rows) rows += row_html(row, table.header.size(), false);
  return fmt::format(
      "<div class=\"scroll\"><table>\n<thead>\n{}</thead>\n<tbody>\n{}</tbody>\n</table></div>\n",
      row_html(table.header, 0, true), rows);
}

std::string table_text(const Table& table) {
  std::vector<size_t> widths;
  for (const std::string& cell : table.header) widths.push_back(width(cell));
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string text = row_text(table.header, widths);
  for (const auto& row : table.rows) text += row_text(row, widths);
  return text;
}

}  // namespace shardloom::study
