#include "train/cli/flags.h"

#include <algorithm>
#include <exception>

// cxxopts cuts the values of a list at this character; arguments contain commas, but never a NUL.
#define CXXOPTS_VECTOR_DELIMITER '\0'
#include <cxxopts.hpp>

#include "train/base/utf8.h"
#include "train/cli/output.h"

namespace tril::cli {
namespace {

constexpr const char* kArguments = "arguments";  // the parser's name for what is not a flag
constexpr size_t kHelpWidth = 80;

bool takes_value(const Flag& flag) { return !flag.value.empty(); }

// `text` after `first`, in lines of the page's width; later lines begin under the text.
std::string wrapped(const std::string& first, std::string_view text) {
  const size_t room = kHelpWidth - first.size();
  std::string lines = first;
  while (text.size() > room) {
    size_t cut = text.rfind(' ', room);
    if (text.substr(0, cut).ends_with("(default:")) cut = text.rfind(' ', cut - 1);
    if (cut == std::string_view::npos) break;
    lines += cat(text.substr(0, cut), "\n", std::string(first.size(), ' '));
    text.remove_prefix(cut + 1);
  }
  return cat(lines, text, "\n");
}

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

// The tokens for the parser, with values apart from their flags: the parser finds flags by regular expressions, which
// fail at line ends and long values.
std::vector<std::string> Flags::separated(int argc, const char* const* argv) const {
  std::vector<std::string> tokens{argv[0]};
  const auto value_behind = [&](const std::string& token, int i) -> std::string_view {
    if (i + 1 == argc) fail_usage(token, "a value", "none");
    const std::string_view value = argv[i + 1];
    if (value.starts_with("--") && find(value.substr(2, value.find('=') - 2)) != nullptr)
      fail_usage(token, "a value", cat("the flag ", printable(value, 60)),
                 cat("write ", token, "=", printable(value, 60), " if that is the value"));
    return value;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string_view token = argv[i];
    if (token == "--") {
      tokens.insert(tokens.end(), argv + i, argv + argc);
      return tokens;
    }
    if (token == "-" || token == "-h" || !token.starts_with('-')) {
      tokens.emplace_back(token);
      continue;
    }
    const size_t equals = token.find('=');
    const std::string name(token.substr(0, equals));
    const Flag* const flag = name.starts_with("--") ? find(std::string_view(name).substr(2)) : nullptr;
    if (flag == nullptr) refuse_unknown(token);
    if (takes_value(*flag)) {
      tokens.push_back(name);
      tokens.emplace_back(equals == std::string_view::npos ? value_behind(name, i++) : token.substr(equals + 1));
    } else if (equals != std::string_view::npos) {
      tokens.push_back(cat(name, "=", parse_switch(name, token.substr(equals + 1)) ? "true" : "false"));
    } else {
      tokens.push_back(name);
      // What follows a switch is an argument of its own. But nobody names a text "false", so that is an error.
      const std::string_view next = i + 1 < argc ? argv[i + 1] : "";
      if (next == "true" || next == "false")
        fail_usage(name, "no value, as it is a switch", next, cat("write ", name, "=", next));
    }
  }
  return tokens;
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
  const std::vector<std::string> tokens = separated(argc, argv);
  std::vector<const char*> pointers;
  for (const std::string& token : tokens) pointers.push_back(token.c_str());
  const auto result = options.parse(static_cast<int>(pointers.size()), pointers.data());
  for (const Flag& flag : flags_)
    if (result.count(flag.name) > 0) values_[flag.name] = result[flag.name].as<std::string>();
  if (result.count(kArguments) > 0) arguments_ = result[kArguments].as<std::vector<std::string>>();
  if (on("help")) {
    write_output(help());
    return false;
  }
  const size_t most = command_.most_arguments;
  if (arguments_.size() > most)
    fail_usage(cat("tril ", command_.name),
               most == 0 ? std::string("no arguments besides flags")
                         : cat("at most ", most, most == 1 ? " argument" : " arguments", " besides flags"),
               cat(arguments_.size(), ", with '", printable(arguments_[most], 60), "' too many"), command_.of_more);
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
  std::string page = cat(wrapped("", command_.about), "\n", usage, "\n");
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
      std::string left = left_side(flag);
      left.append(widest + 2 - left.size(), ' ');
      page += wrapped(left, flag.fallback.empty() ? flag.help : cat(flag.help, " (default: ", flag.fallback, ")"));
    }
  }
  if (!command_.examples.empty()) page += cat("\n", command_.examples);
  return page;
}

}  // namespace tril::cli
