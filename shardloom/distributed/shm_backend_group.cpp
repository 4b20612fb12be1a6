#include "shardloom/distributed/shm_backend_group.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <system_error>
#include <thread>

#include "shardloom/base/error.h"
#include "shardloom/base/strings.h"
#include "shardloom/distributed/foreign_error.h"

namespace shardloom::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kSpins = 500;
constexpr int kYields = 50;
constexpr long kSleepNanoseconds = 20'000'000;  // between two looks at the state of the peers
constexpr milliseconds kStorePoll{5};

bool reached(const ShmCounter& counter, uint32_t target) {
  return static_cast<int32_t>(counter.value.load(std::memory_order_acquire) - target) >= 0;
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

bool await_awake(const ShmCounter& counter, uint32_t target) {
  for (int i = 0; i < kSpins; ++i) {
    if (reached(counter, target)) return true;
    pause();
  }
  for (int i = 0; i < kYields; ++i) {
    if (reached(counter, target)) return true;
    ::sched_yield();
  }
  return reached(counter, target);
}

// std::atomic::wait would use a futex private to this process.
long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout,
                   nullptr, 0);
}

void sleep_on(ShmCounter& counter, uint32_t target) {
  const timespec timeout{0, kSleepNanoseconds};
  counter.waiters.fetch_add(1);
  const uint32_t seen = counter.value.load();
  if (static_cast<int32_t>(seen - target) < 0) futex(counter.value, FUTEX_WAIT, seen, &timeout);
  counter.waiters.fetch_sub(1);
}

}  // namespace

ShmContext make_context(const char* operation, uint64_t sequence, milliseconds timeout) {
  return {operation, sequence, timeout, steady_clock::now() + timeout};
}

PeerWatch::~PeerWatch() {
  for (const int file : files_) {
    if (file >= 0) ::close(file);
  }
}

void PeerWatch::add(int64_t pid) {
  const int file = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
  if (file < 0 && errno != ESRCH) {
    throw std::system_error(errno, std::generic_category(), fmt::format("pidfd_open of {}", pid));
  }
  pids_.push_back(pid);
  files_.push_back(file);
}

bool PeerWatch::has_ended(int rank) const {
  if (files_[rank] < 0) return true;
  pollfd poll{files_[rank], POLLIN, 0};
  return ::poll(&poll, 1, 0) == 1;
}

ShmGroup::ShmGroup(c10d::Store& store,
                   int rank,
                   std::vector<int> world_ranks,
                   std::string name,
                   milliseconds timeout)
    : rank_(rank),
      world_ranks_(std::move(world_ranks)),
      name_(std::move(name)),
      segment_(join(store, make_context("set-up", 0, timeout))) {
  await_all_joined(make_context("set-up", 0, timeout));
  segment_.close_file();
}

void ShmGroup::leave() { state(rank_).left.store(1, std::memory_order_release); }

ShmSegment ShmGroup::join(c10d::Store& store, const ShmContext& context) {
  try {
    const std::string own_key = fmt::format("pid/{}", rank_);
    if (store.check({own_key})) {
      throw DistributedError("{}the name is taken; give each group of a store its own",
                             place(context));
    }
    store.set(own_key, std::to_string(::getpid()));
    for (int peer = 0; peer < size(); ++peer) {
      watch_.add(std::stoll(read_key(store, peer, fmt::format("pid/{}", peer).c_str(), context)));
    }
    if (rank_ != 0) return open_segment(read_key(store, 0, "segment", context), context);
    ShmSegment segment = ShmSegment::create(size());
    store.set("segment", segment.path());
    return segment;
  } catch (const Error&) {
    throw;
  } catch (const std::system_error& error) {
    throw DistributedError("{}{}", place(context), error.what());
  } catch (const std::exception& error) {
    throw DistributedError("{}the store is gone ({}); has the process that serves it ended?",
                           place(context), short_text(error.what()));
  }
}

// Names all of them: one may have ended because of another.
void ShmGroup::check_ended(const ShmContext& context) const {
  std::vector<std::string> ended;
  for (int peer = 0; peer < watch_.count(); ++peer) {
    if (watch_.has_ended(peer)) ended.push_back(peer_text(peer));
  }
  if (ended.empty()) return;
  throw DistributedError("{}{} ended during the set-up; see the output for the cause",
                         place(context), shardloom::join(ended, " and "));
}

