// A progress bar with rate and ETA; draws only when stderr is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace shardloom {

class ProgressBar {
 public:
  // `unit` as in "it", "MB"; nothing is drawn unless `enabled` and stderr is a terminal.
  ProgressBar(std::string label, int64_t total, std::string unit = "it", bool enabled = true);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `note` stands at the end of the bar ("loss 2.01").
  void update(int64_t done, const std::string& note = {});
  // Removes the bar from the screen, so that a line can be printed; the next update draws it again.
  void clear();

  // "1:02:03" or "04:05".
  static std::string format_seconds(double seconds);

 private:
  std::string label_;
  int64_t total_;
  std::string unit_;
  bool active_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_draw_;
};

}  // namespace shardloom
