// Which rank failed first, and what the launcher says and returns for it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace shardloom::distributed {

// How one rank ended.
struct RankEnd {
  int rank = 0;
  int exit_code = 0;
  int signal = 0;           // that killed it; 0 = it exited by itself
  bool after_stop = false;  // the launcher had told it to end before
  std::chrono::steady_clock::time_point time{};
  std::string error;             // first line of its last error, without "error: "; may be empty
  bool error_continues = false;  // the error has more lines, which stand above
};

// The cause of a failed run, nullptr when no rank failed. `ends` in the order of ending. It is the
// first rank that failed, unless that one reports code 5 (its peers vanished) and another failed
// by itself: within 200 ms, or at any time with code 2, 3 or 4, which no peer can bring about. A
// rank that did as it was told (130, 5 or a signal, after_stop) has not failed.
const RankEnd* first_cause(const std::vector<RankEnd>& ends);

// 2, 3, 4, 5, 70 and 130 stay, a signal gives 5, anything else 70.
int launcher_exit_code(const RankEnd& cause);

// "rank 1 failed first: data.jsonl:3: ... (exit code 3)".
std::string describe(const RankEnd& cause);

}  // namespace shardloom::distributed
