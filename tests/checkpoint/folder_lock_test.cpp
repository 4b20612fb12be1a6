// One run at a time in a folder of checkpoints.
#include "shardloom/checkpoint/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "shardloom/base/error.h"
#include "tests/testing/temporary_folder.h"

namespace shardloom::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string error_of_lock(const std::filesystem::path& folder) {
  try {
    const FolderLock lock(folder);
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "no error";
}

TEST(FolderLock, KeepsOthersOutAndLeavesNothing) {
  const TemporaryFolder folder;
  std::optional<FolderLock> lock(folder.path());
  EXPECT_THAT(error_of_lock(folder.path()),
              AllOf(HasSubstr(folder.path().string()), HasSubstr("is in use")));
  lock.reset();
  EXPECT_EQ(error_of_lock(folder.path()), "no error");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(error_of_lock(folder.path() / "none"), HasSubstr("No such file"));
}

// The lock of a killed run is free, and one that is being killed is waited for.
TEST(FolderLock, EndsWithItsProcess) {
  const TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder.path());
    [[maybe_unused]] const ssize_t n = ::write(ready[1], "x", 1);
    ::pause();
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THAT(error_of_lock(folder.path()), HasSubstr("is in use"));
  ::kill(child, SIGKILL);
  EXPECT_NO_THROW(FolderLock(folder.path(), std::chrono::minutes(1)));
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace shardloom::checkpoint
