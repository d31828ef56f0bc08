// Public integers that are kept in fewer bits than they come in: what does not fit is refused, never cut.
#include <limits>
#include <set>

#include "core/base/random.h"
#include "core/ops.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace tril;
using namespace tril::test;

namespace {

constexpr int64_t kMost32 = std::numeric_limits<uint32_t>::max();

}  // namespace

TEST_CASE("integers: a step and a first sample have 32 bits, and others are refused") {
  Context context({.threads = 1});
  context.set_step(7, 3);
  for (const int64_t wrong : {int64_t{-1}, kMost32 + 1, (int64_t{1} << 33) + 5, std::numeric_limits<int64_t>::min(),
                              std::numeric_limits<int64_t>::max()}) {
    const std::string got = "expected 0 to 4294967295, got " + std::to_string(wrong);
    CHECK_THROWS_WITH(context.set_step(wrong), contains("step: " + got));
    CHECK_THROWS_WITH(context.set_step(9, wrong), contains("first_sample: " + got));
    CHECK(context.step() == 7);
    CHECK(context.first_sample() == 3);
  }
  context.set_step(kMost32, kMost32);
  CHECK(context.step() == kMost32);
  CHECK(context.first_sample() == kMost32);
}

TEST_CASE("integers: samples of a step beyond 32 bits are refused where random numbers are drawn by them") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = tape.variable<double>({2, 64}, noise<double>(128, 1)),
               w = tape.constant<double>({64}, noise<double>(64, 2)),
               qkv = tape.variable<double>({2, 1, 6}, noise<double>(12, 3));
  context.set_step(0, kMost32);  // has room for one
  const std::string got = "expected samples up to 4294967295 of the step's whole batch, got 2 from 4294967295 on";
  CHECK_THROWS_WITH(dropout(x, 0.5), contains("dropout: " + got));
  CHECK_THROWS_WITH(add_layer_norm(x, x, w, {}, 0.5), contains("add_layer_norm: " + got));
  CHECK_THROWS_WITH(attention(qkv, {.dropout = 0.5}), contains("attention: " + got));
  CHECK(dropout(slice(x, 0, 0, 1), 0.5).count() == 64);
  context.set_step(0, kMost32 - 1);
  CHECK(dropout(x, 0.5).count() == 128);
}

TEST_CASE("integers: random blocks stay different beyond 32 bits of their counter") {
  const RandomKey key{.seed = 3, .step = 1, .stream = 2};
  const auto block = [&](int64_t index) {
    std::array<uint32_t, kRandomBlock> words{};
    random_block(key, 5, index, words.data());
    return words;
  };
  std::set<std::array<uint32_t, kRandomBlock>> seen;
  constexpr int64_t kTurn = int64_t{1} << 28;
  for (int64_t turn = 0; turn < 20; ++turn)
    for (const int64_t index : {int64_t{0}, int64_t{1}, kTurn - 1})
      CHECK(seen.insert(block(turn * kTurn + index)).second);
  for (int64_t turn = 33; turn < 40; ++turn) CHECK(seen.insert(block(int64_t{1} << turn)).second);
}

TEST_CASE("integers: a number of threads is checked before it is cut") {
  for (const int64_t wrong : {int64_t{-1}, int64_t{1025}, (int64_t{1} << 32) + 1}) {
    ContextOptions options;
    options.threads = wrong;
    CHECK_THROWS_WITH(Context(options), contains("threads: expected 1 to 1024, or 0 for as many as there are, got " +
                                                 std::to_string(wrong)));
  }
  Context context({.threads = 2});
  for (const int64_t wrong : {int64_t{-1}, int64_t{0}, (int64_t{1} << 32) + 1})
    CHECK_THROWS_WITH(context.use_threads(wrong), contains("got " + std::to_string(wrong)));
  context.use_threads(1);
  CHECK(context.threads() == 1);
}

TEST_CASE("integers: an axis is checked before it is cut") {
  const Shape shape{7, 8};
  for (const int64_t wrong : {int64_t{1} << 32, -(int64_t{1} << 32), (int64_t{1} << 33) + 1}) {
    CHECK_THROWS_WITH(shape[wrong], contains("shape: expected an axis of (7, 8), got " + std::to_string(wrong)));
    CHECK_THROWS_WITH(shape.with(wrong, 1), contains("got " + std::to_string(wrong)));
    CHECK_THROWS_WITH(shape.count(wrong, wrong + 1), contains("got " + std::to_string(wrong)));
  }
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = tape.variable<double>({2, 3}, noise<double>(6, 1));
  constexpr int64_t kFar = int64_t{1} << 32;
  CHECK_THROWS_WITH(sum(x, {kFar}), contains("sum: expected axes of shape (2, 3), from -2 to 1, got 4294967296"));
  CHECK_THROWS_WITH(max(x, {-kFar}), contains("max: expected axes of shape (2, 3), from -2 to 1, got -4294967296"));
  CHECK_THROWS_WITH(softmax(x, kFar), contains("softmax: expected an axis"));
  CHECK_THROWS_WITH(log_softmax(x, kFar + 1), contains("log_softmax: expected an axis"));
  CHECK_THROWS_WITH(concat({x, x}, kFar), contains("concat: expected an axis"));
  CHECK_THROWS_WITH(slice(x, kFar, 0, 1), contains("slice: expected an axis"));
  CHECK_THROWS_WITH(slice(x, 0, kFar, kFar), contains("slice: expected 0 <= begin <= end <= 2"));
  CHECK_THROWS_WITH(permute(x, {kFar, 0}), contains("permute: expected each of the 2 axes"));
  CHECK_THROWS_WITH(permute(x, {kFar + 1, kFar}), contains("permute: expected each of the 2 axes"));
  CHECK_THROWS_WITH(reshape(x, {kFar, kFar}), contains("reshape: expected 6 elements"));
  CHECK_THROWS_WITH(attention(tape.constant<double>({1, 1, 6}, noise<double>(6, 1)), {.heads = kFar + 1}),
                    contains("attention: expected"));
}

TEST_CASE("integers: a shape's extents multiply to at most 2^48, in any order and where one is 0") {
  constexpr int64_t kLarge = int64_t{1} << 40;
  for (const Shape& fits : {Shape{0, kLarge}, Shape{kLarge, 0}, Shape{int64_t{1} << 48}, Shape{kLarge, 1 << 8}})
    CHECK(fits.count(0, fits.rank()) == fits.count());
  CHECK_THROWS_WITH((Shape{kLarge, kLarge}), contains("shape: expected at most 2^48 elements"));
  CHECK_THROWS_WITH((Shape{0, kLarge, kLarge}), contains("at most 2^48 elements"));
  CHECK_THROWS_WITH((Shape{kLarge, kLarge, 0}), contains("at most 2^48 elements"));
  CHECK_THROWS_WITH((Shape{std::numeric_limits<int64_t>::max(), 2}), contains("at most 2^48 elements"));
}
