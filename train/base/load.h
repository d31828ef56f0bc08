// What else runs on this machine, as far as this process notices: whether its threads wait for a processor, and whether
// processors are idle. Both cost nothing to know, where timing steps with another number of threads costs steps.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tril {

struct MachineLoad {
  double seconds = 0;             // that the others are averages over
  std::optional<double> waiting;  // threads of this process that could have run, but had no processor
  std::optional<double> idle;     // processors that this process may use, and nobody did
};

// Looks at /proc below `root`. For one thread.
class LoadMeter {
 public:
  // `processors`: those this process may run on, by number.
  explicit LoadMeter(std::string root = "", std::vector<int> processors = allowed_processors());

  // Of the time since the last look; `now` in seconds, on any clock. Nothing but `seconds` at the first, and what
  // cannot be known here is left out: idle processors where a control group's quota keeps this process from some of
  // them.
  [[nodiscard]] MachineLoad look(double now);

  [[nodiscard]] static std::vector<int> allowed_processors();

 private:
  [[nodiscard]] std::optional<double> waited();  // thread seconds since the last look
  [[nodiscard]] std::optional<double> idled() const;

  std::string root_;
  std::vector<int> processors_;
  bool quota_;
  std::optional<double> last_look_, last_idle_;
  std::map<std::string, double> waits_;  // seconds, of each thread
  std::optional<double> last_switches_;
};

// Looks at this machine with its steady clock.
[[nodiscard]] std::function<MachineLoad()> machine_load();

}  // namespace tril
