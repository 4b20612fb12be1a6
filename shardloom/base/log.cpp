#include "shardloom/base/log.h"

#include <cstdio>
#include <cstring>
#include <mutex>

namespace shardloom::log {
namespace {

std::mutex mutex;
int rank_ = 0;
int world_size_ = 1;

}  // namespace

void set_rank(int rank, int world_size) {
  std::lock_guard lock(mutex);
  rank_ = rank;
  world_size_ = world_size;
}

int rank() {
  std::lock_guard lock(mutex);
  return rank_;
}

int world_size() {
  std::lock_guard lock(mutex);
  return world_size_;
}

void write(const char* level, const std::string& text) {
  std::lock_guard lock(mutex);
  const bool is_info = std::strcmp(level, "info") == 0;
  if (is_info && rank_ != 0) return;
  std::string line = world_size_ > 1 && !is_info ? fmt::format("[rank {}] ", rank_) : std::string();
  if (!is_info) line += fmt::format("{}: ", level);
  line += text;
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace shardloom::log
