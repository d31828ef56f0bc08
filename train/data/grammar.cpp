#include "train/data/grammar.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"

namespace tril {

size_t SeededChooser::choose(std::span<const Candidate> candidates) {
  uint64_t total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  TRIL_CHECK(total > 0, "grammar choice", "candidates with a weight", "none");
  // Draws from the last whole multiple of total on are discarded: they would favour the first candidates.
  const uint64_t bound = std::numeric_limits<uint64_t>::max() / total * total;
  uint64_t draw = bound;
  while (draw >= bound) {
    // SplitMix64 (Steele, Lea, Flood 2014).
    state_ += 0x9E3779B97F4A7C15u;
    draw = state_;
    draw = (draw ^ (draw >> 30)) * 0xBF58476D1CE4E5B9u;
    draw = (draw ^ (draw >> 27)) * 0x94D049BB133111EBu;
    draw ^= draw >> 31;
  }
  draw %= total;
  size_t pick = 0;
  while (draw >= candidates[pick].weight) draw -= candidates[pick++].weight;
  return pick;
}

// One derivation.
class GrammarWriter {
 public:
  GrammarWriter(const Grammar& grammar, Chooser& chooser, ScoredText& out)
      : grammar_(grammar), chooser_(chooser), out_(out), memory_(grammar.memory_names_.size()) {}

  void write(const Grammar::Rule& rule, bool capital) {
    const Grammar::Option& option = rule.options[choose(rule, capital)];
    for (const Grammar::Piece& piece : option.pieces) {
      const size_t start = out_.text.size();
      switch (piece.kind) {
        case Grammar::Kind::kText: out_.text += piece.text; break;
        case Grammar::Kind::kRecall: out_.text += memory_[piece.index]; break;
        case Grammar::Kind::kChoose: write(grammar_.rules_[piece.index], piece.capital || capital); break;
        case Grammar::Kind::kCaptureBegin: captures_.push_back(start); break;
        case Grammar::Kind::kCaptureEnd:
          memory_[piece.index] = out_.text.substr(captures_.back());
          captures_.pop_back();
          break;
        case Grammar::Kind::kAssign: memory_[piece.index] = piece.text; break;
      }
      if (out_.text.size() > start) {
        if (capital || piece.capital) out_.text[start] = to_capital(out_.text[start]);
        capital = false;
      }
    }
  }

  // Gives probability 1 to the characters since the last choice: they follow from it.
  void fill_certain() { out_.nats.resize(out_.text.size(), 0.0f); }

 private:
  [[nodiscard]] size_t choose(const Grammar::Rule& rule, bool capital) {
    if (rule.options.size() == 1) return 0;
    candidates_.clear();
    heads_.resize(std::max(heads_.size(), rule.options.size()));
    for (size_t i = 0; i < rule.options.size(); ++i) {
      const Grammar::Option& option = rule.options[i];
      std::string_view head = option.head;
      if (!option.fixed_head || capital) head = resolve_head(option, capital, heads_[i]);
      candidates_.push_back({head, option.weight});
    }
    const size_t pick = chooser_.choose(candidates_);
    TRIL_CHECK(pick < candidates_.size(), "grammar choice", cat("an index below ", candidates_.size()), cat(pick));
    score(rule, pick);
    return pick;
  }

  [[nodiscard]] std::string_view resolve_head(const Grammar::Option& option, bool capital, std::string& out) const {
    out.clear();
    for (size_t i = 0; i < option.head_pieces; ++i) {
      const Grammar::Piece& piece = option.pieces[i];
      const size_t start = out.size();
      if (piece.kind == Grammar::Kind::kText) out += piece.text;
      if (piece.kind == Grammar::Kind::kRecall) out += memory_[piece.index];
      if (piece.capital && out.size() > start) out[start] = to_capital(out[start]);
    }
    if (capital) out[0] = to_capital(out[0]);
    return out;
  }

  // Scores the picked head. The probability of each of its characters is the weight of the candidates that go on with
  // it, divided by the weight of those that were possible before it.
  void score(const Grammar::Rule& rule, size_t pick) {
    fill_certain();
    live_.resize(candidates_.size());
    for (size_t i = 0; i < live_.size(); ++i) live_[i] = i;
    uint64_t before = rule.total;
    const std::string_view head = candidates_[pick].head;
    for (size_t at = 0; at < head.size() && live_.size() > 1; ++at) {
      uint64_t after = 0;
      size_t kept = 0;
      for (const size_t i : live_) {
        const Candidate& candidate = candidates_[i];
        if (candidate.head.size() == at) refuse_prefix(rule, candidate.head, head);
        if (candidate.head[at] != head[at]) continue;
        after += candidate.weight;
        live_[kept++] = i;
      }
      live_.resize(kept);
      out_.nats.push_back(after == before
                              ? 0.0f
                              : static_cast<float>(std::log(static_cast<double>(before) / static_cast<double>(after))));
      before = after;
    }
    if (live_.size() > 1) refuse_prefix(rule, head, candidates_[live_[live_[0] == pick ? 1 : 0]].head);
  }

  [[noreturn]] static void refuse_prefix(const Grammar::Rule& rule, std::string_view shorter, std::string_view longer) {
    fail(cat("grammar rule '", rule.name, "'"), "options of which none begins another",
         cat("\"", shorter, "\" and \"", longer, "\""), "move what they share in front of the choice");
  }

  const Grammar& grammar_;
  Chooser& chooser_;
  ScoredText& out_;
  std::vector<std::string> memory_;
  std::vector<size_t> captures_;
  std::vector<Candidate> candidates_;
  std::vector<std::string> heads_;
  std::vector<size_t> live_;
};

void Grammar::write(Chooser& chooser, ScoredText& out) const {
  GrammarWriter writer(*this, chooser, out);
  writer.write(rules_.front(), false);
  writer.fill_certain();
}

}  // namespace tril
