// Grammar's constructor: reads the rules, replaces options that start with a choice, and refuses what could not be
// scored exactly.
#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <set>

#include "core/base/check.h"
#include "train/data/grammar.h"

namespace tril {
namespace {

constexpr uint64_t kMaxTotal = uint64_t{1} << 48;  // sums and products of weights stay far from overflow
constexpr size_t kMaxOptions = 1000;

[[nodiscard]] std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

[[nodiscard]] bool is_name(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

// Calls each(text) for what lies in `text` between separators.
template <class Each>
void split(std::string_view text, char separator, const Each& each) {
  while (true) {
    const size_t at = text.find(separator);
    each(text.substr(0, at));
    if (at == std::string_view::npos) return;
    text.remove_prefix(at + 1);
  }
}

}  // namespace

class GrammarCompiler {
 public:
  explicit GrammarCompiler(Grammar& grammar) : rules_(grammar.rules_), memory_names_(grammar.memory_names_) {}

  void compile(std::string_view source) {
    split(source, '\n', [&](std::string_view line) { read_line(line); });
    TRIL_CHECK(!rules_.empty(), "grammar", "at least one rule", "none");
    for (const Rule& rule : rules_)
      TRIL_CHECK(!rule.options.empty(), where(rule), "options", "none", "define the rule or mend its name");
    states_.resize(rules_.size(), State::kUntouched);
    flows_.resize(rules_.size());
    finish(0);
    for (const size_t needed : flows_[0].needs)
      fail("grammar", cat("<", memory_names_[needed], "> to be remembered on every way to where it is recalled"),
           "a way without it");
    for (size_t i = 0; i < rules_.size(); ++i)
      TRIL_CHECK(states_[i] == State::kDone, where(rules_[i]), "a rule that the first one leads to", "an unused one");
  }

 private:
  using Kind = Grammar::Kind;
  using Piece = Grammar::Piece;
  using Option = Grammar::Option;
  using Rule = Grammar::Rule;
  enum class State : uint8_t { kUntouched, kOpen, kDone };
  // The memory slots that a rule recalls before it fills them, and those that it fills whatever is chosen.
  struct Flow {
    std::set<size_t> needs;
    std::set<size_t> fills;
  };

  [[nodiscard]] static std::string where(const Rule& rule) { return cat("grammar rule '", rule.name, "'"); }

  [[nodiscard]] size_t rule_index(std::string_view name) {
    const auto [found, added] = rule_indices_.try_emplace(std::string(name), rules_.size());
    if (added) rules_.push_back({std::string(name), {}, 0});
    return found->second;
  }

  [[nodiscard]] size_t memory_index(std::string_view name) {
    const auto [found, added] = memory_indices_.try_emplace(std::string(name), memory_names_.size());
    if (added) memory_names_.emplace_back(name);
    return found->second;
  }

  void read_line(std::string_view line) {
    std::string_view options = trimmed(line);
    if (options.empty() || line[0] == '#') return;
    if (line[0] != ' ') {
      const size_t equals = options.find('=');
      const std::string_view name = trimmed(options.substr(0, equals));
      TRIL_CHECK(equals != std::string_view::npos && is_name(name), "grammar", "a line `name = options`",
                 cat("\"", line, "\""), "indent the options of a rule");
      current_ = rule_index(name);
      TRIL_CHECK(rules_[current_].options.empty(), where(rules_[current_]), "one definition", "a second one");
      options = trimmed(options.substr(equals + 1));
      if (options.empty()) return;
    }
    TRIL_CHECK(!rules_.empty(), "grammar", "a line `name = options` first", cat("\"", line, "\""));
    split(options, '|', [&](std::string_view text) {
      Option option = read_option(trimmed(text));  // first, because it may move rules_
      rules_[current_].options.push_back(std::move(option));
    });
  }

  [[nodiscard]] Option read_option(std::string_view text) {
    Option option;
    const size_t star = text.find('*');
    if (star != std::string_view::npos) {
      const auto parsed = std::from_chars(text.data(), text.data() + star, option.weight);
      TRIL_CHECK(parsed.ec == std::errc() && parsed.ptr == text.data() + star && option.weight > 0,
                 where(rules_[current_]), "a weight of 1 or more before *", cat("\"", text, "\""));
      text = trimmed(text.substr(star + 1));
    }
    while (!text.empty()) {
      const bool is_slot = std::string_view("{<[").find(text.front()) != std::string_view::npos;
      const size_t end = is_slot ? text.find_first_of("}>]") : text.find_first_of("{<[");
      if (is_slot) {
        TRIL_CHECK(end != std::string_view::npos, where(rules_[current_]), "a closed slot", cat("\"", text, "\""));
        read_slot(text.substr(0, end + 1), option.pieces);
        text.remove_prefix(end + 1);
      } else {
        option.pieces.push_back(literal(Kind::kText, text.substr(0, end)));
        text.remove_prefix(std::min(end, text.size()));
      }
    }
    TRIL_CHECK(std::any_of(option.pieces.begin(), option.pieces.end(),
                           [](const Piece& piece) { return piece.kind <= Kind::kChoose; }),
               where(rules_[current_]), "options that write something", "one that does not");
    return option;
  }

