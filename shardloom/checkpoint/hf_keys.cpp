#include "shardloom/checkpoint/hf_keys.h"

#include <algorithm>
#include <set>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"

namespace shardloom::checkpoint {
namespace {

constexpr size_t kListed = 20;  // names printed of a long list

std::string listed(const std::vector<std::string>& names) {
  std::vector<std::string> shown(
      names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), kListed)));
  std::string text = join(shown, "\n    ");
  if (names.size() > kListed) text += fmt::format("\n    ... and {} more", names.size() - kListed);
  return text;
}

size_t count_present(const HfFolder& folder, const std::vector<nn::WeightSource>& sources) {
  size_t present = 0;
  for (const auto& source : sources) {
    for (const auto& piece : source.pieces) present += folder.find(piece.key) != nullptr ? 1 : 0;
  }
  return present;
}

// The names of the files may differ from those of the model by a slip or an older version.
std::vector<std::string> with_nearest(std::vector<std::string> missing,
                                      const std::vector<std::string>& unexpected) {
  for (size_t i = 0; i < std::min(missing.size(), kListed); ++i)
    missing[i] += did_you_mean(missing[i], unexpected);
  return missing;
}

// What usually lies behind a list of unexpected names.
std::string hint(const std::vector<std::string>& unexpected) {
  for (const std::string& name : unexpected) {
    if (name.find("lora_") != std::string::npos || name.find("base_layer") != std::string::npos) {
      return "\n  These are LoRA weights: merge them into the base weights first.";
    }
    if (name.rfind("module.", 0) == 0)
      return "\n  The names carry a \"module.\" prefix: save the unwrapped model.";
  }
  return {};
}

}  // namespace

nn::Layout choose_layout(const HfFolder& folder, const SourcesOfLayout& sources_of) {
  nn::Layout best = nn::kAllLayouts[0];
  size_t best_count = 0;
  for (const nn::Layout layout : nn::kAllLayouts) {
    const size_t count = count_present(folder, sources_of(layout));
    if (count > best_count) {
      best = layout;
      best_count = count;
    }
  }
  return best;
}

nn::Layout export_layout(const std::string& name, nn::Layout own) {
  if (name == "auto") return own;
  if (name == "remote_code") return nn::Layout::kRemoteCode;
  SHARDLOOM_CHECK(name == "hf", "layout \"{}\"", name);
  return nn::is_hf(own) ? own : nn::Layout::kHfNative;
}

KeyProblems check_keys(const HfFolder& folder,
                       const std::vector<nn::WeightSource>& sources,
                       const std::function<bool(const std::string&)>& may_ignore) {
  KeyProblems problems;
  std::set<std::string> wanted;
  for (const auto& source : sources) {
    for (const auto& piece : source.pieces) {
      wanted.insert(piece.key);
      const TensorLocation* found = folder.find(piece.key);
      if (found == nullptr) {
        problems.missing.push_back(piece.key);
      } else if (found->info->shape != piece.shape) {
        problems.misshapen.push_back(fmt::format(
            "{}: {} in {}, the model needs {}", piece.key, shape_text(found->info->shape),
            found->file->path().filename().string(), shape_text(piece.shape)));
      }
    }
  }
  problems.wanted = wanted.size();
  for (const auto& [name, location] : folder.tensors()) {
    if (!wanted.contains(name) && !(may_ignore && may_ignore(name)))
      problems.unexpected.push_back(name);
  }
  return problems;
}

std::string problems_text(const std::string& place, const KeyProblems& problems) {
  std::string text;
  auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty())
      text += fmt::format("\n  {} {}:\n    {}", names.size(), what, listed(names));
  };
  add("missing (the model needs them)", with_nearest(problems.missing, problems.unexpected));
  add("unexpected (the model has no place for them)", problems.unexpected);
  add("of another shape", problems.misshapen);
  if (text.empty()) return text;
  return fmt::format("{}: the weights do not fit the model{}{}", place, text,
                     hint(problems.unexpected));
}

}  // namespace shardloom::checkpoint
