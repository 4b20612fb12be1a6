#include "shardloom/distributed/environment.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "shardloom/base/error.h"

namespace shardloom::distributed {
namespace {

using std::chrono::milliseconds;
using Seconds = std::chrono::duration<double>;

constexpr milliseconds kMost = std::chrono::days(30);

}  // namespace

milliseconds seconds_from_environment(const char* name, milliseconds unset, milliseconds least) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return unset;
  const std::string_view text = value;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  // Written so that NaN is refused.
  if (error == std::errc() && end == text.data() + text.size() &&
      seconds >= Seconds(least).count() && seconds <= Seconds(kMost).count()) {
    return std::chrono::round<milliseconds>(Seconds(seconds));
  }
  throw ConfigError("{} must be a number of seconds from {} to {}, got '{}'", name,
                    Seconds(least).count(), Seconds(kMost).count(), text);
}

}  // namespace shardloom::distributed
