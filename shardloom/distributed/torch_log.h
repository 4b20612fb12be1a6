// Torch logs what it throws a second time, with stack traces.
#pragma once

#include <c10/util/Logging.h>

#include <cstdlib>

namespace shardloom::distributed {

// Holds back torch's own log while calls are made whose exceptions we turn into one line; not when
// the user has chosen a level (TORCH_CPP_LOG_LEVEL).
class QuietTorchLog {
 public:
  QuietTorchLog() {
    constexpr int kFatal = 3;
    if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = kFatal;
  }
  ~QuietTorchLog() { FLAGS_caffe2_log_level = before_; }
  QuietTorchLog(const QuietTorchLog&) = delete;
  QuietTorchLog& operator=(const QuietTorchLog&) = delete;

 private:
  int before_ = FLAGS_caffe2_log_level;
};

}  // namespace shardloom::distributed
