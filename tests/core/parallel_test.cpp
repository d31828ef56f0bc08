#include "core/parallel.h"

#include <atomic>
#include <stdexcept>

#include "core/context.h"
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
