// A stochastic grammar with a memory, which knows the exact probability of every character it writes.
// A Grammar is owned by whoever made it and never changes: several threads may write from one, each with its own
// Chooser.
//
//   story = {opening} <He> took {a_thing} home.//     a rule; the first one is where writing starts
//   opening =                                         its options, one a line or parted by |
//     In a house by the sea lived {hero}.
//     3* One {weather} morning {hero} woke up early.  three times as likely as the option above
//   hero = {name=girl}[he=she] | {name=boy}[he=he]    {x=rule} also remembers the choice as x, [x=text] only remembers
//
//   {rule}  a choice among that rule's options        <x>  what is remembered as x
//   {Rule} and <X> the same with a capital            /    a line break, _ a space where one would be trimmed
//   A line that starts with # is a remark. Names are of a-z and _; the text is plain ASCII.
//
// Why the probabilities are exact: when a choice is made, the heads of its options (their text up to the first inner
// choice) are known, and none is the beginning of another. So the text shows which option was taken, the text so far
// fixes the whole derivation, and the probability of the next character is the weight of the options that go on with
// it, divided by the weight of those still possible. Where heads do begin one another, the constructor replaces an
// option by one for each outcome of the inner choice that follows, until they part; where they never do, it throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tril {

// Pure ASCII, so that a byte is a character; nats[i] = -ln P(text[i] | text[0..i)).
struct ScoredText {
  std::string text;
  std::vector<float> nats;
};

struct Candidate {
  std::string_view head;
  uint64_t weight;
};

// Makes the choices: at random, or as a test wants them.
class Chooser {
 public:
  virtual ~Chooser() = default;
  [[nodiscard]] virtual size_t choose(std::span<const Candidate> candidates) = 0;
};

// Picks each candidate with probability weight / sum of weights; integers only, so the same picks on every platform.
class SeededChooser final : public Chooser {
 public:
  explicit SeededChooser(uint64_t seed) : state_(seed) {}
  [[nodiscard]] size_t choose(std::span<const Candidate> candidates) override;

 private:
  uint64_t state_;
};

// Not std::toupper: it asks the locale.
[[nodiscard]] constexpr char to_capital(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

class Grammar {
 public:
  explicit Grammar(std::string_view source);

  // Appends one derivation of the first rule. The memory starts empty.
  void write(Chooser& chooser, ScoredText& out) const;

 private:
  friend class GrammarCompiler;
  friend class GrammarWriter;

  enum class Kind : uint8_t { kText, kRecall, kChoose, kCaptureBegin, kCaptureEnd, kAssign };  // the first three write
  struct Piece {
    Kind kind;
    bool capital = false;
    size_t index = 0;       // of the rule (kChoose) or of the memory slot
    std::string text = {};  // of kText and kAssign
  };
  struct Option {
    uint64_t weight = 1;
    std::vector<Piece> pieces = {};
    size_t head_pieces = 0;   // how many pieces are known when the choice is made
    bool fixed_head = false;  // no recall among them: their text is `head`
    std::string head = {};
  };
  struct Rule {
    std::string name;
    std::vector<Option> options;
    uint64_t total = 0;
  };

  std::vector<Rule> rules_;
  std::vector<std::string> memory_names_;
};

}  // namespace tril
