// Builds the table of one struct: SectionBuilder<T>().add("key", &T::key, "meaning", rule). For the
// schema_*.cpp files.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "shardloom/base/strings.h"
#include "shardloom/config/schema.h"

namespace shardloom::config {

// Defined in schema_parallel.cpp (parallel, model), schema_data.cpp, schema_features.cpp (features,
// tools), schema_training.cpp.
template <>
const Section& section_of<TpPlan>();
template <>
const Section& section_of<FsdpPlan>();
template <>
const Section& section_of<EpPlan>();
template <>
const Section& section_of<RecomputePlan>();
template <>
const Section& section_of<ParallelConfig>();
template <>
const Section& section_of<ModelConfig>();
template <>
const Section& section_of<BasicParameters>();
template <>
const Section& section_of<PreprocessParameters>();
template <>
const Section& section_of<DatasetAttr>();
template <>
const Section& section_of<DatasetParam>();
template <>
const Section& section_of<CollateParam>();
template <>
const Section& section_of<DataloaderParam>();
template <>
const Section& section_of<DataConfig>();
template <>
const Section& section_of<LossCfg>();
template <>
const Section& section_of<ChunklossPlan>();
template <>
const Section& section_of<ActivationOffloadPlan>();
template <>
const Section& section_of<ChunkmbsPlan>();
template <>
const Section& section_of<EpBalancePlan>();
template <>
const Section& section_of<SwapPlan>();
template <>
const Section& section_of<FeaturesConfig>();
template <>
const Section& section_of<StaticProfileParam>();
template <>
const Section& section_of<ProfileConfig>();
template <>
const Section& section_of<MemoryProfileConfig>();
template <>
const Section& section_of<TensorboardConfig>();
template <>
const Section& section_of<ToolsConfig>();
template <>
const Section& section_of<LrScale>();
template <>
const Section& section_of<LoraConfig>();
template <>
const Section& section_of<QuantizationPlan>();
template <>
const Section& section_of<MetricsConfig>();
template <>
const Section& section_of<TrainingConfig>();
template <>
const Section& section_of<TrainConfig>();

template <typename T>
std::shared_ptr<const Codec> make_codec(const Rule& rule);

template <typename T>
class OptionalCodec : public Codec {
 public:
  explicit OptionalCodec(const Rule& rule) : inner_(make_codec<T>(rule)) {}

  void read(const YamlNode& node,
            const std::string& path,
            void* target,
            ReadContext& context) const override {
    auto& value = *static_cast<std::optional<T>*>(target);
    if (node.kind == YamlNode::Kind::kNull) {
      value.reset();
      context.sources[path] = node.place;
      return;
    }
    T inner{};
    const size_t faults = context.problems.num_errors();
    inner_->read(node, path, &inner, context);
    const bool good = context.problems.num_errors() == faults;
    if (good || inner_->section() != nullptr) value = std::move(inner);
  }
  std::string dump(const void* target) const override {
    const auto& value = *static_cast<const std::optional<T>*>(target);
    return value ? inner_->dump(&*value) : "null";
  }
  std::string type_name() const override { return inner_->type_name() + " or null"; }
  const Section* section() const override { return inner_->section(); }
  const void* section_target(const void* target) const override {
    const auto& value = *static_cast<const std::optional<T>*>(target);
    return value ? inner_->section_target(&*value) : nullptr;
  }

 private:
  std::shared_ptr<const Codec> inner_;
};

template <typename T>
class ListCodec : public Codec {
 public:
  explicit ListCodec(const Rule& rule) : inner_(make_codec<T>(rule)) {}

  void read(const YamlNode& node,
            const std::string& path,
            void* target,
            ReadContext& context) const override {
    if (node.kind != YamlNode::Kind::kSequence) {
      context.problems.error(node.place, list_fault(node, path));
      return;
    }
    std::vector<T> values(node.items.size());
    for (size_t i = 0; i < values.size(); ++i) {
      inner_->read(node.items[i], fmt::format("{}[{}]", path, i), &values[i], context);
    }
    *static_cast<std::vector<T>*>(target) = std::move(values);
    context.sources[path] = node.place;
  }
  std::string dump(const void* target) const override {
    std::vector<std::string> parts;
    for (const T& value : *static_cast<const std::vector<T>*>(target))
      parts.push_back(inner_->dump(&value));
    return fmt::format("[{}]", join(parts, ", "));
  }
  std::string type_name() const override { return fmt::format("list of {}", inner_->type_name()); }

