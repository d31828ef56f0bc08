#include "core/machine/team.h"

#include <chrono>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include "support/catch.h"

namespace tril::test {

TEST_CASE("team: every member does every piece of work once", "[team]") {
  for (const int threads : {1, 2, 3, 5}) {
    Team team(threads);
    REQUIRE(team.size() == threads);
    std::vector<int> done(static_cast<size_t>(threads));
    for (int round = 1; round <= 200; ++round) {
      team.run([&](int member) { ++done[static_cast<size_t>(member)]; });
      REQUIRE(done == std::vector<int>(static_cast<size_t>(threads), round));
    }
  }
}

TEST_CASE("team: what members write before they meet, all see after", "[team]") {
  constexpr int kThreads = 3, kMeetings = 50;
  Team team(kThreads);
  std::vector<int> values(kThreads), wrong(kThreads);
  for (int round = 0; round < 50; ++round) {
    team.run([&](int member) {
      for (int i = 1; i <= kMeetings; ++i) {
        values[static_cast<size_t>(member)] = round + i;
        team.wait(member);
        if (std::accumulate(values.begin(), values.end(), 0) != kThreads * (round + i))
          ++wrong[static_cast<size_t>(member)];
        team.wait(member);
      }
    });
  }
  CHECK(wrong == std::vector<int>(kThreads));
}

TEST_CASE("team: members that fell asleep wake for the next piece of work", "[team]") {
  Team team(2);
  int done = 0;
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    team.run([&](int member) { done += member; });
  }
  CHECK(done == 3);
}

TEST_CASE("team: fewer threads than one are one", "[team]") {
  Team team(-3);
  int done = 0;
  team.run([&](int) { ++done; });
  CHECK(team.size() == 1);
  CHECK(done == 1);
}

TEST_CASE("team: denormals are zero to every member, the caller too, so that all round alike") {
  for (const int threads : {1, 2, 3}) {
    std::vector<float> halves(static_cast<size_t>(threads), 1.0f);
    std::thread([&] {  // a thread that no context has prepared
      Team team(threads);
      REQUIRE(team.size() == threads);
      (void)team.run([&](int member) {
        volatile float least = std::numeric_limits<float>::min();
        halves[static_cast<size_t>(member)] = least * 0.5f;
      });
    })
        .join();
#if defined(__SSE2__)
    for (const float half : halves) CHECK(half == 0.0f);
#else
    WARN("denormals are kept where there is no SSE2: not checked");
#endif
  }
}

}  // namespace tril::test
