#include "train/base/load.h"

#include <chrono>
#include <cstdint>
#include <string>

#include "support/catch.h"
#include "train/temp_folder.h"

namespace tril::test {
namespace {

void put_thread(const TempFolder& root, const std::string& id, const std::string& schedstat) {
  root.put("proc/self/task/" + id + "/schedstat", schedstat);
}

}  // namespace

TEST_CASE("load: the threads that wait are those of this process, by what the kernel counts for each") {
  const TempFolder root;
  LoadMeter meter(root.path(), {0, 1});
  put_thread(root, "7", "5000000000 1000000000 9\n");
  put_thread(root, "8", "4000000000 3000000000 9\n");
  CHECK_FALSE(meter.look(10).waiting.has_value());
  put_thread(root, "7", "6000000000 1500000000 9\n");
  put_thread(root, "8", "5000000000 4000000000 9\n");
  put_thread(root, "9", "1000000000 7000000000 9\n");  // new: since when it has waited is not known
  const MachineLoad load = meter.look(12);
  CHECK(load.seconds == Approx(2));
  CHECK(load.waiting.value() == Approx(0.75));
  std::filesystem::remove_all(root / "proc/self/task/8");
  CHECK(meter.look(13).waiting.value() == 0);
}

TEST_CASE("load: idle processors are those that this process may use") {
  const TempFolder root;
  LoadMeter meter(root.path(), {1, 3});
  const auto stat = [&](const std::string& first, const std::string& third) {
    root.put("proc/stat", "cpu  9 9 9 999 9 0 0\ncpu0 1 1 1 100 5 0 0\ncpu1 1 1 1 " + first +
                              " 0 0\ncpu2 1 1 1 100 5 0 0\ncpu3 1 1 1 " + third + " 0 0\nintr 5\n");
  };
  stat("1000 10", "500 0");
  CHECK_FALSE(meter.look(1).idle.has_value());
  const auto ticks = [](double seconds) {
    return std::to_string(std::lround(seconds * static_cast<double>(::sysconf(_SC_CLK_TCK))));
  };
  stat(std::to_string(1000 + std::stol(ticks(1))) + " 10", "500 " + ticks(2));
  CHECK(meter.look(3).idle.value() == Approx(1.5));
  root.put("proc/stat", "cpu0 1 1 1 100 5\ncpu1 1 1 1 100 5\n");  // not all of them
  CHECK_FALSE(meter.look(4).idle.has_value());
}

TEST_CASE("load: a quota below the processors makes idle ones no sign of room") {
  const TempFolder root;
  root.put("proc/self/cgroup", "0::/\n");
  root.put("sys/fs/cgroup/cpu.max", "200000 100000\n");
  root.put("proc/stat", "cpu0 1 1 1 100 5\ncpu1 1 1 1 100 5\ncpu2 1 1 1 100 5\n");
  LoadMeter few(root.path(), {0, 1, 2}), all(root.path(), {0, 1});
  (void)few.look(1);
  (void)all.look(1);
  CHECK_FALSE(few.look(2).idle.has_value());
  CHECK(all.look(2).idle.value() == 0);
}

TEST_CASE("load: where nothing can be read, only lost processors are noticed, and idle ones not known") {
  const TempFolder root;
  LoadMeter meter(root.path(), {0, 1});
  CHECK_FALSE(meter.look(1).waiting.has_value());
  const MachineLoad load = meter.look(2);
  CHECK(load.waiting.value() >= 0);
  CHECK_FALSE(load.idle.has_value());
  put_thread(root, "7", "0 0 0\n");  // of a kernel that does not count
  (void)meter.look(3);
  CHECK(meter.look(4).waiting.has_value());
}

TEST_CASE("load: this machine's can be looked at as often as one likes") {
  const auto look = machine_load();
  (void)look();
  for (int i = 0; i < 100; ++i) {
    const MachineLoad load = look();
    CHECK(load.seconds >= 0);
    CHECK(load.waiting.value_or(0) >= 0);
    CHECK(load.idle.value_or(0) >= 0);
  }
}

}  // namespace tril::test
