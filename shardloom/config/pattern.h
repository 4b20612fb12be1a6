// Module patterns: which modules of a model a plan names. A pattern is the whole dotted name of a
// module, in which braces stand for an index: {*} any, {a-b} a range (both ends in), {1,3,5} a
// list, {7} one; lists may hold ranges. Everything else is literal and case matters; a bare * or ?
// is an error. Indices are compared as numbers.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace shardloom::config {

struct PatternMatch {
  std::string pattern;
  std::vector<std::string> modules;  // in index order (2 before 10)
};

// What is wrong with the grammar of a pattern, or "".
std::string pattern_fault(const std::string& pattern);

// Matches each pattern against the module names of a model. Throws one ConfigError that lists every
// bad pattern, every pattern that matches nothing and every index that does not exist; `key`
// ("parallel.fsdp_plan.apply_modules") starts each line.
std::vector<PatternMatch> match_patterns(const std::vector<std::string>& patterns,
                                         const std::vector<std::string>& names,
                                         const std::string& key);

// The matched modules in the written order of the patterns, each once (at its first place).
std::vector<std::string> match_modules(const std::vector<std::string>& patterns,
                                       const std::vector<std::string>& names,
                                       const std::string& key);

// Throws ConfigError when a module lies inside another one of the list (recompute, offload: a
// module must not be wrapped twice).
void check_not_nested(const std::vector<std::string>& modules, const std::string& key);

// The same modules, children before the parents that hold them, otherwise in the given order: the
// order of sharding.
std::vector<std::string> children_first(std::vector<std::string> modules);

// A warning when `modules` are not in the order of `execution` (names in the order they run), which
// prefetch relies on.
std::optional<std::string> order_warning(const std::vector<std::string>& modules,
                                         const std::vector<std::string>& execution,
                                         const std::string& key);

}  // namespace shardloom::config
