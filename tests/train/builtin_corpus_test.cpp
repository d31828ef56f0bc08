#include "train/data/builtin_corpus.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "support/catch.h"
#include "train/data/corpus.h"

namespace tril {
namespace {

using test::Approx;

// Chooses as another chooser does, and works out, for every character of the head taken, the whole distribution of the
// next character from the candidates alone.
class Watcher final : public Chooser {
 public:
  Watcher(uint64_t seed, const ScoredText& out) : inner_(seed), out_(out) {}

  size_t choose(std::span<const Candidate> candidates) override {
    const size_t pick = inner_.choose(candidates);
    const std::string_view head = candidates[pick].head;
    for (size_t at = 0; at < head.size(); ++at) {
      std::array<double, 128> weight{};
      double total = 0;
      for (const Candidate& candidate : candidates) {
        if (!candidate.head.starts_with(head.substr(0, at))) continue;
        if (candidate.head.size() <= at) begins_another = true;
        if (candidate.head.size() <= at) continue;
        weight[static_cast<size_t>(candidate.head[at])] += static_cast<double>(candidate.weight);
        total += static_cast<double>(candidate.weight);
      }
      double sum = 0;
      for (const double w : weight) sum += w / total;
      worst_sum = std::max(worst_sum, std::abs(sum - 1));
      probability[out_.text.size() + at] = weight[static_cast<size_t>(head[at])] / total;
    }
    return pick;
  }

  std::map<size_t, double> probability;  // by place in the text; elsewhere the character is certain
  double worst_sum = 0;
  bool begins_another = false;

