// `launch` with real processes: what the ranks get, what the console shows, and how it all ends.
#include "shardloom/distributed/launcher.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <pty.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <regex>
#include <thread>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "tests/testing/process.h"

namespace shardloom::distributed {
namespace {

using shardloom::testing::ProcessOptions;
using shardloom::testing::ProcessResult;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

const std::string kProgram = SHARDLOOM_BIN_DIR "/rank_program";

ProcessResult run(const std::string& arguments, const ProcessOptions& options = {}) {
  std::vector<std::string> command = split(arguments, ' ');
  command.insert(command.begin(), kProgram);
  return shardloom::testing::run_process(command, options);
}

// "launch ... -- act `act`" on one host.
ProcessResult launch_ranks(int nproc, const std::string& act, const ProcessOptions& options = {}) {
  return run("launch --nproc-per-node " + std::to_string(nproc) + " -- act " + act, options);
}

// In the script, $L stands for the launch command and `ready N` waits for N ranks in the file $out.
ProcessResult shell(const std::string& script) {
  const std::string head =
      "L='" + kProgram +
      " launch --nproc-per-node 2'\n"
      "out=$(mktemp)\ntrap 'rm -f $out' EXIT\n"
      "ready() { until [ $(grep -c ready $out) = $1 ]; do sleep 0.02; done; }\n";
  return shardloom::testing::run_process({"/bin/sh", "-c", head + script});
}

std::string last_line(const std::string& text) {
  const std::vector<std::string> lines = split(trim(text), '\n');
  return lines.back();
}

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++found;
  return found;
}

// The processes of the lines "ready PID".
std::vector<pid_t> ready_processes(const std::string& out) {
  std::vector<pid_t> processes;
  const std::regex ready("ready ([0-9]+)");
  for (std::sregex_iterator it(out.begin(), out.end(), ready), end; it != end; ++it)
    processes.push_back(std::stoi((*it)[1]));
  return processes;
}

// A process that init has still to collect counts as gone.
bool is_running(pid_t process) {
  if (::kill(process, 0) != 0) return false;
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  return !text.empty() && text.find(") Z ") == std::string::npos;
}

// `grace`: what dies by a signal of the kernel's does so a moment later.
void expect_gone(const std::string& out, size_t num_processes, std::chrono::seconds grace = {}) {
  const std::vector<pid_t> processes = ready_processes(out);
  EXPECT_EQ(processes.size(), num_processes) << out;
  const auto deadline = Clock::now() + grace;
  for (const pid_t process : processes) {
    while (is_running(process) && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_FALSE(is_running(process)) << process;
  }
}

TEST(Launch, EveryRankGetsItsPlace) {
  const ProcessResult result = launch_ranks(
      2, "environment",
      {.environment = {"RANK=7", "OMP_NUM_THREADS=3", "TORCHELASTIC_USE_AGENT_STORE=True"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(std::regex_search(
        result.out,
        std::regex(fmt::format("(^|\n){0}RANK={1} LOCAL_RANK={1} WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 "
                               "MASTER_ADDR=127.0.0.1 MASTER_PORT=[1-9][0-9]* OMP_NUM_THREADS=3 "
                               "TORCHELASTIC_USE_AGENT_STORE=- group=own\n",
                               rank == 0 ? "" : "\\[rank 1\\] ", rank))))
        << result.out;
  }
}

TEST(Launch, CoresAreDividedAmongTheRanks) {
  ::unsetenv("OMP_NUM_THREADS");
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  for (const int nproc : {1, 2, 3}) {
    const ProcessResult result = run("self " + std::to_string(nproc));
    const auto threads = fmt::format("OMP_NUM_THREADS={} ", std::max(1, cores / nproc));
    EXPECT_EQ(count(result.out, threads), nproc) << result.out;
  }
}

TEST(Launch, RanksOfTheSecondHost) {
  const ProcessResult result = run(
      "launch --nproc-per-node 2 --nnodes 3 --node-rank 1 --master-addr 127.0.0.1 --master-port "
      "29517 -- act environment");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text :
       {"[rank 2] RANK=2 LOCAL_RANK=0 WORLD_SIZE=6 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
        "MASTER_PORT=29517 ",
        "[rank 3] RANK=3 LOCAL_RANK=1 WORLD_SIZE=6 "}) {
    EXPECT_THAT(result.out, HasSubstr(text));
  }
  EXPECT_THAT(result.err, HasSubstr("loopback"));
}

TEST(Output, LinesStayWholeAndTheLastOneIsShown) {
  const ProcessResult result = launch_ranks(3, "pieces");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<int> lines(3);
  for (const std::string& line : split(trim(result.out), '\n')) {
    std::smatch match;
    ASSERT_TRUE(
        std::regex_match(line, match, std::regex("(\\[rank ([12])\\] )?<([0-9]+) begin and end>")))
        << line;
    const int rank = match[2].matched ? std::stoi(match[2]) : 0;
    EXPECT_EQ(std::stoi(match[3]), lines[rank]++) << line;
  }
  EXPECT_EQ(lines, std::vector<int>(3, 50));
  EXPECT_THAT(
      split(trim(result.err), '\n'),
      ::testing::UnorderedElementsAre("last words", "[rank 1] last words", "[rank 2] last words"));
}

TEST(Output, BytesOfRank0PassThrough) {
  EXPECT_EQ(launch_ranks(1, "bytes").out,
            std::string(200'000, 'x') + "\r\n\n" + std::string(1, '\0') + "no end");
}

TEST(Output, Rank0SeesATerminalWhereThereIsOne) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::execl(kProgram.c_str(), kProgram.c_str(), "launch", "--nproc-per-node", "2", "--", "act",
            "bar", nullptr);
    ::_exit(127);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(terminal, buffer, sizeof(buffer))) > 0;) text.append(buffer, n);
  ::close(terminal);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(text, HasSubstr("\r\033[Kbar 1/2"));
  EXPECT_THAT(text, HasSubstr("[rank 1] no terminal\r\n"));
  EXPECT_THAT(text, Not(HasSubstr("1/2[rank 1]")));
}

// Ctrl-C ends `tee` before a run has saved.
TEST(Output, ReaderThatIsGoneEndsNothing) {
  const ProcessResult result = shell(
      "( $L -- act lines; echo code $? >$out ) |"
      " head -n 1 >/dev/null\ncat $out\n");
  EXPECT_EQ(result.out, "code 0\n") << result.err;
}

TEST(Output, ErrorOfARankThatLivesOnIsShown) {
  const ProcessResult result = shell(
      "$L -- act complain >$out 2>&1 & launcher=$!\n"
      "ready 2\n"
      "until [ $(grep -c 'this one passes' $out) = 2 ]; do sleep 0.02; done\n"
      "kill -INT $launcher; wait $launcher; echo code $?; cat $out\n");
  EXPECT_EQ(split(result.out, '\n')[0], "code 130");
  EXPECT_THAT(result.out, HasSubstr("\n[rank 1] error: this one passes\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("[rank 1] [rank 1]")));
}

TEST(Failure, LastLineIsTheFirstCauseAndItsCodeStays) {
  for (const int code : {2, 3, 4, 5, 70, 130}) {
    const ProcessResult result = launch_ranks(3, fmt::format("fail 1 {}", code));
    EXPECT_EQ(result.exit_code, code);
    EXPECT_EQ(last_line(result.err),
              fmt::format("error: rank 1 failed first: line 1 is bad (exit code {})", code));
    EXPECT_EQ(count(result.err, "is bad"), 1) << result.err;
    for (const pid_t process : ready_processes(result.out)) EXPECT_FALSE(is_running(process));
  }
}

TEST(Failure, UnknownCodeIsInternal) { EXPECT_EQ(launch_ranks(2, "fail 0 9").exit_code, 70); }

TEST(Failure, KilledRank) {
  for (const auto& [signal, name] :
       {std::pair{SIGKILL, "signal 9 (SIGKILL)"}, std::pair{SIGSEGV, "signal 11 (SIGSEGV)"}}) {
    const ProcessResult result = launch_ranks(3, fmt::format("raise 2 {}", signal));
    EXPECT_EQ(result.exit_code, 5);
    EXPECT_THAT(last_line(result.err),
                HasSubstr(fmt::format("error: rank 2 failed first: killed by {}", name)));
    for (const pid_t process : ready_processes(result.out)) EXPECT_FALSE(is_running(process));
  }
}

TEST(Failure, RankThatIsToldToEndByOthers) {
  const ProcessResult result = shell(
      "$L -- act run >$out & launcher=$!\nready 2\n"
      "kill -TERM $(sed -n 's/^.rank 1. ready //p' $out)\n"
      "wait $launcher; echo code $?; cat $out\n");
  EXPECT_EQ(split(result.out, '\n')[0], "code 130");
  EXPECT_EQ(last_line(result.err), "error: rank 1 failed first: interrupted (exit code 130)");
  expect_gone(result.out, 2);
}

TEST(Failure, DeafRanksAreGoneWithinTenSeconds) {
  const auto start = Clock::now();
  const ProcessResult result = launch_ranks(3, "deaf 1 3");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("warning: rank 0, 2 did not end within 5.0 s"));
  EXPECT_EQ(last_line(result.err), "error: rank 1 failed first: line 1 is bad (exit code 3)");
  expect_gone(result.out, 2);
}

TEST(Failure, RankWhosePeerWentIsNotTheCause) {
  for (const int cause : {0, 1}) {
    const ProcessResult result = launch_ranks(2, fmt::format("drag {} 150", cause));
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_EQ(
        last_line(result.err),
        fmt::format("error: rank {} failed first: data.jsonl:3: no such picture (exit code 3)",
                    cause));
    EXPECT_THAT(result.err, HasSubstr(fmt::format("[rank {}] error: connection closed by rank {}\n",
                                                  1 - cause, cause)));
  }
}

TEST(Failure, SameErrorOfAllRanksIsShownOnce) {
  const ProcessResult one = launch_ranks(3, "fail_alike 0 one");
  EXPECT_EQ(one.exit_code, 2);
  EXPECT_TRUE(std::regex_match(
      one.err, std::regex("error: rank [0-2] failed first: a\\.yaml:3:1: bad \\(exit code 2\\)\n")))
      << one.err;
  const ProcessResult two = launch_ranks(3, "fail_alike 0 two");
  EXPECT_EQ(two.exit_code, 2);
  EXPECT_EQ(count(two.err, "a.yaml:9:2: worse"), 1) << two.err;
  EXPECT_TRUE(std::regex_match(
      last_line(two.err),
      std::regex("error: rank [0-2] failed first: a\\.yaml:3:1: bad \\(exit code 2; .*above\\)")))
      << two.err;
}

TEST(Interrupt, IsPassedOnOnce) {
  const ProcessResult result = launch_ranks(3, "run", {.interrupt_after_lines = 3});
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(count(result.out, "told once"), 3) << result.out;
  EXPECT_EQ(count(result.err, "stopping after this step"), 1) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("error: ")));
  expect_gone(result.out, 3);
}

TEST(Interrupt, TermIsPassedOn) {
  const ProcessResult result = shell(
      "$L -- act run >$out & launcher=$!\nready 2\n"
      "kill -TERM $launcher; wait $launcher; echo code $?; cat $out\n");
  EXPECT_EQ(split(result.out, '\n')[0], "code 130");
  expect_gone(result.out, 2);
}

// `timeout` signals its child and then the whole group; schedulers all processes of a job.
TEST(Interrupt, SameRequestTwiceIsPassedOnOnce) {
  const ProcessResult result = shell(
      "$L -- act run >$out & launcher=$!\nready 2\n"
      "kill -TERM $launcher; sleep 0.1; kill -TERM $launcher; wait $launcher; echo code $?; cat "
      "$out\n");
  EXPECT_EQ(split(result.out, '\n')[0], "code 130");
  EXPECT_EQ(count(result.out, "told once"), 2) << result.out;
}

TEST(Interrupt, SecondOneKills) {
  const ProcessResult result = shell(
      "$L -- act ignore >$out & launcher=$!\nready 2\n"
      "kill -INT $launcher; sleep 1.1; kill -0 $launcher && echo alive\n"
      "kill -INT $launcher; wait $launcher; echo code $?; cat $out\n");
  EXPECT_THAT(result.out, ::testing::StartsWith("alive\ncode 130\n"));
  expect_gone(result.out, 2);
}

TEST(Orphans, RanksDieWithTheLauncher) {
  const ProcessResult result = shell(
      "$L -- act ignore >$out & launcher=$!\nready 2\n"
      "kill -KILL $launcher; wait $launcher; echo code $?; cat $out\n");
  EXPECT_EQ(split(result.out, '\n')[0], "code 137");
  expect_gone(result.out, 2, std::chrono::seconds(10));
}

TEST(Orphans, ChildrenOfARankDieWithIt) {
  const ProcessResult result = launch_ranks(2, "leave_child");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_gone(result.out, 2, std::chrono::seconds(10));
}

struct Listener {
  Listener() : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t size = sizeof(address);
    if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd, 1) != 0)
      throw std::runtime_error("no port");
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
  }
  ~Listener() { ::close(fd); }
  int fd, port;
};

