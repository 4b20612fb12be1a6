#include "shardloom/checkpoint/collective_text.h"

#include <algorithm>
#include <cstring>

#include "shardloom/base/error.h"

namespace shardloom::checkpoint {

std::vector<std::string> all_gather_text(distributed::Group& group,
                                         const std::string& text,
                                         const std::string& label) {
  const int64_t size = group.size();
  const auto length = static_cast<int64_t>(text.size());
  const at::Tensor lengths = at::empty({size}, at::kLong);
  group.all_gather(lengths, at::full({1}, length, at::kLong), label + ", lengths").wait();
  const int64_t longest = std::max<int64_t>(1, lengths.max().item<int64_t>());
  const at::Tensor own = at::zeros({longest}, at::kByte);
  std::memcpy(own.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor all = at::empty({size * longest}, at::kByte);
  group.all_gather(all, own, label).wait();
  std::vector<std::string> texts;
  for (int64_t i = 0; i < size; ++i) {
    texts.emplace_back(static_cast<const char*>(all.const_data_ptr()) + i * longest,
                       static_cast<size_t>(lengths[i].item<int64_t>()));
  }
  return texts;
}

void together(distributed::Group& group,
              const std::string& label,
              const std::function<void()>& action) {
  std::string error;
  try {
    action();
  } catch (const std::exception& caught) {
    error = caught.what();
    if (error.empty()) error = "unknown error";
  }
  const std::vector<std::string> errors = all_gather_text(group, error, label);
  const auto failed = [](const std::string& text) { return !text.empty(); };
  const auto first = std::find_if(errors.begin(), errors.end(), failed);
  if (first == errors.end()) return;
  const auto others = std::count_if(first + 1, errors.end(), failed);
  throw CheckpointError(
      "{}: {}{}{}", label,
      group.size() > 1
          ? fmt::format("rank {}: ", group.ranks()[static_cast<size_t>(first - errors.begin())])
          : "",
      *first, others > 0 ? fmt::format(" (and {} more ranks)", others) : "");
}

}  // namespace shardloom::checkpoint
