#include <optional>
#include <tuple>
#include <utility>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/checkpoint/dcp/metadata.h"
#include "shardloom/checkpoint/dcp/metadata_classes.h"
#include "shardloom/checkpoint/dcp/torch_dtype.h"
#include "shardloom/checkpoint/dcp/unpickler.h"

namespace shardloom::checkpoint::dcp {
namespace {

using Kind = PickleNode::Kind;
using Offsets = std::optional<std::vector<int64_t>>;  // nothing for values

class MetadataParser {
 public:
  MetadataParser(const PickleNode& root, const std::string& place) : root_(root), place_(place) {}

  Metadata parse() {
    if (!root_.is_object(classes::kMetadata)) {
      fail(fmt::format("holds {}, not the metadata of a checkpoint", describe(root_)));
    }
    check_version();
    read_storage();
    for_each(field(root_, "state_dict_metadata"), [&](const PickleNode& key, const auto& value) {
      key_ = text_of(key);
      if (value.is_object(classes::kTensor)) {
        read_tensor(value);
      } else if (value.is_object(classes::kBytes)) {
        result_.values.emplace(key_, range_of(std::nullopt));
      } else {
        fail(fmt::format("is {}", describe(value)));
      }
    });
    read_planner_data();
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(const std::string& cause) const {
    if (key_.empty()) throw CheckpointError("{}: {}", place_, cause);
    throw CheckpointError("{}: \"{}\": {}", place_, key_, cause);
  }

  // nullptr when the object lacks it.
  const PickleNode* find_field(const PickleNode& object, const char* name) const {
    return object.state() == nullptr ? nullptr : object.state()->find(name);
  }

  const PickleNode& field(const PickleNode& object, const char* name) const {
    const PickleNode* value = find_field(object, name);
    if (value == nullptr) {
      fail(fmt::format("{} has no field {}", object.children()[0]->text(), name));
    }
    return *value;
  }

  template <typename Function>
  void for_each(const PickleNode& dict, const Function& function) const {
    if (!dict.is(Kind::kDict)) fail(fmt::format("{} where a dict is due", describe(dict)));
    const auto& children = dict.children();
    for (size_t i = 0; i + 1 < children.size(); i += 2) function(*children[i], *children[i + 1]);
  }

  std::string text_of(const PickleNode& node) const {
    if (!node.is(Kind::kText)) fail(fmt::format("{} where a text is due", describe(node)));
    return std::string(node.text());
  }

  uint64_t count_of(const PickleNode& node, const char* what) const {
    if (!node.is(Kind::kInt) || node.integer() < 0) {
      fail(fmt::format("{} is {}", what, describe(node)));
    }
    return static_cast<uint64_t>(node.integer());
  }

  std::vector<int64_t> size_of(const PickleNode& object, const char* name) const {
    const PickleNode& node = field(object, name);
    auto sizes = int_list(node);
    if (!sizes) fail(fmt::format("{} is {}", name, describe(node)));
    for (const int64_t size : *sizes) {
      if (size < 0) fail(fmt::format("{} {} has a negative part", name, shape_text(*sizes)));
    }
    return *std::move(sizes);
  }

  void check_version() const {
    const PickleNode* version = find_field(root_, "version");
    if (version == nullptr || version->is(Kind::kNone)) return;
    if (!text_of(*version).starts_with("1.")) {
      fail(fmt::format("version is {}; 1.x is read", describe(*version)));
    }
  }

  void read_storage() {
    for_each(field(root_, "storage_data"), [&](const PickleNode& index, const PickleNode& info) {
      if (!index.is_object(classes::kIndex) || !info.is_object(classes::kStorageInfo)) {
        fail(fmt::format("storage_data maps {} to {}", describe(index), describe(info)));
      }
      key_ = text_of(field(index, "fqn"));
      const PickleNode* offset = find_field(index, "offset");
      Offsets offsets;
      if (offset != nullptr && !offset->is(Kind::kNone)) offsets = size_of(index, "offset");
      ranges_[{key_, std::move(offsets)}] = read_range(info);
    });
    key_.clear();
  }

  ItemRange read_range(const PickleNode& info) const {
    const PickleNode* transforms = find_field(info, "transform_descriptors");
    if (transforms != nullptr && !transforms->is(Kind::kNone) && !transforms->children().empty()) {
      fail(
          "the item is compressed (transform_descriptors), which is not read; save it again "
          "without a stream transform");
    }
    ItemRange range{text_of(field(info, "relative_path")),
                    count_of(field(info, "offset"), "offset"),
                    count_of(field(info, "length"), "length")};
    if (range.file.empty() || range.file == "." || range.file == ".." ||
        range.file.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      fail(fmt::format("\"{}\" is not a file of the folder", range.file));
    }
    return range;
  }

  const ItemRange& range_of(const Offsets& offsets) const {
    const auto found = ranges_.find({key_, offsets});
    if (found == ranges_.end()) {
      fail(offsets ? fmt::format("storage_data lacks the chunk at {}", shape_text(*offsets))
                   : std::string("storage_data lacks it"));
    }
    return found->second;
  }

  void read_tensor(const PickleNode& node) {
    TensorEntry tensor;
    tensor.dtype = read_dtype(field(node, "properties"));
    tensor.shape = size_of(node, "size");
    const PickleNode& chunks = field(node, "chunks");
    if (!chunks.is(Kind::kList)) fail(fmt::format("chunks is {}", describe(chunks)));
    for (const PickleNode* chunk : chunks.children()) {
      if (!chunk->is_object(classes::kChunk)) fail(fmt::format("a chunk is {}", describe(*chunk)));
      Box box{size_of(*chunk, "offsets"), size_of(*chunk, "sizes")};
      const ItemRange& range = range_of(box.offsets);
      tensor.chunks.push_back({std::move(box), range});
    }
    result_.tensors.emplace(key_, std::move(tensor));
  }

  DType read_dtype(const PickleNode& properties) const {
    const PickleNode* state =
        properties.is_object(classes::kProperties) || properties.is_object(classes::kOldProperties)
            ? properties.state()
            : nullptr;
    if (state == nullptr || !state->is(Kind::kTuple) || state->children().empty()) {
      fail(fmt::format("properties is {}", describe(properties)));
    }
    const PickleNode& dtype = *state->children()[0];
    const auto parsed = dtype.is(Kind::kGlobal) ? parse_torch_dtype(dtype.text()) : std::nullopt;
    if (!parsed) fail(fmt::format("element type {} is not read here", describe(dtype)));
    return *parsed;
  }

  void read_planner_data() {
    key_.clear();
    const PickleNode* data = find_field(root_, "planner_data");
    if (data == nullptr || data->is(Kind::kNone)) return;
    for_each(*data, [&](const PickleNode& key, const PickleNode& path) {
      key_ = text_of(key);
      if (!path.is(Kind::kTuple)) fail(fmt::format("planner_data gives {}", describe(path)));
      StatePath& result = result_.planner_data[key_];
      for (const PickleNode* part : path.children()) {
        if (part->is(Kind::kInt)) {
          result.emplace_back(part->integer());
        } else {
          result.emplace_back(text_of(*part));
        }
      }
    });
  }

  const PickleNode& root_;
  const std::string& place_;
  std::string key_;  // being read, for messages
  std::map<std::pair<std::string, Offsets>, ItemRange> ranges_;
  Metadata result_;
};

}  // namespace

Metadata parse_metadata(std::string_view pickle, const std::string& place) {
  const PickleTree tree = unpickle(pickle, place);
  return MetadataParser(tree.root(), place).parse();
}

}  // namespace shardloom::checkpoint::dcp
