#include "train/base/usage.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <vector>

#include "train/base/utf8.h"

namespace tril {
namespace {

constexpr size_t kShownCharacters = 60;

std::string shown(std::string_view text) {
  return text.empty() ? "nothing" : cat('\'', printable(text, kShownCharacters), '\'');
}

[[noreturn]] void refuse_number(std::string_view where, std::string_view text, std::string_view expected) {
  const bool comma = text.find(',') != std::string_view::npos;
  fail_usage(where, expected, shown(text), comma ? "decimals are written with a point, without separators" : "");
}

// Removes the digits at the start of `text` and returns them.
std::string_view take_digits(std::string_view& text) {
  const size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

bool take(std::string_view& text, std::string_view any_of) {
  const bool found = !text.empty() && any_of.find(text[0]) != std::string_view::npos;
  if (found) text.remove_prefix(1);
  return found;
}

// The exponent that follows the e of a number, at most kMost in size. None if it is no exponent.
std::optional<int64_t> exponent_of(std::string_view text) {
  constexpr int64_t kMost = int64_t{1} << 40;  // more than the digits of any text
  const bool negative = text.starts_with('-');
  take(text, "+-");
  const std::string_view digits = take_digits(text);
  if (digits.empty() || !text.empty()) return std::nullopt;
  int64_t value = 0;
  for (const char digit : digits) value = std::min(10 * value + (digit - '0'), kMost);
  return negative ? -value : value;
}

// How many edits (insert, remove, replace one, swap two neighbours) turn a into b.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      size_t& here = cost[i][j];
      if (i == 0 || j == 0) {
        here = i + j;
        continue;
      }
      here = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0u : 1u)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) here = std::min(here, cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

void fail_usage(std::string_view where, std::string_view expected, std::string_view got, std::string_view mend) {
  try {
    fail(where, expected, got, mend);
  } catch (const Error& error) { throw UsageError(error.what()); }
}

std::optional<int64_t> whole_number(std::string_view text) {
  const bool negative = take(text, "-");
  std::string digits(take_digits(text));
  auto point = static_cast<int64_t>(digits.size());  // how many of the digits stand before it
  if (take(text, ".")) digits += take_digits(text);
  if (digits.empty()) return std::nullopt;
  if (take(text, "eE")) {
    const auto exponent = exponent_of(text);
    if (!exponent) return std::nullopt;
    point += *exponent;
  } else if (!text.empty()) {
    return std::nullopt;
  }
  const size_t first = digits.find_first_not_of('0');
  if (first == std::string::npos) return 0;
  digits.erase(digits.find_last_not_of('0') + 1);
  constexpr int64_t kMostDigits = 19;
  const auto leading = static_cast<int64_t>(first), count = static_cast<int64_t>(digits.size());
  if (point < count || point - leading > kMostDigits) return std::nullopt;
  digits.append(static_cast<size_t>(point - count), '0');
  std::string exact(negative ? "-" : "");
  exact += std::string_view(digits).substr(first);
  int64_t value = 0;
  if (std::from_chars(exact.data(), exact.data() + exact.size(), value).ec != std::errc{}) return std::nullopt;
  return value;
}

int64_t parse_integer(std::string_view where, std::string_view text, int64_t least, int64_t most) {
  const std::string expected = cat("a whole number from ", least, " to ", most);
  const auto value = whole_number(text);
  if (!value) refuse_number(where, text, expected);
  if (*value < least || *value > most) fail_usage(where, expected, cat(*value));
  return *value;
}

double parse_number(std::string_view where, std::string_view text, double least, double most) {
  const std::string expected = cat("a number from ", least, " to ", most);
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) refuse_number(where, text, expected);
  if (!(value >= least && value <= most)) fail_usage(where, expected, cat(value));
  return value;
}

bool parse_switch(std::string_view where, std::string_view text) {
  if (text == "true") return true;
  if (text != "false") fail_usage(where, "true or false", shown(text));
  return false;
}

std::string_view nearest(std::string_view name, std::span<const std::string_view> known) {
  if (name.size() > kShownCharacters) return {};
  std::string_view best;
  // A name that is farther away is another name.
  size_t least = (name.size() <= 3 ? 1 : std::max<size_t>(name.size() / 3, 2)) + 1;
  for (const std::string_view candidate : known) {
    // People most often type the beginning of a name, or a name with something after it.
    const bool begins = name.size() >= 2 && (candidate.starts_with(name) || name.starts_with(candidate));
    const size_t edits = begins ? 1 : distance(name, candidate);
    if (edits >= least || edits >= std::max(name.size(), candidate.size())) continue;
    least = edits;
    best = candidate;
  }
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string_view> known, std::string_view otherwise) {
  const std::string_view near = nearest(name, known);
  return near.empty() ? std::string(otherwise) : cat("did you mean ", near, '?');
}

}  // namespace tril
