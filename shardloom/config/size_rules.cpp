#include "shardloom/config/size_rules.h"

#include <fmt/format.h>

#include <functional>

#include "shardloom/base/split_evenly.h"
#include "shardloom/base/strings.h"

namespace shardloom::config {
namespace {

constexpr const char* kCp = "parallel.ulysses_parallel_size";
constexpr const char* kEp = "parallel.expert_parallel_size";
constexpr const char* kModel = "model.model_name_or_path";

using Predicate = std::function<bool(int64_t)>;

// The largest legal value below and the smallest above `value`, as text; searches up to `limit`.
std::string nearest_legal(int64_t value, int64_t limit, const Predicate& legal) {
  std::vector<std::string> found;
  for (int64_t v = std::min(value, limit + 1) - 1; v >= 1; --v) {
    if (legal(v)) {
      found.push_back(std::to_string(v));
      break;
    }
  }
  for (int64_t v = value + 1; v <= limit; ++v) {
    if (legal(v)) {
      found.push_back(std::to_string(v));
      break;
    }
  }
  return found.empty() ? "none" : join(found, " or ");
}

class Checker {
 public:
  explicit Checker(const SizeInputs& sizes) : s_(sizes) {}

  std::vector<BrokenRule> run() {
    if (!check_positive()) return broken_;
    check_context_parallel();
    check_experts();
    check_batch();
    return broken_;
  }

 private:
  void fail(const char* rule, const char* key, std::string message) {
    broken_.push_back({rule, key, /*of_model=*/false, std::move(message)});
  }
  void fail_model(const char* rule, const char* key, std::string message) {
    broken_.push_back({rule, key, /*of_model=*/true, std::move(message)});
  }

  // The other rules divide by these.
  bool check_positive() {
    const bool vision = s_.vision_heads != 0;
    const std::pair<const char*, int64_t> values[] = {
        {"world", s_.world},
        {"cp", s_.cp},
        {"ep", s_.ep},
        {"seq", s_.seq},
        {"heads", s_.heads},
        {"micro_batch", s_.micro_batch},
        {"kv_heads", s_.kv_heads},
        {"vision_heads", vision ? s_.vision_heads : 1},
        {"global_batch", s_.global_batch},
        {"vision_tokens", vision ? s_.vision_tokens : 1}};
    for (const auto& [name, value] : values) {
      if (value < 1)
        fail("size >= 1", "", fmt::format("{} is {}, but must be at least 1", name, value));
    }
    return broken_.empty();
  }

  void check_context_parallel() {
    const auto divides_world = [&](int64_t cp) { return s_.world % cp == 0; };
    const auto divides_heads = [&](int64_t cp) { return s_.heads % cp == 0; };
    const auto fits_kv = [&](int64_t cp) { return s_.kv_heads % cp == 0 || cp % s_.kv_heads == 0; };
    const auto divides_vision = [&](int64_t cp) { return s_.vision_heads % cp == 0; };
    const auto nearest_cp = [&] {
      return nearest_legal(s_.cp, s_.world, [&](int64_t cp) {
        return divides_world(cp) && divides_heads(cp) && fits_kv(cp) && divides_vision(cp);
      });
    };
    if (!divides_world(s_.cp)) {
      fail("world % cp", kCp,
           fmt::format("the world size {} is not a multiple of ulysses_parallel_size {}; "
                       "nearest legal sizes: {}",
                       s_.world, s_.cp, nearest_cp()));
    }
    if (!divides_heads(s_.cp)) {
      fail_model("heads % cp", kCp,
                 fmt::format("the {} attention heads of the language model cannot be divided over "
                             "ulysses_parallel_size {}; nearest legal sizes: {}",
                             s_.heads, s_.cp, nearest_cp()));
    }
    if (!fits_kv(s_.cp)) {
      fail_model(
          "kv_heads vs cp", kCp,
          fmt::format("neither of {} key/value heads and ulysses_parallel_size {} divides the "
                      "other; nearest legal sizes: {}",
                      s_.kv_heads, s_.cp, nearest_cp()));
    }
    if (!divides_vision(s_.cp)) {
      fail_model("vision_heads % cp", kCp,
                 fmt::format("the {} attention heads of the vision model cannot be divided over "
                             "ulysses_parallel_size {}; nearest legal sizes: {}",
                             s_.vision_heads, s_.cp, nearest_cp()));
    }
  }

  void check_experts() {
    const bool moe = s_.experts > 0;
    const auto divides_experts = [&](int64_t ep) { return !moe || s_.experts % ep == 0; };
    const auto divides_world = [&](int64_t ep) { return s_.world % ep == 0; };
    const auto nearest_ep = [&] {
      return nearest_legal(s_.ep, s_.world,
                           [&](int64_t ep) { return divides_experts(ep) && divides_world(ep); });
    };
    if (!moe && s_.ep > 1) {
      fail_model(
          "ep without experts", kEp,
          fmt::format("expert_parallel_size is {}, but the model has no experts; set it to 1",
                      s_.ep));
    }
    if (!divides_experts(s_.ep)) {
      fail_model("experts % ep", kEp,
                 fmt::format("the {} experts cannot be divided over expert_parallel_size {}; "
                             "nearest legal sizes: {}",
                             s_.experts, s_.ep, nearest_ep()));
    }
    if (!divides_world(s_.ep)) {
      fail("world % ep", kEp,
           fmt::format("the world size {} is not a multiple of expert_parallel_size {}; "
                       "nearest legal sizes: {}",
                       s_.world, s_.ep, nearest_ep()));
    }
    if (moe && s_.top_k > s_.experts) {
      fail_model("top_k > experts", kModel,
                 fmt::format("each token goes to {} experts, but the model has only {}", s_.top_k,
                             s_.experts));
    }
  }

  void check_batch() {
    if (s_.world % s_.cp != 0) return;  // no data-parallel size to check against
    const int64_t dp = s_.world / s_.cp;
    const int64_t step = s_.micro_batch * dp;
    if (s_.global_batch % step == 0) return;
    const int64_t below = s_.global_batch / step * step;
    fail("global_batch % (micro_batch*dp)", "training.global_batch_size",
         fmt::format("global_batch_size {} is not a multiple of micro_batch_size {} x "
                     "data-parallel size {} = {}; "
                     "nearest legal values: {}{}",
                     s_.global_batch, s_.micro_batch, dp, step,
                     below > 0 ? fmt::format("{} or ", below) : "", below + step));
  }

  const SizeInputs& s_;
  std::vector<BrokenRule> broken_;
};

}  // namespace

SizeReport check_sizes(const SizeInputs& sizes) {
  SizeReport report;
  report.broken = Checker(sizes).run();
  if (!report.ok()) return report;
  report.data_parallel = sizes.world / sizes.cp;
  report.text_pad_to = (sizes.cp - sizes.seq % sizes.cp) % sizes.cp;
  report.kv_repeat = std::max<int64_t>(1, sizes.cp / sizes.kv_heads);
  report.vision_split = split_evenly(sizes.vision_tokens, sizes.cp);
  return report;
}

}  // namespace shardloom::config
