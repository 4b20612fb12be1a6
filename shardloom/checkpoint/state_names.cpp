#include "shardloom/checkpoint/state_names.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardloom::checkpoint {
namespace {

StateKey key_of(dcp::StatePath path) {
  std::string name;
  for (const auto& part : path) {
    if (!name.empty()) name += '.';
    std::visit([&](const auto& value) { name += fmt::format("{}", value); }, part);
  }
  return {std::move(name), std::move(path)};
}

std::string joined(std::string_view prefix, std::string_view parameter) {
  return std::string(prefix) += parameter;
}

}  // namespace

StateKey model_key(std::string_view parameter, std::string_view prefix) {
  return key_of({kModelKey, joined(prefix, parameter)});
}

StateKey optimizer_state_key(std::string_view parameter,
                             std::string_view field,
                             std::string_view prefix) {
  return key_of({kOptimizerKey, "state", joined(prefix, parameter), std::string(field)});
}

StateKey param_group_key(int64_t group, std::string_view option) {
  return key_of({kOptimizerKey, "param_groups", group, std::string(option)});
}

StateKey extra_state_key(std::string_view field) {
  return key_of({kExtraStateKey, std::string(field)});
}

StateKey root_key(std::string_view name) { return key_of({std::string(name)}); }

std::string detect_prefix(const dcp::Metadata& metadata,
                          const std::vector<std::string>& parameters) {
  const auto count = [&](std::string_view prefix) {
    return std::count_if(parameters.begin(), parameters.end(), [&](const std::string& parameter) {
      return metadata.tensors.contains(model_key(parameter, prefix).name);
    });
  };
  return count(kWrapperPrefix) > count(kNoPrefix) ? kWrapperPrefix : kNoPrefix;
}

}  // namespace shardloom::checkpoint
