// Building blocks of collate rules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shardloom/data/dataset.h"

namespace shardloom::data {

// The int64 rows arrays.at(name) of all samples, each [n], as [samples, length], filled up on the
// right with `fill`. No row may be longer than `length`.
Array pad_right(const std::vector<Sample>& samples,
                const std::string& name,
                int64_t length,
                int64_t fill);

// 1 for each position of a row of `name`, 0 for the padding: [samples, length].
Array mask_from_lengths(const std::vector<Sample>& samples,
                        const std::string& name,
                        int64_t length);

// arrays.at(name) of all samples appended to `joined` along the first axis; start with an array of
// shape [0, ...].
Array concatenate(const std::vector<Sample>& samples, const std::string& name, Array joined);

}  // namespace shardloom::data
