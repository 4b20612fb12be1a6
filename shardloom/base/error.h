// Errors that reach the user. Each carries the process exit code; the text says what is wrong, the
// value seen, the place and the remedy. Only the command line prints them; nothing below it ends
// the process.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace shardloom {

enum class ExitCode : int {
  kOk = 0,
  kConfig = 2,
  kData = 3,
  kCheckpoint = 4,
  kDistributed = 5,
  kInternal = 70,
  kInterrupted = 130,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

template <ExitCode kCode>
class CodedError : public Error {
 public:
  explicit CodedError(const std::string& text) : Error(kCode, text) {}
  template <typename... Args>
  explicit CodedError(fmt::format_string<Args...> format, Args&&... args)
      : Error(kCode, fmt::format(format, std::forward<Args>(args)...)) {}
};

using ConfigError = CodedError<ExitCode::kConfig>;  // a setting is wrong
using DataError = CodedError<ExitCode::kData>;      // a sample, image or tokenizer file is wrong
using CheckpointError = CodedError<ExitCode::kCheckpoint>;    // weights or saved state are wrong
using DistributedError = CodedError<ExitCode::kDistributed>;  // processes or collectives failed
using InterruptedError = CodedError<ExitCode::kInterrupted>;  // SIGINT or SIGTERM
using InternalError = CodedError<ExitCode::kInternal>;        // our own fault, or anything else

}  // namespace shardloom

// For contracts that only our own code can break.
#define SHARDLOOM_CHECK(condition, ...)                                                          \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      throw ::shardloom::InternalError("{}:{}: {} is false: {}", __FILE__, __LINE__, #condition, \
                                       fmt::format(__VA_ARGS__));                                \
    }                                                                                            \
  } while (false)
