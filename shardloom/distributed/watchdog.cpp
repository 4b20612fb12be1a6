#include "shardloom/distributed/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "shardloom/distributed/environment.h"
#include "shardloom/distributed/watchdog_report.h"

namespace shardloom::distributed {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDefaultLimit = std::chrono::seconds(60);
constexpr milliseconds kStoreTimeout = std::chrono::seconds(5);
constexpr milliseconds kPatience = std::chrono::seconds(2);  // at the end, with a store that hangs

std::string store_key(int rank) { return fmt::format("shardloom/watchdog/{}", rank); }

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

class Watchdog::State {
 public:
  State(c10::intrusive_ptr<c10d::Store> store, int rank, milliseconds limit, Report report)
      : shared_store_(std::move(store)), rank_(rank), limit_(limit), report_(std::move(report)) {
    record_.host = host_name();
  }

  void watch(std::weak_ptr<const CollectiveLog> log) {
    std::lock_guard lock(mutex_);
    logs_.push_back(std::move(log));
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, limit_ / 4, [this] { return stop_; })) {
      std::vector<std::shared_ptr<const CollectiveLog>> logs = living();
      lock.unlock();
      look(logs);
      logs.clear();
      lock.lock();
    }
    ended_ = true;
    wake_.notify_all();
  }

  // True when the thread is about to end.
  bool stop() {
    std::unique_lock lock(mutex_);
    stop_ = true;
    wake_.notify_all();
    return wake_.wait_for(lock, kPatience, [this] { return ended_; });
  }

 private:
  using Logs = std::vector<std::shared_ptr<const CollectiveLog>>;

  Logs living() {
    std::erase_if(logs_, [](const auto& log) { return log.expired(); });
    Logs logs;
    for (const auto& weak : logs_) {
      if (auto log = weak.lock()) logs.push_back(std::move(log));
    }
    return logs;
  }

  // Nothing here may end the process. A store that has failed once is not asked again: each try
  // could take as long as its time-out.
  void look(const Logs& logs) {
    try {
      publish(logs);
    } catch (const std::exception&) {
      lose_store();
    }
    report_long_wait(logs);
  }

  void lose_store() {
    store_.reset();
    store_lost_ = true;
  }

  // A connection of its own: the shared one may be held by a rank that waits for a key.
  c10d::Store& store() {
    if (store_ == nullptr) {
      store_ = shared_store_->clone();
      store_->setTimeout(kStoreTimeout);
    }
    return *store_;
  }

  void publish(const Logs& logs) {
    record_.last.clear();
    for (const auto& log : logs) record_.last[log->key()] = log->last_issued();
    std::string text = record_.encode();
    if (store_lost_ || text == published_) return;
    store().set(store_key(rank_), text);
    published_ = std::move(text);
  }

  void report_long_wait(const Logs& logs) {
    const CollectiveLog* oldest = nullptr;
    std::optional<CollectiveLog::Waiting> waiting;
    for (const auto& log : logs) {
      auto open = log->oldest_open();
      if (!open || (waiting && waiting->issued <= open->issued)) continue;
      oldest = log.get();
      waiting = std::move(open);
    }
    if (!waiting || Clock::now() - waiting->issued < limit_) return;
    uint64_t& reported = reported_[oldest->key()];
    if (std::exchange(reported, waiting->name.sequence) == waiting->name.sequence) return;
    const std::chrono::duration<double> age = Clock::now() - waiting->issued;
    const LongWait wait{oldest->group(), oldest->key(), waiting->name, age.count(),
                        oldest->ranks()};
    if (!store_lost_) {
      try {
        return report_(long_wait_text(wait, read_records(wait.ranks)));
      } catch (const std::exception&) {
        lose_store();
      }
    }
    report_(long_wait_text(wait));
  }

  std::vector<std::optional<RankRecord>> read_records(const std::vector<int>& ranks) {
    std::vector<std::optional<RankRecord>> records(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] == rank_) {
        records[i] = record_;
      } else {
        records[i] = read_record(ranks[i]);
      }
    }
    return records;
  }

  std::optional<RankRecord> read_record(int rank) {
    const std::string key = store_key(rank);
    if (!store().check({key})) return std::nullopt;
    return RankRecord::decode(store().get_to_str(key));
  }

  const c10::intrusive_ptr<c10d::Store> shared_store_;
  const int rank_;
  const milliseconds limit_;
  const Report report_;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::weak_ptr<const CollectiveLog>> logs_;
  bool stop_ = false;
  bool ended_ = false;

  // Only the thread itself uses these.
  c10::intrusive_ptr<c10d::Store> store_;
  bool store_lost_ = false;
  RankRecord record_;
  std::string published_;
  std::map<std::string, uint64_t> reported_;  // last number reported, by CollectiveLog::key()
};

std::chrono::milliseconds watchdog_limit() {
  return seconds_from_environment("SHARDLOOM_WATCHDOG_SECONDS", kDefaultLimit, milliseconds(0));
}

Watchdog::Watchdog(c10::intrusive_ptr<c10d::Store> store,
                   int rank,
                   std::chrono::milliseconds limit,
                   Report report)
    : state_(std::make_shared<State>(std::move(store), rank, limit, std::move(report))),
      thread_([state = state_] { state->run(); }) {}

Watchdog::~Watchdog() {
  if (state_->stop()) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void Watchdog::watch(std::weak_ptr<const CollectiveLog> log) { state_->watch(std::move(log)); }

}  // namespace shardloom::distributed
