// The table of flags: one row for each, bound to a member of Arguments. Reading, help and the
// reference come from it.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "shardloom/config/megatron/arguments.h"
#include "shardloom/config/schema_builder.h"

namespace shardloom::config::megatron {

struct Flag {
  Field field;           // its name is the member's
  std::string yaml_key;  // the key of the YAML path that says the same, or ""
  bool is_switch = false;
  bool is_text = false;

  std::string name() const;  // "--min-lr"
};

// A row for a flag that Megatron scripts have and that nothing here depends on.
struct IgnoredFlag {
  std::string name;  // "--swiglu"
  bool has_value = false;
  std::string meaning;
};

// A row for a flag of Megatron whose wish is told in another way here.
struct RefusedFlag {
  std::string name;
  std::string remedy;
};

class FlagGroup {
 public:
  explicit FlagGroup(std::string title) : title_(std::move(title)) {}

  template <typename T>
  FlagGroup& add(const char* member_name,
                 T Arguments::*member,
                 const char* yaml_key,
                 const char* meaning,
                 const Rule& rule = {}) {
    SectionBuilder<Arguments> row;
    row.add(member_name, member, meaning, rule);
    constexpr bool kIsText =
        std::is_same_v<T, std::string> || std::is_same_v<T, std::optional<std::string>>;
    flags_.push_back({row.fields().front(), yaml_key, std::is_same_v<T, bool>, kIsText});
    return *this;
  }

  const std::string& title() const { return title_; }
  const std::vector<Flag>& flags() const { return flags_; }

 private:
  std::string title_;
  std::vector<Flag> flags_;
};

const std::vector<FlagGroup>& flag_groups();
const std::vector<IgnoredFlag>& ignored_flags();
const std::vector<RefusedFlag>& refused_flags();

// "min_lr" -> "--min-lr".
std::string flag_name(const std::string& member_name);

}  // namespace shardloom::config::megatron
