#include "shardloom/study/text.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "shardloom/base/strings.h"

namespace shardloom::study {

std::optional<double> parse_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

std::vector<std::pair<int64_t, int64_t>> ranges(const std::vector<int64_t>& iterations) {
  std::vector<std::pair<int64_t, int64_t>> found;
  for (const int64_t iteration : iterations) {
    if (!found.empty() && found.back().second + 1 == iteration) {
      found.back().second = iteration;
    } else {
      found.emplace_back(iteration, iteration);
    }
  }
  return found;
}

std::string ranges_text(const std::vector<int64_t>& iterations, size_t max_ranges) {
  std::vector<std::string> parts;
  size_t told = 0;
  for (const auto& [first, last] : ranges(iterations)) {
    if (parts.size() == max_ranges) break;
    parts.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
    told += static_cast<size_t>(last - first + 1);
  }
  std::string text = join(parts, ", ");
  if (told < iterations.size()) text += fmt::format(" and {} more", iterations.size() - told);
  return text;
}

}  // namespace shardloom::study
