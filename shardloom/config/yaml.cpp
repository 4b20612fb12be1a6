#include "shardloom/config/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/config/yaml_text.h"

namespace shardloom::config {
namespace {

constexpr size_t kMaxNodes = 100'000;  // aliases of aliases grow without bound otherwise
constexpr std::string_view kMergeKey = "<<";

using Kind = YamlNode::Kind;
using Origin = std::shared_ptr<const std::string>;

Place place_of(const Origin& origin, const YAML::Mark& mark) {
  return {origin, mark.line + 1, mark.column + 1};
}

// Builds the tree from the events of one document. Keys are kept in order, duplicates and merges
// included.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(Origin origin, std::string_view text, Problems& problems)
      : origin_(std::move(origin)), text_(text), problems_(problems) {}

  YamlNode take_root() { return std::move(root_); }
  const Place& document_place() const { return document_place_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    document_place_ = place_of(origin_, mark);
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    YamlNode node;
    node.place = place_of(origin_, mark);
    finish(std::move(node), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const Place place = place_of(origin_, mark);
    const auto it = anchors_.find(anchor);
    if (it == anchors_.end()) {
      throw ConfigError("{}: an alias inside its own anchor", place.str());
    }
    num_nodes_ += it->second.num_nodes;
    check_size(place);
    finish(YamlNode(it->second.node), 0);
  }

  void OnScalar(const YAML::Mark& mark,
                const std::string& tag,
                YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node;
    node.kind = Kind::kScalar;
    node.place = place_of(origin_, mark);
    node.text = value;
    node.quoted = tag == "!";
    check_tag(tag, node.place);
    if (node.quoted) check_closing_quote(mark);
    finish(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark,
                       const std::string& tag,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(Kind::kSequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark,
                  const std::string& tag,
                  YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    YamlNode node;
    YAML::anchor_t anchor = 0;
    size_t nodes_before = 0;
    bool has_key = false;  // of a map: the next node is the value of the last entry
  };
  struct Anchored {
    YamlNode node;
    size_t num_nodes = 0;
  };

  void check_tag(const std::string& tag, const Place& place) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    problems_.error(place,
                    fmt::format("the YAML tag {} is not supported; write the plain value", tag));
  }

  // yaml-cpp takes a text whose closing quote is missing for one that ends with the file.
  void check_closing_quote(const YAML::Mark& mark) {
    const auto start = static_cast<size_t>(mark.pos);
    const char quote = start < text_.size() ? text_[start] : '\0';
    if (quote != '"' && quote != '\'') return;  // a block
    for (size_t i = start + 1; i < text_.size(); ++i) {
      if (quote == '"' && text_[i] == '\\') {
        ++i;
      } else if (text_[i] == quote) {
        return;
      }
    }
    throw ConfigError("{}: the quote {} is never closed", place_of(origin_, mark).str(), quote);
  }

  void check_size(const Place& place) {
    if (num_nodes_ > kMaxNodes) {
      throw ConfigError("{}: more than {} values after aliases are expanded", place.str(),
                        kMaxNodes);
    }
  }

  void open(Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    Frame frame;
    frame.node.kind = kind;
    frame.node.place = place_of(origin_, mark);
    frame.anchor = anchor;
    frame.nodes_before = num_nodes_;
    check_tag(tag, frame.node.place);
    stack_.push_back(std::move(frame));
  }

  void close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    finish(std::move(frame.node), frame.anchor, num_nodes_ - frame.nodes_before);
  }

  void finish(YamlNode node, YAML::anchor_t anchor, size_t num_nodes = 0) {
    ++num_nodes_;
    check_size(node.place);
    if (anchor != 0) anchors_[anchor] = {node, num_nodes + 1};
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& parent = stack_.back();
    if (parent.node.kind == Kind::kSequence) {
      parent.node.items.push_back(std::move(node));
    } else if (parent.has_key) {
      parent.has_key = false;
      // The mark of an empty value is that of the next token; its key says better where it is.
      if (node.kind == Kind::kNull) node.place = parent.node.entries.back().key_place;
      parent.node.entries.back().value = std::move(node);
    } else {
      add_key(parent, std::move(node));
    }
  }

  void add_key(Frame& parent, YamlNode key) {
    parent.has_key = true;
    if (key.kind != Kind::kScalar) {
      problems_.error(key.place, fmt::format("a key must be text, got {}", key.describe()));
      key.text.clear();
    }
    YamlEntry entry;
    // A quoted "<<" is an ordinary (unknown) key, not a merge.
    entry.key = key.quoted && key.text == kMergeKey ? "\"<<\"" : std::move(key.text);
    entry.key_place = key.place;
    parent.node.entries.push_back(std::move(entry));
  }

  Origin origin_;
  std::string_view text_;
  Problems& problems_;
  YamlNode root_;
  Place document_place_;
  std::vector<Frame> stack_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  size_t num_nodes_ = 0;
};

// Reports duplicate keys and replaces `<<` entries by the entries they stand for.
class Resolver {
 public:
  explicit Resolver(Problems& problems) : problems_(problems) {}

