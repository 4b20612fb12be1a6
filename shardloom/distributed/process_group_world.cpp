// WorldOptions::from_environment() and default_timeout().

#include <charconv>
#include <cstdlib>
#include <optional>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/distributed/environment.h"
#include "shardloom/distributed/process_group.h"

namespace shardloom::distributed {
namespace {

constexpr int kMaxWorld = 1'000'000;
constexpr int kMaxPort = 65535;

// Reads variables and collects what is wrong with them.
class EnvironmentReader {
 public:
  std::string text(const char* name) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') missing_.push_back(name);
    return value == nullptr ? "" : value;
  }

  std::optional<int> number(const char* name, int least, int most) {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    return parse(name, value, least, most);
  }

  std::optional<int> optional_number(const char* name, int least, int most) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return parse(name, value, least, most);
  }

  void wrong(std::string text) { problems_.push_back(std::move(text)); }

  void throw_if_any() {
    if (!missing_.empty()) {
      problems_.insert(problems_.begin(),
                       fmt::format("{} not set (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are "
                                   "needed; `shardloom launch` and torchrun set them)",
                                   shardloom::join(missing_, ", ")));
    }
    if (problems_.empty()) return;
    throw ConfigError("environment of a distributed run: {}", shardloom::join(problems_, "; "));
  }

 private:
  std::optional<int> parse(const char* name, const std::string& value, int least, int most) {
    int number = 0;
    const char* end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, number);
    if (error == std::errc() && stop == end && number >= least && number <= most) return number;
    wrong(
        fmt::format("{} must be a whole number from {} to {}, got '{}'", name, least, most, value));
    return std::nullopt;
  }

  std::vector<std::string> missing_;
  std::vector<std::string> problems_;
};

}  // namespace

std::chrono::milliseconds default_timeout() {
  return seconds_from_environment("SHARDLOOM_TIMEOUT_SECONDS", kDefaultTimeout,
                                  std::chrono::milliseconds(1));
}

WorldOptions WorldOptions::from_environment() {
  EnvironmentReader reader;
  WorldOptions world;
  const auto rank = reader.number("RANK", 0, kMaxWorld - 1);
  const auto size = reader.number("WORLD_SIZE", 1, kMaxWorld);
  world.master_addr = reader.text("MASTER_ADDR");
  const auto port = reader.number("MASTER_PORT", 1, kMaxPort);
  world.rank = rank.value_or(0);
  world.world_size = size.value_or(world.rank + 1);
  if (world.rank >= world.world_size) {
    reader.wrong(fmt::format("RANK is {}, but ranks count from 0 to WORLD_SIZE - 1 = {}",
                             world.rank, world.world_size - 1));
  }
  const auto local_size = reader.optional_number("LOCAL_WORLD_SIZE", 1, kMaxWorld);
  const auto local_rank = reader.optional_number("LOCAL_RANK", 0, kMaxWorld - 1);
  world.local_world_size = local_size.value_or(world.world_size);
  world.local_rank = local_rank.value_or(world.rank);
  if ((local_size || local_rank) && world.local_rank >= world.local_world_size) {
    reader.wrong(fmt::format("LOCAL_RANK is {}, but LOCAL_WORLD_SIZE is {}", world.local_rank,
                             world.local_world_size));
  }
  if (local_size && world.local_world_size > world.world_size) {
    reader.wrong(fmt::format("LOCAL_WORLD_SIZE is {}, but WORLD_SIZE is {}", world.local_world_size,
                             world.world_size));
  }
  world.master_port = static_cast<uint16_t>(port.value_or(world.master_port));
  const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  world.use_agent_store = agent != nullptr && std::string_view(agent) == "True";
  if (world.use_agent_store) {
    world.agent_attempt = static_cast<int>(
        reader.optional_number("TORCHELASTIC_RESTART_COUNT", 0, 1'000'000).value_or(0));
  }
  reader.throw_if_any();
  return world;
}

}  // namespace shardloom::distributed