 private:
  std::string list_fault(const YamlNode& node, const std::string& path) const {
    const bool scalar = node.kind == YamlNode::Kind::kScalar;
    return fmt::format("{}: expected a {}, got {}{}", path, type_name(), node.describe(),
                       scalar ? fmt::format("; write [{}]", node.text) : "");
  }

  std::shared_ptr<const Codec> inner_;
};

template <typename T>
class SectionCodec : public Codec {
 public:
  void read(const YamlNode& node,
            const std::string& path,
            void* target,
            ReadContext& context) const override {
    section_of<T>().read(node, path, target, context);
  }
  std::string dump(const void* target) const override {
    std::vector<std::string> parts;
    for (const Field& field : section_of<T>().fields()) {
      parts.push_back(fmt::format("{}: {}", field.name, field.codec->dump(field.get(target))));
    }
    return fmt::format("{{{}}}", join(parts, ", "));
  }
  std::string type_name() const override { return "section"; }
  const Section* section() const override { return &section_of<T>(); }
  const void* section_target(const void* target) const override { return target; }
};

template <typename T>
struct CodecFactory {
  static std::shared_ptr<const Codec> make(const Rule&) {
    return std::make_shared<SectionCodec<T>>();
  }
};
template <>
struct CodecFactory<bool> {
  static std::shared_ptr<const Codec> make(const Rule&) { return bool_codec(); }
};
template <>
struct CodecFactory<int64_t> {
  static std::shared_ptr<const Codec> make(const Rule& rule) { return int_codec(rule); }
};
template <>
struct CodecFactory<double> {
  static std::shared_ptr<const Codec> make(const Rule& rule) { return float_codec(rule); }
};
template <>
struct CodecFactory<std::string> {
  static std::shared_ptr<const Codec> make(const Rule& rule) { return text_codec(rule); }
};
template <typename T>
struct CodecFactory<std::optional<T>> {
  static std::shared_ptr<const Codec> make(const Rule& rule) {
    return std::make_shared<OptionalCodec<T>>(rule);
  }
};
template <typename T>
struct CodecFactory<std::vector<T>> {
  static std::shared_ptr<const Codec> make(const Rule& rule) {
    return std::make_shared<ListCodec<T>>(rule);
  }
};

template <typename T>
std::shared_ptr<const Codec> make_codec(const Rule& rule) {
  return CodecFactory<T>::make(rule);
}

template <typename Owner>
class SectionBuilder : public Section {
 public:
  template <typename T>
  SectionBuilder& add(const char* name,
                      T Owner::*member,
                      const char* meaning,
                      const Rule& rule = {}) {
    return add_with(make_codec<T>(rule), name, member, meaning, Effect::kUsed);
  }
  // A key that nothing depends on; the meaning says why.
  template <typename T>
  SectionBuilder& add_without_effect(const char* name,
                                     T Owner::*member,
                                     const char* meaning,
                                     const Rule& rule = {}) {
    return add_with(make_codec<T>(rule), name, member, meaning, Effect::kNone);
  }
  // A key that is dead in the reference as well.
  template <typename T>
  SectionBuilder& add_unused(const char* name, T Owner::*member, const char* meaning) {
    return add_with(make_codec<T>({}), name, member, meaning, Effect::kUnused);
  }
  template <typename T>
  SectionBuilder& add_with(std::shared_ptr<const Codec> codec,
                           const char* name,
                           T Owner::*member,
                           const char* meaning,
                           Effect effect = Effect::kUsed) {
    auto address = [member](const void* owner) -> const void* {
      return &(static_cast<const Owner*>(owner)->*member);
    };
    fields_.push_back({name, meaning, effect, std::move(codec), std::move(address)});
    return *this;
  }
};

}  // namespace shardloom::config