  [[nodiscard]] Piece literal(Kind kind, std::string_view text) const {
    Piece piece{.kind = kind, .text = std::string(text)};
    std::replace(piece.text.begin(), piece.text.end(), '/', '\n');
    std::replace(piece.text.begin(), piece.text.end(), '_', ' ');
    const bool plain = std::all_of(piece.text.begin(), piece.text.end(), [](char c) {
      return c == '\n' || (c >= ' ' && c <= '~' && std::string_view("{}<>[]|=*#").find(c) == std::string_view::npos);
    });
    TRIL_CHECK(plain && !text.empty(), where(rules_[current_]), "plain ASCII text", cat("\"", text, "\""));
    return piece;
  }

  void read_slot(std::string_view slot, std::vector<Piece>& pieces) {
    const std::string_view brackets = slot[0] == '{' ? "{}" : slot[0] == '<' ? "<>" : "[]";
    const std::string_view inner = slot.substr(1, slot.size() - 2);
    const size_t equals = inner.find('=');
    const bool has_value = equals != std::string_view::npos;
    const std::string_view value = has_value ? inner.substr(equals + 1) : std::string_view();
    std::string name(inner.substr(0, equals));
    const bool capital = !has_value && !name.empty() && name[0] >= 'A' && name[0] <= 'Z';
    if (capital) name[0] = static_cast<char>(name[0] - 'A' + 'a');
    const bool shaped = brackets == "{}" ? !has_value || is_name(value) : has_value == (brackets == "[]");
    TRIL_CHECK(slot.back() == brackets[1] && is_name(name) && shaped, where(rules_[current_]),
               "{rule}, {x=rule}, <x> or [x=text]", cat("\"", slot, "\""));
    if (brackets == "<>") {
      pieces.push_back({.kind = Kind::kRecall, .capital = capital, .index = memory_index(name)});
    } else if (!has_value) {
      pieces.push_back({.kind = Kind::kChoose, .capital = capital, .index = rule_index(name)});
    } else {
      const size_t memory = memory_index(name);
      if (brackets == "[]") {
        pieces.push_back(literal(Kind::kAssign, value));
        pieces.back().index = memory;
      } else {
        pieces.push_back({.kind = Kind::kCaptureBegin, .index = memory});
        pieces.push_back({.kind = Kind::kChoose, .index = rule_index(value)});
        pieces.push_back({.kind = Kind::kCaptureEnd, .index = memory});
      }
    }
  }

  // Depth first, so that a rule finds the rules it uses already finished.
  void finish(size_t index) {
    Rule& rule = rules_[index];
    TRIL_CHECK(states_[index] != State::kOpen, where(rule), "rules that end", "a rule that contains itself");
    if (states_[index] == State::kDone) return;
    states_[index] = State::kOpen;
    for (const Option& option : rule.options)
      for (const Piece& piece : option.pieces)
        if (piece.kind == Kind::kChoose) finish(piece.index);
    follow_memory(rule, flows_[index]);
    for (Option& option : rule.options) find_head(option);
    while (expand_one(rule)) continue;
    for (const Option& option : rule.options) rule.total += option.weight;
    TRIL_CHECK(rule.total <= kMaxTotal, where(rule), "smaller weights", "a sum of more than 2^48");
    states_[index] = State::kDone;
  }

  void follow_memory(const Rule& rule, Flow& flow) const {
    for (const Option& option : rule.options) {
      std::set<size_t> filled;
      const auto need = [&](size_t slot) {
        if (!filled.contains(slot)) flow.needs.insert(slot);
      };
      for (const Piece& piece : option.pieces) {
        if (piece.kind == Kind::kRecall) need(piece.index);
        if (piece.kind == Kind::kCaptureEnd || piece.kind == Kind::kAssign) filled.insert(piece.index);
        if (piece.kind != Kind::kChoose) continue;
        const Flow& inner = flows_[piece.index];
        std::for_each(inner.needs.begin(), inner.needs.end(), need);
        filled.insert(inner.fills.begin(), inner.fills.end());
      }
      if (&option == &rule.options.front()) flow.fills = filled;
      std::erase_if(flow.fills, [&](size_t slot) { return !filled.contains(slot); });
    }
  }

