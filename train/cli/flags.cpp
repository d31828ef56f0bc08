#include "train/cli/flags.h"

#include <algorithm>
#include <exception>

// cxxopts cuts the values of a list at this character; arguments contain commas, but never a NUL.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#include <cxxopts.hpp>

#include "train/cli/output.h"
#include "train/utf8.h"

namespace tril::cli {
namespace {

constexpr const char* kArguments = "arguments";  // the parser's name for what is no flag
constexpr size_t kHelpWidth = 110;

bool takes_value(const Flag& flag) { return !flag.value.empty(); }

}  // namespace

Flags::Flags(Command command, std::vector<Flag> flags) : command_(std::move(command)), flags_(std::move(flags)) {
  flags_.push_back({.name = "help", .help = "Print this page."});
}

const Flag* Flags::find(std::string_view name) const {
  const auto found = std::find_if(flags_.begin(), flags_.end(), [&](const Flag& flag) { return flag.name == name; });
  return found == flags_.end() ? nullptr : &*found;
}

void Flags::refuse_unknown(std::string_view token) const {
  std::vector<std::string_view> known;
  for (const Flag& flag : flags_) known.push_back(flag.name);
  const std::string_view bare = token.substr(std::min(token.find_first_not_of('-'), token.size()));
  const std::string_view near = nearest(bare.substr(0, bare.find('=')), known);
  const std::string help_hint = cat("tril ", command_.name, " --help lists them");
  fail_usage(cat("tril ", command_.name), "a flag it has", printable(token, 60),
             near.empty() ? help_hint : cat("did you mean --", near, "?"));
}

bool Flags::parse(int argc, const char* const* argv) {
  cxxopts::Options options(command_.name);
  options.allow_unrecognised_options();
  options.add_options()(kArguments, "", cxxopts::value<std::vector<std::string>>());
  options.parse_positional({kArguments});
  for (const Flag& flag : flags_) {
    const auto value = cxxopts::value<std::string>();
    const std::string name = flag.name == "help" ? "h,help" : flag.name;
    options.add_options()(name, flag.help, takes_value(flag) ? value : value->implicit_value("true"));
  }
  try {
    const auto result = options.parse(argc, argv);
    for (const std::string& token : result.unmatched()) refuse_unknown(token);
    for (const Flag& flag : flags_)
      if (result.count(flag.name) > 0) values_[flag.name] = result[flag.name].as<std::string>();
    if (result.count(kArguments) > 0) arguments_ = result[kArguments].as<std::vector<std::string>>();
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {  // the parser's only complaint left: a value is missing at the end
    fail_usage(argc > 1 ? argv[argc - 1] : command_.name, "a value", "none");
  }
  // What begins with a dash and stands before "--" is meant as a flag.
  const bool ended = std::any_of(argv, argv + argc, [](const char* token) { return std::string_view(token) == "--"; });
  for (const std::string& argument : arguments_)
    if (!ended && argument.size() > 1 && argument[0] == '-') refuse_unknown(argument);
  if (given("help")) {
    write_output(help());
    return false;
  }
  const size_t most = command_.most_arguments;
  if (arguments_.size() > most)
    fail_usage(cat("tril ", command_.name),
               most == 0 ? std::string("no arguments besides flags")
                         : cat("at most ", most, most == 1 ? " argument" : " arguments", " besides flags"),
               cat(arguments_.size(), ", with '", printable(arguments_[most], 60), "' too many"));
  return true;
}

bool Flags::given(std::string_view name) const { return values_.find(name) != values_.end(); }

std::string Flags::text(std::string_view name) const {
  if (const auto found = values_.find(name); found != values_.end()) return found->second;
  const Flag* const flag = find(name);
  TRIL_CHECK(flag != nullptr, name, "a flag of the command", "another");
  return flag->fallback;
}

bool Flags::on(std::string_view name) const { return given(name) && parse_switch(cat("--", name), text(name)); }

int64_t Flags::integer(std::string_view name, int64_t least, int64_t most) const {
  return parse_integer(cat("--", name), text(name), least, most);
}

double Flags::number(std::string_view name, double least, double most) const {
  return parse_number(cat("--", name), text(name), least, most);
}

std::string Flags::help() const {
  const std::string usage = cat("Usage: tril ", command_.name, command_.usage.empty() ? "" : " ", command_.usage);
  std::string page = cat(command_.about, "\n\n", usage, "\n");
  std::vector<std::string> groups;
  size_t widest = 0;
  const auto left_side = [](const Flag& flag) {
    return cat("  --", flag.name, takes_value(flag) ? " " : "", flag.value);
  };
  for (const Flag& flag : flags_) {
    if (std::find(groups.begin(), groups.end(), flag.group) == groups.end()) groups.push_back(flag.group);
    widest = std::max(widest, left_side(flag).size());
  }
  for (const std::string& group : groups) {
    page += cat("\n", group.empty() ? "Flags" : group, ":\n");
    for (const Flag& flag : flags_) {
      if (flag.group != group) continue;
      std::string line = left_side(flag);
      line.append(widest + 2 - line.size(), ' ');
      std::string_view words = flag.help;
      std::string whole = flag.fallback.empty() ? std::string(words) : cat(words, " (default: ", flag.fallback, ")");
      words = whole;
      while (widest + 2 + words.size() > kHelpWidth) {
        const size_t cut = words.rfind(' ', kHelpWidth - widest - 2);
        if (cut == std::string_view::npos) break;
        page += cat(line, words.substr(0, cut), "\n");
        line.assign(widest + 2, ' ');
        words.remove_prefix(cut + 1);
      }
      page += cat(line, words, "\n");
    }
  }
  if (!command_.examples.empty()) page += cat("\n", command_.examples);
  return page;
}

}  // namespace tril::cli