  void resolve(YamlNode& node, const std::string& path) {
    for (YamlNode& item : node.items) resolve(item, path);
    for (YamlEntry& entry : node.entries) resolve(entry.value, child_path(path, entry.key));
    if (node.kind == Kind::kMap) resolve_map(node, path);
  }

 private:
  static std::string child_path(const std::string& path, const std::string& key) {
    if (key == kMergeKey) return path;
    return path.empty() ? key : path + "." + key;
  }

  void resolve_map(YamlNode& map, const std::string& path) {
    std::vector<YamlEntry> entries = std::move(map.entries);
    map.entries.clear();
    std::vector<YamlEntry*> merges;
    for (YamlEntry& entry : entries) {
      if (entry.key == kMergeKey) {
        merges.push_back(&entry);
      } else if (const YamlEntry* first = map.find(entry.key)) {
        const bool is_section = path.empty() && entry.value.kind == Kind::kMap;
        problems_.error(
            entry.key_place,
            fmt::format("duplicate {} {} (first given on line {})", is_section ? "section" : "key",
                        child_path(path, entry.key), first->key_place.line));
      } else {
        map.entries.push_back(std::move(entry));
      }
    }
    if (merges.size() > 1) {
      problems_.error(
          merges[1]->key_place,
          fmt::format(
              "duplicate key << (first given on line {}); merge several maps with <<: [*a, *b]",
              merges[0]->key_place.line));
    } else if (merges.size() == 1) {
      merge(map, *merges[0]);
    }
  }

  void merge(YamlNode& map, YamlEntry& entry) {
    if (entry.value.kind == Kind::kMap) {
      merge_map(map, entry.value);
      return;
    }
    const bool is_list = entry.value.kind == Kind::kSequence;
    for (const YamlNode& item : entry.value.items) {
      if (item.kind == Kind::kMap) {
        merge_map(map, item);
      } else {
        problems_.error(item.place, fmt::format("<< merges maps, got {}", item.describe()));
      }
    }
    if (!is_list) {
      problems_.error(
          entry.key_place,
          fmt::format("<< needs an alias of a map (<<: *name) or a list of them, got {}",
                      entry.value.describe()));
    }
  }

  static void merge_map(YamlNode& map, const YamlNode& source) {
    for (const YamlEntry& entry : source.entries) {
      if (map.find(entry.key) == nullptr) map.entries.push_back(entry);
    }
  }

  Problems& problems_;
};

constexpr size_t kMostShown = 80;  // bytes of a value in a message

std::string shortened(const std::string& text) {
  if (text.size() <= kMostShown) return text;
  size_t end = kMostShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

}  // namespace

const YamlEntry* YamlNode::find(std::string_view key) const {
  const auto it = std::find_if(entries.begin(), entries.end(),
                               [&](const YamlEntry& e) { return e.key == key; });
  return it == entries.end() ? nullptr : &*it;
}

YamlEntry* YamlNode::find(std::string_view key) {
  return const_cast<YamlEntry*>(static_cast<const YamlNode*>(this)->find(key));
}

std::string YamlNode::describe() const {
  switch (kind) {
    case Kind::kNull:
      return "nothing (null)";
    case Kind::kScalar:
      return fmt::format("{}\"{}\"", quoted ? "the quoted text " : "", shortened(text));
    case Kind::kSequence:
      return "a list";
    case Kind::kMap:
      return "a map";
  }
  return "";
}

YamlNode parse_yaml(std::string_view raw, const std::string& origin_name, Problems& problems) {
  const auto origin = std::make_shared<const std::string>(origin_name);
  std::string text = plain_text(raw, origin);
  TreeBuilder builder(origin, text, problems);
  YamlNode root;
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      root = builder.take_root();
      if (parser.HandleNextDocument(builder)) {
        throw ConfigError("{}: a second YAML document; a configuration is one document{}",
                          builder.document_place().str(),
                          text.starts_with('{') ? " (this file looks like JSON Lines)" : "");
      }
    }
  } catch (const YAML::Exception& error) {
    throw ConfigError("{}: {}", place_of(origin, error.mark).str(),
                      syntax_fault(text, error.mark.line + 1, error.msg));
  }
  Resolver(problems).resolve(root, "");
  return root;
}

}  // namespace shardloom::config
