// Small text helpers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardloom {

std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

bool contains(const std::vector<std::string>& list, std::string_view text);

// Damerau-Levenshtein distance (insert, delete, replace, swap of neighbours), case-sensitive, in
// bytes.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `name`, if any is near enough to be a likely slip (at most a third of
// its length, at least 1);
// '-' and '_' and upper and lower case count as equal for this purpose.
std::optional<std::string> nearest(std::string_view name,
                                   const std::vector<std::string>& candidates);

// " (did you mean X?)", or "" when nothing is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

// Byte offset of the first byte that is not valid UTF-8 (surrogates and overlong forms are invalid
// too).
std::optional<size_t> find_invalid_utf8(std::string_view text);

// "1.5 GiB", "12 B".
std::string human_bytes(uint64_t bytes);

}  // namespace shardloom
