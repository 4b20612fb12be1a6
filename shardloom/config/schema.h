// The schema: one table of keys per section, bound to the structs of train_config.h. Reading,
// unknown-key errors, type and range checks, the dump and docs/config.md all come from it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "shardloom/config/train_config.h"
#include "shardloom/config/yaml.h"

namespace shardloom::config {

// What the values of a key must satisfy beyond their type. Applies to each element of a list.
struct Rule {
  std::optional<double> min;
  std::optional<double> max;
  bool above_min = false;  // min itself is not allowed
  bool below_max = false;  // max itself is not allowed
  std::vector<std::string> choices;
  std::map<std::string, std::string> hints;  // wrong value -> what to do
  bool required = false;                     // the key must be given
  bool non_empty = false;                    // "" is refused

  // "" or what is wrong with the value.
  std::string fault(double value) const;
  std::string fault(const std::string& value) const;
  // ">= 1", "one of a, b", or "".
  std::string describe() const;
};

Rule at_least(double min);
Rule above(double min);
Rule between(double min, double max);            // [min, max]
Rule between_half_open(double min, double max);  // [min, max)
Rule one_of(std::vector<std::string> choices, std::map<std::string, std::string> hints = {});
Rule non_empty();
Rule required();  // and not empty

// Where each given value comes from, by full key path ("training.lr"); sections too. Keys left at
// their default are absent.
using Sources = std::map<std::string, Place>;

struct ReadContext {
  Problems& problems;
  Sources& sources;
};

class Section;

// Reads and writes the value of one key.
class Codec {
 public:
  virtual ~Codec() = default;
  // Stores the value in *target, or reports a problem and leaves *target alone.
  virtual void read(const YamlNode& node,
                    const std::string& path,
                    void* target,
                    ReadContext& context) const = 0;
  // One line of YAML.
  virtual std::string dump(const void* target) const = 0;
  virtual std::string type_name() const = 0;
  // For a nested section: its keys, and the struct inside *target (null when an optional section is
  // absent).
  virtual const Section* section() const { return nullptr; }
  virtual const void* section_target(const void* target) const { return nullptr; }
  virtual bool required() const { return false; }
};

enum class Effect {
  kUsed,
  kNone,    // accepted for compatibility; nothing here depends on it
  kUnused,  // dead in the reference too; never suggested
};

struct Field {
  std::string name;
  std::string meaning;
  Effect effect = Effect::kUsed;
  std::shared_ptr<const Codec> codec;
  std::function<const void*(const void*)> member;  // address of the member in its struct

  const void* get(const void* owner) const { return member(owner); }
  void* get(void* owner) const { return const_cast<void*>(member(owner)); }
};

// The keys of one struct, in the order of the documentation.
class Section {
 public:
  const std::vector<Field>& fields() const { return fields_; }
  const Field* find(std::string_view name) const;
  std::vector<std::string> names() const;
  // Reads a map; unknown keys, and required ones that are missing, are problems. Null is an empty
  // map.
  void read(const YamlNode& node,
            const std::string& path,
            void* target,
            ReadContext& context) const;

 protected:
  std::vector<Field> fields_;
};

// The root of the schema; its struct is TrainConfig.
const Section& train_config_section();

template <typename T>
const Section& section_of();  // specialised for each struct, see schema_builder.h

std::shared_ptr<const Codec> bool_codec();
std::shared_ptr<const Codec> int_codec(Rule rule);
std::shared_ptr<const Codec> float_codec(Rule rule);
std::shared_ptr<const Codec> text_codec(Rule rule);
// std::optional<int64_t>, where the text "auto" is nullopt.
std::shared_ptr<const Codec> auto_int_codec(Rule rule);
// std::vector<std::string>: a list, or one text cut at commas.
std::shared_ptr<const Codec> paths_codec(Rule rule);

// Full key path of `name` in the section `path` ("" is the root).
std::string join_path(const std::string& path, const std::string& name);

}  // namespace shardloom::config
