// Who was first, and the exit code: the rules without processes.
#include "shardloom/distributed/launcher_verdict.h"

#include <gmock/gmock.h>

#include <csignal>

namespace shardloom::distributed {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

RankEnd exited(int rank, int code, int at_ms, bool after_stop = false) {
  RankEnd end;
  end.rank = rank;
  end.exit_code = code;
  end.after_stop = after_stop;
  end.time += milliseconds(at_ms);
  return end;
}

RankEnd killed(int rank, int signal, int at_ms, bool after_stop = false) {
  RankEnd end = exited(rank, 0, at_ms, after_stop);
  end.signal = signal;
  return end;
}

int first_rank(const std::vector<RankEnd>& ends) {
  const RankEnd* cause = first_cause(ends);
  return cause != nullptr ? cause->rank : -1;
}

TEST(Verdict, NoCauseWhenAllEndWell) {
  EXPECT_EQ(first_rank({}), -1);
  EXPECT_EQ(first_rank({exited(0, 0, 0), exited(1, 0, 5)}), -1);
}

TEST(Verdict, TheFirstFailureCounts) {
  EXPECT_EQ(first_rank({exited(0, 0, 0), exited(2, 70, 1), exited(1, 3, 9)}), 2);
  EXPECT_EQ(first_rank({killed(1, SIGSEGV, 0), exited(0, 70, 9)}), 1);
}

TEST(Verdict, RankThatLostItsPeersIsNotTheCause) {
  EXPECT_EQ(first_rank({exited(0, 5, 0), exited(1, 70, 200, true)}), 1);
  EXPECT_EQ(first_rank({exited(0, 5, 0), exited(1, 70, 201, true)}), 0);
  EXPECT_EQ(first_rank({exited(0, 5, 0), killed(1, SIGKILL, 10)}), 1);
  EXPECT_EQ(first_rank({exited(0, 5, 0), exited(2, 5, 5), exited(1, 0, 10)}), 0);
}

TEST(Verdict, DataErrorOfARankThatTakesLongToEndIsTheCause) {
  for (const int code : {2, 3, 4})
    EXPECT_EQ(first_rank({exited(0, 5, 0), exited(1, code, 3000, true)}), 1);
}

TEST(Verdict, RankThatDidAsToldHasNotFailed) {
  for (const auto& end : {exited(1, 130, 1, true), exited(1, 5, 1, true),
                          killed(1, SIGTERM, 1, true), killed(1, SIGKILL, 1, true)}) {
    EXPECT_EQ(first_rank({exited(0, 5, 0), end}), 0);
    EXPECT_EQ(first_rank({end}), -1);
  }
  EXPECT_EQ(first_rank({exited(1, 130, 1)}), 1);
}

TEST(Verdict, ExitCodes) {
  for (const int code : {2, 3, 4, 5, 70, 130})
    EXPECT_EQ(launcher_exit_code(exited(0, code, 0)), code);
  for (const int code : {1, 6, 127, 255}) EXPECT_EQ(launcher_exit_code(exited(0, code, 0)), 70);
  for (const int signal : {SIGKILL, SIGSEGV, SIGTERM})
    EXPECT_EQ(launcher_exit_code(killed(0, signal, 0)), 5);
}

TEST(Verdict, Texts) {
  RankEnd data = exited(1, 3, 0);
  data.error = "data.jsonl:3: no picture";
  EXPECT_EQ(describe(data), "rank 1 failed first: data.jsonl:3: no picture (exit code 3)");
  data.error_continues = true;
  EXPECT_EQ(describe(data),
            "rank 1 failed first: data.jsonl:3: no picture (exit code 3; the whole message is "
            "above)");
  EXPECT_EQ(describe(exited(2, 1, 0)),
            "rank 2 failed first: ended without an error message (exit code 1)");
  EXPECT_EQ(describe(exited(2, 130, 0)), "rank 2 failed first: interrupted (exit code 130)");
  EXPECT_THAT(describe(killed(0, SIGKILL, 0)),
              HasSubstr("rank 0 failed first: killed by signal 9 (SIGKILL)"));
  RankEnd aborted = killed(0, SIGABRT, 0);
  aborted.error = "bad";
  EXPECT_EQ(describe(aborted),
            "rank 0 failed first: killed by signal 6 (SIGABRT); its last error: bad");
}

}  // namespace
}  // namespace shardloom::distributed