TEST(Address, PortInUse) {
  const Listener listener;
  const ProcessResult result = run(
      fmt::format("launch --nproc-per-node 2 --master-port {} -- act environment", listener.port));
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr(fmt::format("127.0.0.1:{} is in use", listener.port)));
}

TEST(Address, Rank0CanListenOnAGivenPort) {
  const int port = Listener().port;  // free again
  const ProcessResult result =
      run(fmt::format("launch --nproc-per-node 2 --master-port {} -- act listen", port));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, fmt::format("{}\n", port));
}

TEST(Address, TwoLaunchesAtOnceFindTwoPorts) {
  const ProcessResult result = shell(
      "$L -- act listen & first=$!\n$L -- act listen & second=$!\n"
      "wait $first && wait $second && echo both\n");
  const std::vector<std::string> lines = split(trim(result.out), '\n');
  ASSERT_EQ(lines.size(), 3u) << result.out << result.err;
  EXPECT_NE(lines[0], lines[1]);
  EXPECT_EQ(lines[2], "both");
}

TEST(Address, SecondLaunchWithTheSamePortIsRefusedBeforeRank0Listens) {
  const int port = Listener().port;
  const ProcessResult result =
      shell(fmt::format("$L --master-port {0} -- act run >$out & launcher=$!\nready 2\n"
                        "$L --master-port {0} -- act environment; echo code $?\n"
                        "kill -INT $launcher; wait $launcher\n",
                        port));
  EXPECT_EQ(result.out, "code 5\n");
  EXPECT_THAT(result.err, HasSubstr(fmt::format(":{} is in use", port)));
}

