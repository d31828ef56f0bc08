// How busy this machine is, as far as this process can see: whether its threads wait for a processor, and whether
// processors are idle. Both cost almost nothing to know, while timing steps with another number of threads costs steps.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tril {

struct MachineLoad {
  double seconds = 0;             // the time that the others are averages over
  std::optional<double> waiting;  // how many threads of this process could have run, but had no processor
  std::optional<double> idle;     // how many processors this process may use, but nobody did
};

// Looks at /proc below `root`. For one thread.
class LoadMeter {
 public:
  // `processors`: those this process may run on, by number.
  explicit LoadMeter(std::string root = "", std::vector<int> processors = allowed_processors());

  // The load since the last look; `now` is in seconds, on any clock. The first look knows nothing yet. Later ones leave
  // out what cannot be known here: for example, a control group's quota may keep this process from idle processors.
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
