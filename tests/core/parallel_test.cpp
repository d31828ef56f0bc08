#include "core/machine/parallel.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/machine/context.h"
#include "support/catch.h"

using namespace tril;

TEST_CASE("parallel: what a member of a team throws reaches the caller, and the team works on") {
  for (const int threads : {1, 3}) {
    (void)granted_threads(threads);
    const auto fail_at = [](int64_t at) {
      return [=](int64_t begin, int64_t end, int) {
        if (begin <= at && at < end) throw std::runtime_error("no memory");
      };
    };
    for (const int64_t at : {0, 5, 9}) CHECK_THROWS_WITH(parallel_for(threads, 10, 1, fail_at(at)), "no memory");
    CHECK_THROWS_WITH(parallel_tasks(threads, 10,
                                     [](int64_t task, int) {
                                       if (task % 2 == 1) throw std::runtime_error("no memory");
                                     }),
                      "no memory");
    std::atomic<int64_t> sum = 0;
    parallel_for(threads, 10, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
    CHECK(sum == 45);
  }
}

TEST_CASE("parallel: the same threads serve regions of any size") {
  constexpr int kThreads = 3;
  std::mutex lock;
  std::set<pid_t> seen;
  const auto note = [&] {
    const std::lock_guard guard(lock);
    seen.insert(::gettid());
  };
  for (int round = 0; round < 20; ++round)
    for (const int64_t count : {3, 2, 1, 3, 2}) {
      parallel_for(kThreads, count, 1, [&](int64_t, int64_t, int) { note(); });
      parallel_tasks(kThreads, count, [&](int64_t, int) { note(); });
    }
  CHECK(seen.size() <= kThreads);
}

TEST_CASE("parallel: every task is done once, whatever the numbers of tasks and threads") {
  for (const int threads : {1, 2, 3, 7, 67}) {
    (void)granted_threads(threads);
    for (const int64_t count : {0, 1, 2, 5, 64, 67, 200}) {
      std::vector<std::atomic<int>> times(static_cast<size_t>(count));
      parallel_tasks(threads, count, [&](int64_t task, int thread) {
        if (thread >= 0 && thread < threads) ++times[static_cast<size_t>(task)];
      });
      INFO(cat(threads, " threads, ", count, " tasks"));
      CHECK(std::all_of(times.begin(), times.end(), [](const auto& n) { return n == 1; }));
    }
  }
}

TEST_CASE("parallel: a thread begins with its own share of the tasks, and helps the others") {
  if (granted_threads(2) < 2) {
    WARN("skipped: the system gives one thread alone");
    return;
  }
  constexpr int64_t kTasks = 8;
  std::atomic<int> begun = 0;
  std::array<std::atomic<int64_t>, 2> first = {-1, -1};
  std::array<std::atomic<int64_t>, 2> done = {};
  parallel_tasks(2, kTasks, [&](int64_t task, int thread) {
    const auto me = static_cast<size_t>(thread);
    if (first[me] < 0) {
      first[me] = task;
      ++begun;
      while (begun < 2) std::this_thread::yield();
    }
    ++done[me];
    while (thread == 1 && done[0] + done[1] < kTasks) std::this_thread::yield();  // until thread 0 has done its rest
  });
  CHECK(first[0] == 0);
  CHECK(first[1] == kTasks / 2);
  CHECK(done[0] == kTasks - 1);
}

TEST_CASE("context: its threads can change within what it was made for") {
  Context context({.threads = 3});
  const int most = context.most_threads();
  CHECK(context.threads() == most);
  context.use_threads(1);
  CHECK(context.threads() == 1);
  CHECK(context.most_threads() == most);
  CHECK_THROWS_AS(context.use_threads(0), Error);
  CHECK_THROWS_AS(context.use_threads(most + 1), Error);
}