  // The head ends before the first choice, and before a recall of what the head itself remembers.
  static void find_head(Option& option) {
    option.head.clear();
    option.head_pieces = 0;
    option.fixed_head = true;
    std::vector<size_t> remembered;
    for (const Piece& piece : option.pieces) {
      if (piece.kind == Kind::kChoose) return;
      if (piece.kind == Kind::kCaptureEnd || piece.kind == Kind::kAssign) remembered.push_back(piece.index);
      if (piece.kind == Kind::kRecall) {
        if (std::find(remembered.begin(), remembered.end(), piece.index) != remembered.end()) return;
        option.fixed_head = false;
      }
      if (piece.kind == Kind::kText) option.head += piece.text;
      ++option.head_pieces;
    }
  }

  // The head with <x> for each value that is not known yet. That no two different values begin one another is checked
  // once they are known.
  [[nodiscard]] std::string symbolic_head(const Option& option) const {
    std::string head;
    for (size_t i = 0; i < option.head_pieces; ++i) {
      const Piece& piece = option.pieces[i];
      if (piece.kind == Kind::kText) head += piece.text;
      if (piece.kind != Kind::kRecall) continue;
      std::string name = memory_names_[piece.index];
      if (piece.capital) name[0] = to_capital(name[0]);
      head += cat("<", name, ">");
    }
    return head;
  }

  // If one head begins another, replaces its option by one for each outcome of the choice that ends the head.
  [[nodiscard]] bool expand_one(Rule& rule) const {
    std::vector<std::pair<std::string, size_t>> heads;
    for (size_t i = 0; i < rule.options.size(); ++i) heads.emplace_back(symbolic_head(rule.options[i]), i);
    std::sort(heads.begin(), heads.end());  // a text comes right before those that begin with it
    for (size_t i = 1; i < heads.size(); ++i) {
      const auto& [shorter, a] = heads[i - 1];
      const auto& [longer, b] = heads[i];
      if (!longer.starts_with(shorter)) continue;
      const bool same = longer.size() == shorter.size();
      TRIL_CHECK(rule.options.size() <= kMaxOptions, where(rule), "options that part soon",
                 cat("more than ", kMaxOptions, " that start like \"", shorter, "\""));
      TRIL_CHECK(ends_in_choice(rule.options[a]) || (same && ends_in_choice(rule.options[b])), where(rule),
                 "options of which none begins another", cat("\"", shorter, "\" and \"", longer, "\""),
                 "move what they share in front of the choice");
      expand(rule, ends_in_choice(rule.options[a]) ? a : b);
      return true;
    }
    return false;
  }

  [[nodiscard]] static bool ends_in_choice(const Option& option) {
    return option.head_pieces < option.pieces.size() && option.pieces[option.head_pieces].kind == Kind::kChoose;
  }

  // Weights are brought to a common multiple, so that probabilities stay exact fractions.
  void expand(Rule& rule, size_t at) const {
    const Option option = std::move(rule.options[at]);
    const auto choice = static_cast<std::ptrdiff_t>(option.head_pieces);
    const Piece& slot = option.pieces[option.head_pieces];
    const Rule& inner_rule = rules_[slot.index];
    const uint64_t shared = std::gcd(option.weight, inner_rule.total);
    for (Option& other : rule.options) multiply(rule, other.weight, inner_rule.total / shared);
    rule.options.erase(rule.options.begin() + static_cast<std::ptrdiff_t>(at));
    for (const Option& inner : inner_rule.options) {
      Option& joined = rule.options.emplace_back(Option{.weight = option.weight / shared, .pieces = inner.pieces});
      multiply(rule, joined.weight, inner.weight);
      if (slot.capital) capitalize(joined);
      joined.pieces.insert(joined.pieces.begin(), option.pieces.begin(), option.pieces.begin() + choice);
      joined.pieces.insert(joined.pieces.end(), option.pieces.begin() + choice + 1, option.pieces.end());
      find_head(joined);
    }
  }

  static void multiply(const Rule& rule, uint64_t& weight, uint64_t factor) {
    TRIL_CHECK(weight <= kMaxTotal / factor, where(rule), "smaller weights", "a sum of more than 2^48");
    weight *= factor;
  }

  static void capitalize(Option& option) {
    for (Piece& piece : option.pieces) {
      if (piece.kind == Kind::kText) piece.text[0] = to_capital(piece.text[0]);
      if (piece.kind == Kind::kRecall || piece.kind == Kind::kChoose) piece.capital = true;
      if (piece.kind == Kind::kText || piece.capital) return;
    }
  }

  std::vector<Rule>& rules_;
  std::vector<std::string>& memory_names_;
  std::map<std::string, size_t> rule_indices_;
  std::map<std::string, size_t> memory_indices_;
  std::vector<State> states_;  // by rule index
  std::vector<Flow> flows_;    // by rule index
  size_t current_ = 0;         // the rule being read
};

Grammar::Grammar(std::string_view source) { GrammarCompiler(*this).compile(source); }

}  // namespace tril
