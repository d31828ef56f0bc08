// A tensor that outlived its pass or its tape is told apart from one that is valid, wherever it is used.
#include <functional>
#include <memory>
#include <optional>

#include "core/ops.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace tril;
using namespace tril::test;

namespace {

Tensor two(Tape& tape) { return tape.variable<double>({2}, {3.0, 4.0}); }
Tensor one(Tape& tape) { return tape.variable<double>({1}, {3.0}); }

const std::string kDestroyed = "expected tensors of the current pass, got one of shape (2) whose tape was destroyed";

}  // namespace

TEST_CASE("tape life: a tensor whose tape was destroyed is refused by the op's name") {
  Context context({.threads = 1});
  auto tape = std::make_unique<Tape>(context);
  const Tensor x = two(*tape);
  tape.reset();
  CHECK_THROWS_WITH(exp(x), contains("exp: " + kDestroyed) && contains("keep a tape as long as its tensors"));
  CHECK_THROWS_WITH(x + x, contains("add: " + kDestroyed));
  CHECK_THROWS_WITH(sum(x), contains("sum: " + kDestroyed));
  CHECK_THROWS_WITH(concat({x, x}, 0), contains("concat: " + kDestroyed));
  CHECK_THROWS_WITH(reshape(x, {2, 1}), contains("reshape: " + kDestroyed));
  CHECK_THROWS_WITH(dropout(x, 0.5), contains("dropout: " + kDestroyed));
  CHECK_THROWS_WITH(attention(x, x, x), contains("attention: " + kDestroyed));
  CHECK_THROWS_WITH(add_layer_norm(x, x, x), contains("add_layer_norm: " + kDestroyed));
  CHECK_THROWS_WITH(x.ptr<double>(), contains("tensor: " + kDestroyed));
  CHECK_THROWS_WITH(x.item(), contains("item: " + kDestroyed));
  CHECK_THROWS_WITH(x.tape->records(), contains("expected one on a tape, got one whose tape was destroyed"));
  CHECK(x.tape != nullptr);
  CHECK(x.tape.get() == nullptr);
}

TEST_CASE("tape life: it is refused by another tape, as any operand") {
  Context context({.threads = 1});
  std::optional<Tape> tape(std::in_place, context);
  const Tensor old = two(*tape);
  tape.reset();
  Tape next(context);
  const Tensor x = two(next);
  CHECK_THROWS_WITH(x * old, contains("mul: " + kDestroyed));
  CHECK_THROWS_WITH(old * x, contains("mul: " + kDestroyed));
  CHECK_THROWS_WITH(next.backward(x, old), contains("backward: " + kDestroyed));
  CHECK_THROWS_WITH(next.backward(old, x), contains("backward: " + kDestroyed));
  CHECK_THROWS_WITH(next.gradient(old), contains("gradient: " + kDestroyed));
  CHECK_THROWS_WITH(next.has_gradient(old), contains("gradient: " + kDestroyed));
  CHECK_THROWS_WITH(next.keep_gradient(old), contains("keep_gradient: " + kDestroyed));
  CHECK_THROWS_WITH(next.discard(old), contains("discard: " + kDestroyed));
  CHECK_THROWS_WITH(next.discard_since(0, {old}), contains("discard_since: " + kDestroyed));
  next.backward(sum(x * x));
  CHECK(values_of<double>(next.gradient(x)) == std::vector<double>{6, 8});
}

TEST_CASE("tape life: another tape at the same address is not taken for it") {
  Context context({.threads = 1});
  std::optional<Tape> tape(std::in_place, context);
  const Tape* const address = &*tape;
  std::vector<Tensor> old;
  for (int i = 0; i < 5; ++i) {
    old.push_back(two(*tape));
    if (i % 2 == 1) tape->reset();
    tape.emplace(context);
    REQUIRE(&*tape == address);
    const Tensor fresh = tape->variable<double>({2}, {7.0, 7.0});
    for (const Tensor& x : old) {
      CHECK_THROWS_WITH(exp(x), contains("exp: " + kDestroyed));
      CHECK_THROWS_WITH(fresh + x, contains("add: " + kDestroyed));
      CHECK_THROWS_WITH(x.ptr<double>(), contains(kDestroyed));
      CHECK(x.tape.get() == nullptr);
    }
    CHECK(exp(fresh).count() == 2);
  }
}