 private:
  SeededChooser inner_;
  const ScoredText& out_;
};

uint64_t fnv1a(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::vector<std::string> stories_of(const std::string& text) {
  std::vector<std::string> stories;
  size_t begin = 0;
  for (size_t end = text.find("\n\n"); end != std::string::npos; end = text.find("\n\n", begin)) {
    stories.push_back(text.substr(begin, end - begin));
    begin = end + 2;
  }
  return stories;
}

std::set<std::string> words_of(const std::string& story) {
  std::set<std::string> words;
  std::string word;
  for (const char c : story + ' ') {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      word += c;
    } else {
      words.insert(std::exchange(word, {}));
    }
  }
  return words;
}

TEST_CASE("built-in corpus: the same bytes on every platform") {
  const BuiltinCorpus corpus = builtin_corpus();
  CHECK(corpus.text.size() == 1'000'000);
  CHECK(corpus.nats.size() == corpus.text.size());
  CHECK(fnv1a(corpus.text) == 0xeb7461ed4422dac0u);
  CHECK(builtin_corpus(kBuiltinCorpusSeed, 5'000).text == corpus.text.substr(0, 5'000));
  CHECK(builtin_corpus(kBuiltinCorpusSeed + 1, 5'000).text != corpus.text.substr(0, 5'000));
}

TEST_CASE("built-in corpus: plain ASCII, with a finite cost for each character") {
  const BuiltinCorpus corpus = builtin_corpus();
  CHECK(
      std::all_of(corpus.text.begin(), corpus.text.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
  CHECK(std::all_of(corpus.nats.begin(), corpus.nats.end(), [](float n) { return std::isfinite(n) && n >= 0; }));
}

TEST_CASE("built-in corpus: the costs are those of the choices it was made by") {
  const Grammar grammar(builtin_stories());
  ScoredText out;
  Watcher watcher(5, out);
  for (int story = 0; story < 100; ++story) grammar.write(watcher, out);
  CHECK(watcher.worst_sum < 1e-12);
  CHECK(!watcher.begins_another);
  size_t wrong = 0;
  for (size_t i = 0; i < out.text.size(); ++i) {
    const auto found = watcher.probability.find(i);
    const double p = found == watcher.probability.end() ? 1 : found->second;
    if (!(std::abs(static_cast<double>(out.nats[i]) + std::log(p)) < 1e-5)) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(watcher.probability.size() > 1'000);
  ScoredText plain;
  SeededChooser chooser(5);
  while (plain.text.size() < out.text.size()) grammar.write(chooser, plain);
  CHECK(plain.text == out.text);
}

TEST_CASE("built-in corpus: mean_nats is the mean over the part asked for") {
  BuiltinCorpus corpus;
  corpus.text = "abcd";
  corpus.nats = {1, 2, 3, 6};
  CHECK(mean_nats(corpus, 0, 4) == 3.0);
  CHECK(mean_nats(corpus, 1, 3) == 2.5);
  CHECK(mean_nats(corpus, 3, 4) == 6.0);
  CHECK_THROWS_WITH(mean_nats(corpus, 2, 2), test::contains("mean_nats: expected 0 <= begin < end <= 4, got begin 2"));
  CHECK_THROWS_AS(mean_nats(corpus, -1, 2), Error);
  CHECK_THROWS_AS(mean_nats(corpus, 0, 5), Error);
}

TEST_CASE("built-in corpus: the best possible loss is that of the characters a model is measured on") {
  const std::optional<BuiltinCorpus> corpus = builtin_corpus(kBuiltinCorpusSeed, 10'000);
  Text text;
  text.name = "stories";
  text.bytes = corpus->text;
  const Dataset data(text, Tokenizer::bytes(), 0.1, 64);
  CHECK(best_possible_loss(corpus, data, 64).value() == Approx(mean_nats(*corpus, 9'001, 10'000)).epsilon(1e-12));
  // The one window of so few is the middle of the part's 16.
  CHECK(best_possible_loss(corpus, data, 64, 50).value() ==
        Approx(mean_nats(*corpus, 9'001 + 8 * 64, 9'001 + 9 * 64)).epsilon(1e-12));
  CHECK_FALSE(best_possible_loss(std::nullopt, data, 64).has_value());
}

TEST_CASE("built-in corpus: leaves enough to chance, and as much in every part") {
  const BuiltinCorpus corpus = builtin_corpus();
  const double whole = mean_nats(corpus, 0, 1'000'000);
  CHECK(whole > 0.6);
  CHECK(whole < 0.8);
  CHECK(std::abs(mean_nats(corpus, 900'000, 1'000'000) / whole - 1) < 0.02);
}

TEST_CASE("built-in corpus: refuses a length that is not one") {
  CHECK_THROWS_WITH(builtin_corpus(1, 0), test::contains("built-in corpus: expected a length from 1 to"));
  CHECK_THROWS_AS(builtin_corpus(1, -5), Error);
  CHECK_THROWS_AS(builtin_corpus(1, int64_t{1} << 40), Error);
}

TEST_CASE("built-in corpus: no two stories are the same") {
  const std::vector<std::string> stories = stories_of(builtin_corpus().text);
  CHECK(stories.size() > 2'000);
  CHECK(std::set<std::string>(stories.begin(), stories.end()).size() == stories.size());
}

TEST_CASE("built-in corpus: stories keep to simple rules of English") {
  const std::set<std::string> hers = {"she", "She", "her", "Her", "girl"};
  const std::set<std::string> his = {"he", "He", "him", "his", "His", "boy"};
  for (const std::string& story : stories_of(builtin_corpus(kBuiltinCorpusSeed, 200'000).text)) {
    INFO(story);
    const std::set<std::string> words = words_of(story);
    const auto uses = [&](const std::set<std::string>& some) {
      return std::any_of(some.begin(), some.end(), [&](const std::string& word) { return words.count(word) > 0; });
    };
    REQUIRE(uses(hers) != uses(his));  // one hero, one set of pronouns
    REQUIRE(std::count(story.begin(), story.end(), '"') % 2 == 0);
    REQUIRE(std::count(story.begin(), story.end(), '\n') == 1);
    REQUIRE(story.find("  ") == std::string::npos);
    REQUIRE(std::string_view(".!?\"").find(story.back()) != std::string_view::npos);
    for (const char* vowel : {" a a", " a e", " a i", " a o", " a u", "A a", "A e", "A i", "A o", "A u"})
      REQUIRE(story.find(vowel) == std::string::npos);
    for (size_t i = 2; i < story.size(); ++i)
      if (story[i - 1] == ' ' && story[i - 2] == '.')
        REQUIRE((story[i] == '"' || (story[i] >= 'A' && story[i] <= 'Z')));
  }
}

}  // namespace
}  // namespace tril