TEST(Settings, ErrorsBeforeAnyRankStarts) {
  const struct {
    const char* arguments;
    int code;
    const char* text;
  } cases[] = {
      {"--nproc-per-node 0", 2, "0 processes per host"},
      {"--nproc-per-node -1", 2, "-1 processes per host"},
      {"--nproc-per-node 100000", 2, "at most 16 a core"},
      {"--nproc-per-node 2 --nnodes 0", 2, "0 hosts"},
      {"--nproc-per-node 2 --node-rank 1", 2, "node rank 1 does not fit 1 host"},
      {"--nproc-per-node 2 --nnodes 2 --node-rank 2", 2, "node rank 2 does not fit 2 hosts"},
      {"--nproc-per-node 2 --node-rank -1", 2, "node rank -1"},
      {"--nproc-per-node 2 --nnodes 2", 2, "--master-addr"},
      {"--nproc-per-node 2 --nnodes 2 --master-addr 127.0.0.1", 2, "--master-port"},
      {"--nproc-per-node 2 --master-port abc", 2, "abc"},
      {"--nproc-per-node 2 --master-port 70000", 2, "70000"},
      {"--nproc-per-node abc", 2, "abc"},
      {"--nproc-per-node 2 --nnodes 2 --master-port 29518 --master-addr no.such.host.invalid", 5,
       "\"no.such.host.invalid\" (MASTER_ADDR) does not resolve"},
  };
  for (const auto& item : cases) {
    const ProcessResult result = run(fmt::format("launch {} -- act environment", item.arguments));
    EXPECT_EQ(result.exit_code, item.code) << item.arguments;
    EXPECT_THAT(result.err, HasSubstr(item.text));
    EXPECT_EQ(result.out, "");
  }
}

TEST(Settings, UnknownCommand) {
  const ProcessResult result = run("launch --nproc-per-node 2 -- atc environment");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("\"atc\" (did you mean act?)"));
  EXPECT_EQ(run("launch --nproc-per-node 2 -- launch").exit_code, 2);
  EXPECT_EQ(run("launch --nproc-per-node 2").exit_code, 2);
}

TEST(Library, ProgramThatCannotBeStarted) {
  sigset_t before, after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  LaunchOptions options;
  options.command = {"/no/such/program"};
  try {
    launch(options);
    FAIL();
  } catch (const DistributedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/no/such/program"));
    EXPECT_THAT(error.what(), HasSubstr("No such file"));
  }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(::sigismember(&before, SIGINT), ::sigismember(&after, SIGINT));
}

TEST(Library, ProgramOfThePath) {
  LaunchOptions options;
  options.command = {"sh", "-c", "exit $((3 * RANK))"};
  options.nproc = 2;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(launch(options), 3);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "error: rank 1 failed first: ended without an error message (exit code 3)\n");
}

}  // namespace
}  // namespace shardloom::distributed