ShmSegment ShmGroup::open_segment(const std::string& path, const ShmContext& context) const {
  try {
    return ShmSegment::open(path, size());
  } catch (const std::system_error& error) {
    // Rank 0 closes the file early only when the set-up fails: then the cause is what matters.
    check_ended(context);
    throw DistributedError("{}rank {} has given up, or its memory cannot be opened: {}",
                           place(context), world_ranks_[0], error.what());
  }
}

std::string ShmGroup::read_key(c10d::Store& store,
                               int peer,
                               const char* key,
                               const ShmContext& context) {
  while (!store.check({key})) {
    check_ended(context);
    if (steady_clock::now() > context.deadline) {
      throw DistributedError("{}rank {} has not come within {} ms; see its output", place(context),
                             world_ranks_[peer], context.timeout.count());
    }
    std::this_thread::sleep_for(kStorePoll);
  }
  return store.get_to_str(key);
}

void ShmGroup::await_all_joined(const ShmContext& context) {
  advance(state(rank_).joined);
  for (int peer = 0; peer < size(); ++peer) await(peer, state(peer).joined, 1, context);
}

void ShmGroup::await(int peer, ShmCounter& counter, uint32_t target, const ShmContext& context) {
  if (await_awake(counter, target)) return;
  while (!reached(counter, target)) {
    const bool gone = is_gone(peer);
    // What a peer did just before it went still counts; its failure may be known by now.
    if (reached(counter, target)) return;
    check(context);
    if (gone) {
      fail_and_throw(fmt::format("{}{} has {}; see its output for the cause", place(context),
                                 peer_text(peer),
                                 watch_.has_ended(peer) ? "ended" : "left the group"));
    }
    if (steady_clock::now() > context.deadline) {
      const std::string absent = missing(context.sequence);
      fail_and_throw(fmt::format(
          "{}timed out after {} ms; {}", place(context), context.timeout.count(),
          absent.empty()
              ? fmt::format("all have arrived, but rank {} does not go on", world_ranks_[peer])
              : "not arrived: " + absent));
    }
    sleep_on(counter, target);
  }
}

void ShmGroup::advance(ShmCounter& counter) {
  counter.value.fetch_add(1);
  if (counter.waiters.load() > 0) futex(counter.value, FUTEX_WAKE, INT_MAX, nullptr);
}

bool ShmGroup::is_gone(int peer) const {
  return state(peer).left.load(std::memory_order_acquire) != 0 || watch_.has_ended(peer);
}

std::string ShmGroup::peer_text(int peer) const {
  return fmt::format("rank {} (pid {})", world_ranks_[peer], watch_.pid(peer));
}

void ShmGroup::fail(const std::string& text) {
  ShmGroupState& group = segment_.group();
  ShmFailure none = ShmFailure::kNone;
  if (!group.failure.compare_exchange_strong(none, ShmFailure::kWriting)) return;
  group.failed_rank = world_rank();
  const size_t length = std::min(text.size(), kShmFailureBytes - 1);
  std::memcpy(group.text, text.data(), length);
  group.text[length] = '\0';
  group.failure.store(ShmFailure::kKnown, std::memory_order_release);
}

void ShmGroup::fail_and_throw(const std::string& text) {
  fail(text);
  throw DistributedError(text);
}

void ShmGroup::check(const ShmContext& context) const {
  const ShmGroupState& group = segment_.group();
  if (group.failure.load(std::memory_order_acquire) != ShmFailure::kKnown) return;
  throw DistributedError("{}the group has failed: {}", place(context), group.text);
}

std::string ShmGroup::place(const ShmContext& context) const {
  const std::string number = context.sequence == 0 ? "" : fmt::format(" #{}", context.sequence);
  return fmt::format("rank {}, group {}, {}{}: ", world_rank(), name_, context.operation, number);
}

std::string ShmGroup::missing(uint64_t sequence) const {
  std::vector<std::string> ranks;
  for (int peer = 0; peer < size(); ++peer) {
    if (sequence == 0) {
      if (!reached(state(peer).joined, 1))
        ranks.push_back(fmt::format("rank {}", world_ranks_[peer]));
      continue;
    }
    const uint64_t entered = state(peer).entered.load(std::memory_order_acquire);
    if (entered >= sequence) continue;
    ranks.push_back(entered == 0 ? fmt::format("rank {} (not started)", world_ranks_[peer])
                                 : fmt::format("rank {} (at #{})", world_ranks_[peer], entered));
  }
  return shardloom::join(ranks, ", ");
}

}  // namespace shardloom::distributed
