// Numbers in texts: strict reading, and lists of iterations for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardloom::study {

// The whole of `text` as a number ("7.03E-01", "nan", "-inf"); nothing when anything is left over.
std::optional<double> parse_number(std::string_view text);

// "7, 101-130, 150" of ascending iterations; what is beyond `max_ranges` is counted:
// "7, 101-130 and 3 more".
std::string ranges_text(const std::vector<int64_t>& iterations, size_t max_ranges = 20);

// First and last of each run of neighbours.
std::vector<std::pair<int64_t, int64_t>> ranges(const std::vector<int64_t>& iterations);

}  // namespace shardloom::study
