// The flags of one command: declared once, they make the parser, the page of help, and errors that name the nearest
// flag. A Flags belongs to its command, on the main thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "train/base/usage.h"

namespace tril::cli {

struct Flag {
  std::string name;           // without dashes
  std::string help;           // one sentence
  std::string value = {};     // stands for the value in the help, such as N; empty: a switch
  std::string fallback = {};  // the value where the flag is not given
  std::string group = {};     // the heading it stands under in the help
};

class Flags {
 public:
  // `usage` follows the command's name in the help, `about` is a sentence or two, `examples` ends the page, `of_more`
  // is the advice in the error for too many arguments.
  struct Command {
    std::string name;
    std::string usage;
    std::string about;
    size_t most_arguments = 0;  // besides flags
    std::string examples = {};
    std::string of_more = {};
  };
  Flags(Command command, std::vector<Flag> flags);

  // Throws UsageError. False: --help was given, and the page has been printed.
  [[nodiscard]] bool parse(int argc, const char* const* argv);

  [[nodiscard]] bool given(std::string_view name) const;
  // The value given, else the fallback.
  [[nodiscard]] std::string text(std::string_view name) const;
  [[nodiscard]] bool on(std::string_view name) const;  // of a switch
  [[nodiscard]] int64_t integer(std::string_view name, int64_t least, int64_t most) const;
  [[nodiscard]] double number(std::string_view name, double least, double most) const;
  [[nodiscard]] const std::vector<std::string>& arguments() const { return arguments_; }

 private:
  [[nodiscard]] const Flag* find(std::string_view name) const;
  [[nodiscard]] std::string help() const;
  [[noreturn]] void refuse_unknown(std::string_view token) const;
  [[nodiscard]] std::vector<std::string> separated(int argc, const char* const* argv) const;

  Command command_;
  std::vector<Flag> flags_;
  std::map<std::string, std::string, std::less<>> values_;
  std::vector<std::string> arguments_;
};

}  // namespace tril::cli
