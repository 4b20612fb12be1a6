#include "shardloom/study/machine.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>

#include "shardloom/base/cores.h"
#include "shardloom/base/strings.h"
#include "shardloom/study/text.h"

namespace shardloom::study {
namespace {

// The value of the first "key : value" line.
std::optional<std::string> proc_value(const char* file, std::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos && trim(std::string_view(line).substr(0, colon)) == key)
      return std::string(trim(std::string_view(line).substr(colon + 1)));
  }
  return std::nullopt;
}

uint64_t memory_bytes() {
  const std::string kib = proc_value("/proc/meminfo", "MemTotal").value_or("0 kB");
  return static_cast<uint64_t>(parse_number(kib.substr(0, kib.find(' '))).value_or(0)) * 1024;
}

std::string utc_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[11] = {};
  std::strftime(text, sizeof(text), "%Y-%m-%d", &parts);
  return text;
}

}  // namespace

Machine describe_machine(int ranks) {
  Machine machine;
  machine.cpu = proc_value("/proc/cpuinfo", "model name").value_or("unknown");
  machine.cores = num_cores();
  machine.memory_bytes = memory_bytes();
  const char* threads = std::getenv("OMP_NUM_THREADS");
  machine.threads_per_rank = static_cast<int>(
      parse_number(threads == nullptr ? "" : threads).value_or(share_of_cores(ranks)));
  machine.date = utc_date();
  return machine;
}

}  // namespace shardloom::study
