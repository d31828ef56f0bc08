#include "train/data/grammar.h"

#include <cmath>
#include <map>
#include <string>

#include "core/base/check.h"
#include "support/catch.h"

namespace tril {
namespace {

// Two options that begin alike, a third that recalls, and words that share letters.
constexpr const char* kSmall = R"(
text = the {pet}. | 2* the {pet} ran. | a {pet=pet}, <Pet>!
pet = cat | 3* cow
)";

// Every text it can write, with its probability, worked out by hand.
const std::map<std::string, double> kSmallTexts = {{"the cat.", 1 / 16.0},     {"the cow.", 3 / 16.0},
                                                   {"the cat ran.", 2 / 16.0}, {"the cow ran.", 6 / 16.0},
                                                   {"a cat, Cat!", 1 / 16.0},  {"a cow, Cow!", 3 / 16.0}};

double probability_of_prefix(const std::string& prefix) {
  double sum = 0;
  for (const auto& [text, probability] : kSmallTexts)
    if (text.starts_with(prefix)) sum += probability;
  return sum;
}

ScoredText write_one(const char* source, uint64_t seed = 1) {
  SeededChooser chooser(seed);
  ScoredText out;
  Grammar(source).write(chooser, out);
  return out;
}

// Always takes the option with this number.
class Nth final : public Chooser {
 public:
  explicit Nth(size_t n) : n_(n) {}
  size_t choose(std::span<const Candidate>) override { return n_; }