TEST_CASE("tape life: what lives on other tapes meanwhile stays valid") {
  Context context({.threads = 1}), other({.threads = 1});
  Tape keeps(context);
  const Tensor kept = two(keeps);
  std::vector<std::unique_ptr<Tape>> tapes;
  std::vector<Tensor> tensors;
  for (int i = 0; i < 20; ++i) {
    tapes.push_back(std::make_unique<Tape>(i % 3 == 0 ? other : context));
    if (i % 3 == 0) {
      tensors.push_back(two(*tapes.back()));
      tapes.back()->reset();  // gives the context to the next
    }
  }
  for (size_t i = 0; i < tapes.size(); i += 2) tapes[i].reset();
  for (const Tensor& x : tensors) CHECK_THROWS_WITH(exp(x), contains("exp: expected tensors of the current pass"));
  CHECK(values_of<double>(kept) == std::vector<double>{3, 4});
  keeps.backward(sum(kept * kept));
  CHECK(values_of<double>(keeps.gradient(kept)) == std::vector<double>{6, 8});
}

TEST_CASE("tape life: after a reset ptr and item throw, also of a gradient") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = one(tape), loss = sum(x * x);
  tape.backward(loss);
  const Tensor gradient = tape.gradient(x);
  CHECK(gradient.item() == 6.0);
  tape.reset();
  const std::string reset = "got one of shape (1) made before its tape was reset; make it again after reset()";
  CHECK_THROWS_WITH(x.ptr<double>(), contains("tensor: expected tensors of the current pass, " + reset));
  CHECK_THROWS_WITH(x.item(), contains("item: expected tensors of the current pass, " + reset));
  CHECK_THROWS_WITH(gradient.item(), contains(reset));
  CHECK_THROWS_WITH(loss.item(), contains("made before its tape was reset"));
  CHECK_THROWS_WITH(one(tape) * gradient, contains("mul: expected tensors of the current pass, " + reset));
  CHECK(one(tape).item() == 3.0);
}

TEST_CASE("tape life: a gradient is a constant for the ops of its pass") {
  Context context({.threads = 1}), other({.threads = 1});
  Tape tape(context), second(other);
  const Tensor x = two(tape), y = two(second);
  tape.backward(sum(x * x));
  const Tensor gradient = tape.gradient(x);
  CHECK(values_of<double>(x * gradient) == std::vector<double>{18, 32});
  CHECK(values_of<double>(gradient * x) == std::vector<double>{18, 32});
  CHECK(values_of<double>(scale(gradient, 0.5)) == std::vector<double>{3, 4});
  CHECK(values_of<double>(gradient * y) == std::vector<double>{18, 32});
  CHECK_THROWS_WITH(tape.gradient(gradient), contains("gradient: expected a tensor of this tape, got a gradient"));
}

TEST_CASE("tape life: an evaluation's tensors end with it, too") {
  Context context({.threads = 1});
  std::vector<Tensor> all;
  {
    Tape tape(context, Tape::Mode::evaluate);
    all = {two(tape), exp(two(tape))};
  }
  for (const Tensor& x : all) {
    CHECK_THROWS_WITH(exp(x), contains("exp: " + kDestroyed));
    CHECK_THROWS_WITH(dropout(x, 0.5), contains("dropout: " + kDestroyed));
  }
  CHECK_THROWS_WITH(Tensor{}.item(), contains("item: expected a tensor, got an empty one"));
}
