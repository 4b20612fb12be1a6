#include "shardloom/base/interrupt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "shardloom/base/log.h"

namespace shardloom {
namespace {

// Each runs in a child process: the flag cannot be taken back.
TEST(InterruptDeathTest, FirstSignalSetsTheFlag) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          install_interrupt_handlers();
          const bool before = interrupt_requested();
          std::raise(signal);
          std::_Exit(!before && interrupt_requested() ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "stopping after this step");
  }
}

TEST(InterruptDeathTest, OfSeveralRanksOnlyTheFirstAnswersAndOnlyTheKeyboard) {
  for (const int rank : {0, 1}) {
    for (const int signal : {SIGINT, SIGTERM}) {
      EXPECT_EXIT(
          {
            log::set_rank(rank, 2);
            install_interrupt_handlers();
            std::raise(signal);
            std::_Exit(interrupt_requested() ? 0 : 1);
          },
          ::testing::ExitedWithCode(0),
          rank == 0 && signal == SIGINT ? "^\nstopping after this step" : "^$");
    }
  }
}

TEST(InterruptDeathTest, SecondSignalEndsAtOnceUnlessItIsTheSameRequest) {
  EXPECT_EXIT(
      {
        install_interrupt_handlers();
        std::raise(SIGTERM);
        std::raise(SIGTERM);  // from a launcher that was signalled, too
        std::fputs("still here\n", stderr);
        std::this_thread::sleep_for(std::chrono::milliseconds(1100));
        std::raise(SIGINT);
        std::_Exit(1);
      },
      ::testing::ExitedWithCode(130), "still here");
}

// Ctrl-C ends `tee` before the run that it reads from.
TEST(InterruptDeathTest, OutlivesTheReaderOfItsOutput) {
  EXPECT_EXIT(
      {
        install_interrupt_handlers();
        int ends[2];
        const bool made = ::pipe(ends) == 0;
        ::close(ends[0]);
        std::_Exit(made && ::write(ends[1], "x", 1) == -1 && errno == EPIPE ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace shardloom
