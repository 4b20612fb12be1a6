// Messages for people, on stderr (training log lines go to stdout through trainer/log_line.h).
#pragma once

#include <fmt/format.h>

#include <string>

namespace shardloom::log {

// Rank shown before messages when there are several processes; info() of ranks above 0 is dropped.
void set_rank(int rank, int world_size);
int rank();
int world_size();

void write(const char* level, const std::string& text);

template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write("info", fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write("warning", fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write("error", fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace shardloom::log