 private:
  size_t n_;
};

std::string refusal(const char* source) {
  try {
    (void)write_one(source);
  } catch (const Error& error) { return error.what(); }
  return "no error";
}

TEST_CASE("grammar: every character's probability equals the one counted over all texts") {
  const Grammar grammar(kSmall);
  SeededChooser chooser(3);
  std::map<std::string, int> seen;
  for (int i = 0; i < 200; ++i) {
    ScoredText out;
    grammar.write(chooser, out);
    REQUIRE(kSmallTexts.count(out.text) == 1);
    REQUIRE(out.nats.size() == out.text.size());
    ++seen[out.text];
    for (size_t at = 0; at < out.text.size(); ++at) {
      const double before = probability_of_prefix(out.text.substr(0, at));
      const double after = probability_of_prefix(out.text.substr(0, at + 1));
      INFO(out.text << " at " << at);
      REQUIRE(std::abs(static_cast<double>(out.nats[at]) - std::log(before / after)) < 1e-6);
    }
  }
  CHECK(seen.size() == kSmallTexts.size());
}

TEST_CASE("grammar: texts come as often as their probability says, and their mean is the entropy") {
  const Grammar grammar(kSmall);
  SeededChooser chooser(11);
  constexpr int kTexts = 40'000;
  std::map<std::string, int> seen;
  double sum = 0;
  for (int i = 0; i < kTexts; ++i) {
    ScoredText out;
    grammar.write(chooser, out);
    ++seen[out.text];
    for (const float nats : out.nats) sum += static_cast<double>(nats);
  }
  double entropy = 0;
  double square = 0;
  for (const auto& [text, p] : kSmallTexts) {
    INFO(text);
    CHECK(std::abs(seen[text] - p * kTexts) < 4 * std::sqrt(p * (1 - p) * kTexts));
    entropy -= p * std::log(p);
    square += p * std::log(p) * std::log(p);
  }
  CHECK(std::abs(sum / kTexts - entropy) < 4 * std::sqrt((square - entropy * entropy) / kTexts));
}

TEST_CASE("grammar: what is certain costs nothing and what is remembered comes back") {
  const ScoredText out = write_one("s = {x=w}[y=sun] and <X>, <y>/\nw = mist\n");
  CHECK(out.text == "mist and Mist, sun\n");
  for (const float nats : out.nats) CHECK(nats == 0.0f);
}

TEST_CASE("grammar: a capital goes to the first letter written, and counts when letters are compared") {
  const Grammar grammar("s = {x=w} {W} <X> {One} {both}.\nw = ann | Apple\none = {w} one\nboth = {W} hat | {W} cup\n");
  Nth chooser(0);
  ScoredText out;
  grammar.write(chooser, out);
  CHECK(out.text.starts_with("ann Ann Ann Ann one A"));
  CHECK(std::abs(out.nats[0] - std::log(2.0f)) < 1e-6f);  // a or A
  for (const size_t capital : {size_t{4}, size_t{12}, size_t{20}}) {
    INFO(capital);
    CHECK(out.text[capital] == 'A');
    CHECK(out.nats[capital] == 0.0f);
    CHECK(std::abs(out.nats[capital + 1] - std::log(2.0f)) < 1e-6f);  // n or p
  }
}

TEST_CASE("grammar: what is recalled with a capital is compared with it") {
  const ScoredText out = write_one("s = {x=w} {z}\nw = ann\nz = <X> sat. | Amy sat.\n");
  CHECK(out.nats[4] == 0.0f);                             // A
  CHECK(std::abs(out.nats[5] - std::log(2.0f)) < 1e-6f);  // n or m
}

TEST_CASE("grammar: refuses a remembered word that begins another, whichever of the two is taken") {
  const Grammar grammar("s = {x=w}{y=w} {z}\nw = sea\nz = <x> | <y>l\n");
  for (const size_t pick : {size_t{0}, size_t{1}}) {
    Nth chooser(pick);
    ScoredText out;
    CHECK_THROWS_WITH(grammar.write(chooser, out),
                      test::contains("grammar rule 'z': expected options of which none begins another, got \"sea\" and "
                                     "\"seal\"; move what they share in front of the choice"));
  }
}

TEST_CASE("grammar: an option that starts with a choice keeps its weight") {
  // P(ab) = 1/2 * 1/3, P(ac) = 1/2 * 2/3, P(ad) = 1/2.
  const Grammar grammar("s = {t} | ad\nt = ab | 2* ac\n");
  const double expected[] = {std::log(2.0), std::log(6.0), std::log(3.0)};
  for (const size_t pick : {size_t{0}, size_t{1}, size_t{2}}) {
    Nth chooser(pick);
    ScoredText out;
    grammar.write(chooser, out);
    const double total = static_cast<double>(out.nats[0]) + static_cast<double>(out.nats[1]);
    INFO(out.text);
    CHECK(out.nats[0] == 0.0f);
    CHECK(std::abs(total - expected[out.text == "ad" ? 0 : out.text == "ab" ? 1 : 2]) < 1e-6);
  }
}

TEST_CASE("grammar: refuses what it could not score, naming the rule") {
  CHECK_THAT(refusal("s = the cat | the cat sat\n"),
             test::contains("grammar rule 's': expected options of which none begins another, "
                            "got \"the cat\" and \"the cat sat\"; move what they share"));
  CHECK_THAT(refusal("s = cat | cat\n"), test::contains("none begins another"));
  CHECK_THAT(refusal("s = {a} | {b}\na = fig | nut\nb = fig tree | plum\n"),
             test::contains("got \"fig\" and \"fig tree\""));
  CHECK_THAT(refusal("s = a {s}\n"), test::contains("grammar rule 's': expected rules that end"));
  CHECK_THAT(refusal("s = a {t}\n"), test::contains("grammar rule 't': expected options, got none"));
  CHECK_THAT(refusal("s = a\nt = b\n"),
             test::contains("grammar rule 't': expected a rule that the first one leads to"));
  CHECK_THAT(refusal("s = a\ns = b\n"), test::contains("expected one definition"));
  CHECK_THAT(refusal("s = {t} <x>\nt = {x=w} | b\nw = c\n"), test::contains("<x> to be remembered on every way"));
  CHECK_THAT(refusal("s = [x=y] | b <x>\n"), test::contains("options that write something"));
}

TEST_CASE("grammar: refuses lines it cannot read") {
  CHECK_THAT(refusal(""), test::contains("grammar: expected at least one rule, got none"));
  CHECK_THAT(refusal("  a | b\n"), test::contains("expected a line `name = options` first"));
  CHECK_THAT(refusal("no equals sign\n"), test::contains("expected a line `name = options`, got \"no equals sign\""));
  CHECK_THAT(refusal("s = a {t\n"), test::contains("expected a closed slot"));
  CHECK_THAT(refusal("s = a {t>\nt = b\n"), test::contains("expected {rule}, {x=rule}, <x> or [x=text], got \"{t>\""));
  CHECK_THAT(refusal("s = a <x=b>\n"), test::contains("got \"<x=b>\""));
  CHECK_THAT(refusal("s = a [x]\n"), test::contains("got \"[x]\""));
  CHECK_THAT(refusal("s = a } b\n"), test::contains("expected plain ASCII text, got \"a } b\""));
  CHECK_THAT(refusal("s = caf\xc3\xa9\n"), test::contains("expected plain ASCII text"));
  CHECK_THAT(refusal("s = a | | b\n"), test::contains("options that write something"));
  for (const char* weight : {"s = 0* a | b\n", "s = x* a | b\n", "s = 99999999999999999999* a | b\n", "s = * a | b\n"})
    CHECK_THAT(refusal(weight), test::contains("expected a weight of 1 or more before *"));
  CHECK_THAT(refusal("s = 281474976710656* a | b\n"), test::contains("expected smaller weights"));
}

TEST_CASE("grammar: refuses a chooser that points past the options") {
  Nth chooser(2);
  ScoredText out;
  CHECK_THROWS_WITH(Grammar("s = a | b\n").write(chooser, out), test::contains("expected an index below 2, got 2"));
}

TEST_CASE("seeded chooser: refuses to choose among nothing") {
  SeededChooser chooser(1);
  CHECK_THROWS_WITH(chooser.choose({}), test::contains("expected candidates with a weight, got none"));
}

}  // namespace
}  // namespace tril
