// The program `tril`: finds the command, and turns what it throws into one line and an exit code.
#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "train/base/files.h"
#include "train/base/log.h"
#include "train/base/signals.h"
#include "train/base/threads.h"
#include "train/base/usage.h"
#include "train/base/utf8.h"
#include "train/cli/command.h"
#include "train/cli/output.h"
#include "train/cli/shell.h"

namespace tril::cli {
namespace {

struct Command {
  std::string_view name, about;
  int (*run)(int, const char* const*);
};
constexpr std::array kCommands = {
    Command{"train", "Train a model on a text.", run_train},
    Command{"sample", "Let a model write.", run_sample},
    Command{"eval", "Measure a model's loss on a text.", run_eval},
    Command{"info", "Show what is in a model, or what this program and machine are.", run_info},
    Command{"gradcheck", "Prove every gradient against numeric differences.", run_gradcheck},
    Command{"bench", "Time training and sampling on this machine.", run_bench},
};

std::string overview() {
  std::string page = "tril trains small transformers on a CPU.\n\nUsage: tril COMMAND [arguments]\n\n";
  constexpr size_t kNameWidth = 12;
  for (const Command& command : kCommands)
    page += cat("  ", command.name, std::string(kNameWidth - command.name.size(), ' '), command.about, "\n");
  return page +
         "\ntril COMMAND --help shows a command's flags, tril --version the version.\n\n"
         "To begin: tril train book.txt, or tril train for the built-in stories.\n";
}

int run(int argc, const char* const* argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "help" && argc > 2) {  // the same as the command's --help
    const std::array<const char*, 3> asked = {argv[0], argv[2], "--help"};
    return run(static_cast<int>(asked.size()), asked.data());
  }
  if (name.empty() || name == "--help" || name == "-h" || name == "help") {
    write_output(overview());
    return 0;
  }
  if (name == "--version") {
    write_output(cat("tril ", TRIL_VERSION, "\n"));
    return 0;
  }
  const auto found =
      std::find_if(kCommands.begin(), kCommands.end(), [&](const Command& command) { return command.name == name; });
  if (found == kCommands.end()) {
    std::vector<std::string_view> known;
    for (const Command& command : kCommands) known.push_back(command.name);
    fail_usage("tril", "a command", printable(name, 60), did_you_mean(name, known, "tril alone lists them"));
  }
  return found->run(argc - 1, argv + 1);
}

int run_and_report(int argc, const char* const* argv) {
  constexpr int kFailed = 1, kWrongUsage = 2, kSignalBase = 128;
  try {
    return run(argc, argv);
  } catch (const OutputError& error) {
    if (error.stopped()) return kSignalBase + stop_signal();
    if (error.reader_gone()) return 0;
    Log().error(error.what());
  } catch (const UsageError& error) {
    Log().error(error.what());
    return kWrongUsage;
  } catch (const std::bad_alloc&) {
    Log().error("memory: expected enough for this, got none left; choose a smaller model, batch or text");
  } catch (const std::exception& error) { Log().error(error.what()); }
  return kFailed;
}

}  // namespace
}  // namespace tril::cli

int main(int argc, char** argv) {
  tril::occupy_standard_descriptors();
  tril::ignore_write_signals();
  tril::limit_spinning(argv);
  tril::share_heap();
  tril::watch_stop_signals();
  if (argc > 0 && std::string_view(argv[0]).find('/') != std::string_view::npos)
    tril::cli::program = tril::cli::shell_quoted(argv[0]);
  return tril::cli::run_and_report(argc, argv);
}
