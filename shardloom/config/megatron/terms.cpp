#include "shardloom/config/megatron/terms.h"

#include <cctype>
#include <map>
#include <set>

#include "shardloom/base/strings.h"
#include "shardloom/config/megatron/flags.h"
#include "shardloom/config/megatron/source_map.h"

namespace shardloom::config::megatron {
namespace {

using Names = std::map<std::string, std::string>;

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

void add_flags(Names& names) {
  std::map<std::string, int> flags_of;
  for (const FlagGroup& group : flag_groups()) {
    for (const Flag& flag : group.flags()) ++flags_of[flag.yaml_key];
  }
  for (const FlagGroup& group : flag_groups()) {
    for (const Flag& flag : group.flags()) {
      if (!flag.yaml_key.empty() && flags_of[flag.yaml_key] == 1)
        names[flag.yaml_key] = flag.name();
    }
  }
}

// Messages also use the last part of a key alone, where it tells enough: cutoff_len.
void add_short_forms(Names& names) {
  std::map<std::string, std::set<std::string>> keys;
  for (const auto& [key, name] : names) keys[last_part(key)].insert(key);
  for (const auto& [part, of] : keys) {
    if (of.size() > 1 || part.find('_') == std::string::npos) continue;
    const std::string& name = names.at(*of.begin());
    if (last_part(name) != part) names.emplace(part, name);
  }
}

const Names& own_names() {
  static const Names names = [] {
    Names list;
    for (const KeyPair& pair : key_pairs()) {
      const auto [it, added] = list.emplace(pair.to, pair.from);
      // Of two keys that say one, the one that is called the same.
      if (!added && last_part(pair.from) == last_part(pair.to)) it->second = pair.from;
    }
    add_flags(list);
    add_short_forms(list);
    list.emplace("basic_parameters.dataset_dir", "data_folder");
    return list;
  }();
  return names;
}

// "" for what is no key.
std::string own_name(const std::string& word) {
  if (const auto found = own_names().find(word); found != own_names().end()) return found->second;
  const size_t index = word.rfind('[');  // apply_modules[2]
  if (index == std::string::npos) return "";
  const auto found = own_names().find(word.substr(0, index));
  return found == own_names().end() ? "" : found->second + word.substr(index);
}

bool is_key_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("_.[]/-").find(c) != std::string_view::npos;
}

bool is_flag(const std::string& name) { return name.starts_with("--"); }

class Line {
 public:
  Line(const std::string& text, const Sources& sources) : text_(text), sources_(sources) {}

  std::string run() {
    while (at_ < text_.size()) {
      const size_t begin = at_;
      while (at_ < text_.size() && is_key_character(text_[at_])) ++at_;
      if (at_ == begin) {
        out_ += text_[at_++];
        continue;
      }
      size_t end = at_;
      while (end > begin && text_[end - 1] == '.') --end;  // the end of a sentence
      at_ = end;
      add_word(text_.substr(begin, end - begin));
      for (; at_ < text_.size() && text_[at_] == '.'; ++at_) out_ += '.';
    }
    return std::move(out_);
  }

 private:
  bool next_is(std::string_view rest) const {
    return std::string_view(text_).substr(at_).starts_with(rest);
  }

  void add_word(const std::string& word) {
    const std::string name = own_name(word);
    if (name.empty()) {
      out_ += word;
      return;
    }
    const auto source = sources_.find(word);
    const std::string place = source == sources_.end() ? "" : source->second.str();
    if (is_flag(name) && !place.empty() && next_is(": ") && out_ == place + ": ") {
      at_ += 2;  // the place says it already
    } else if (out_.empty() && !place.empty()) {
      out_ += is_flag(name) && place.starts_with(name) ? place : place + ": " + name;
    } else {
      out_ += name;
      if (is_flag(name)) add_value();
    }
  }

  // "key: value" of a remedy as a flag is written.
  void add_value() {
    if (next_is(": true") || next_is(": false")) {
      at_ += next_is(": true") ? 6 : 7;
    } else if (next_is(": skip")) {
      at_ += 1;
    }
  }

  const std::string& text_;
  const Sources& sources_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string in_own_terms(const std::string& message, const MegatronConfig& config) {
  std::vector<std::string> lines = split(message, '\n');
  for (std::string& line : lines) line = Line(line, config.loaded.sources).run();
  return join(lines, "\n");
}

std::vector<std::string> in_own_terms(std::vector<std::string> messages,
                                      const MegatronConfig& config) {
  for (std::string& message : messages) message = in_own_terms(message, config);
  return messages;
}

}  // namespace shardloom::config::megatron
