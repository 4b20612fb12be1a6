#include "shardloom/base/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

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

TEST(InterruptDeathTest, SecondSignalEndsAtOnce) {
  EXPECT_EXIT(
      {
        install_interrupt_handlers();
        std::raise(SIGTERM);
        std::raise(SIGINT);
        std::_Exit(1);
      },
      ::testing::ExitedWithCode(130), "");
}

}  // namespace
}  // namespace shardloom
