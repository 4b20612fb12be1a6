// SIGINT, SIGTERM and, unless it is ignored (nohup), SIGHUP as a flag that loops poll; another
// signal a second or more later ends the process at once with code 130. The first one is answered
// with a line on stderr; of several ranks (log::set_rank) only rank 0 answers, and only SIGINT,
// because with SIGTERM the launcher stops ranks whose peer has failed.
#pragma once

#include <chrono>

namespace shardloom {

// Signals that follow one within this time are the same request: `timeout`, `pkill` and job
// schedulers signal a launcher, which passes it on, and the processes that it started.
inline constexpr std::chrono::milliseconds kSameRequest{1000};

enum class OnInterrupt {
  kSetFlag,
  kEnd,  // the first signal already ends the process: nothing can be lost yet, and nobody polls
};

// After log::set_rank(); may be called again for another way.
void install_interrupt_handlers(OnInterrupt first = OnInterrupt::kSetFlag);
bool interrupt_requested();

// As nohup has it for SIGHUP.
bool is_ignored(int signal);

}  // namespace shardloom
