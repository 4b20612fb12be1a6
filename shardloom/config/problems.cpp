#include "shardloom/config/problems.h"

#include <fmt/format.h>

#include <algorithm>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::config {
namespace {

// In the order of the text, each line once; the overrides (line 0) come first.
std::vector<std::string> lines_of(std::vector<Problem> problems) {
  std::stable_sort(problems.begin(), problems.end(), [](const Problem& a, const Problem& b) {
    return std::pair(a.place.line, a.place.column) < std::pair(b.place.line, b.place.column);
  });
  std::vector<std::string> lines;
  for (const Problem& problem : problems) {
    std::string line = problem.place.str() + ": " + problem.message;
    if (std::find(lines.begin(), lines.end(), line) == lines.end())
      lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

std::string Place::str() const {
  const std::string name = origin ? *origin : std::string("configuration");
  return line > 0 ? fmt::format("{}:{}:{}", name, line, column) : name;
}

std::vector<std::string> Problems::warnings() const { return lines_of(warnings_); }
std::vector<std::string> Problems::errors() const { return lines_of(errors_); }

void Problems::throw_if_any() const {
  if (!ok()) throw ConfigError("{}", join(errors(), "\n"));
}

}  // namespace shardloom::config
