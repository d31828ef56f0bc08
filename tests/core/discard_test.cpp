// Tensors that are discarded after their last reader: their memory serves what comes next, and backward makes them
// again.
#include <cmath>

#include "core/gradcheck/gradcheck.h"
#include "core/ops.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace tril;
using namespace tril::test;

namespace {

constexpr int64_t kRows = 64, kWidth = 1024;

// A chain of gates, each of which makes four tensors that only the next op and backward read.
Tensor chain(const Tensor& x, int gates, bool discards) {
  Tensor y = tanh(x);  // so that no dropout is the first op
  for (int i = 0; i < gates; ++i) {
    const int64_t mark = x.tape->mark();
    const Tensor dropped = dropout(y, 0.25), left = tanh(dropped), right = sigmoid(scale(dropped, 0.5));
    y = left * right;
    if (discards) x.tape->discard_since(mark, {y});
  }
  return y;
}

struct Result {
  std::vector<float> y, gradient;
  int64_t bytes = 0;
};

Result run(int gates, bool discards, bool poison = false) {
  Context context({.threads = 2, .seed = 4});
  context.poison = poison;
  Result result;
  for (int pass = 0; pass < 3; ++pass) {
    Tape tape(context);
    const Tensor x = tape.variable<float>({kRows, kWidth}, noise<float>(kRows * kWidth, 1));
    const Tensor y = chain(x, gates, discards);
    tape.backward(sum(y * y));
    result = {values_of<float>(y), values_of<float>(tape.gradient(x)), context.memory().bytes()};
  }
  return result;
}

}  // namespace

TEST_CASE("discard: gradients have the same bits, with poison in what is given back too") {
  const Result kept = run(6, false), discarded = run(6, true), poisoned = run(6, true, true);
  CHECK((discarded.y == kept.y));
  CHECK((discarded.gradient == kept.gradient));
  CHECK((poisoned.y == kept.y));
  CHECK((poisoned.gradient == kept.gradient));
}

TEST_CASE("discard: memory grows by what is kept alone") {
  constexpr int64_t kTensor = kRows * kWidth * 4;
  const int64_t few = run(20, true).bytes, many = run(60, true).bytes;
  CHECK(many - few >= 40 * kTensor);
  CHECK(many - few <= 40 * kTensor + (int64_t{2} << 20));  // memory comes in huge pages
  CHECK(run(60, false).bytes > 3 * many);
}

TEST_CASE("discard: nothing is asked of the system after the first passes, and addresses stay") {
  Context context({.threads = 2});
  Tape tape(context);
  std::vector<const void*> addresses;
  int64_t before = 0;
  for (int pass = 0; pass < 4; ++pass) {
    tape.reset();
    const Tensor x = tape.variable<float>({kRows, kWidth}, noise<float>(kRows * kWidth, 1));
    const Tensor y = chain(x, 5, true);
    tape.backward(sum(y));
    addresses.push_back(y.data);
    if (pass == 1) before = context.allocations();
  }
  CHECK(context.allocations() == before);
  CHECK(addresses[3] == addresses[2]);
}

TEST_CASE("discard: a tape can be walked twice") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = tape.variable<float>({4, 8}, noise<float>(32, 1));
  const Tensor loss = sum(chain(x, 3, true));
  tape.backward(loss);
  std::vector<float> twice = values_of<float>(tape.gradient(x));
  for (float& value : twice) value *= 2;
  tape.backward(loss);
  CHECK(difference(values_of<float>(tape.gradient(x)), twice) < 1e-5);
}

TEST_CASE("discard: of an op with two results, each can be discarded") {
  for (const int which : {0, 1, 2}) {
    std::vector<float> expected;
    for (const bool discards : {false, true}) {
      Context context({.threads = 1});
      context.poison = true;
      Tape tape(context);
      const Tensor x = tape.variable<float>({4, 8}, noise<float>(32, 1)),
                   weight = tape.variable<float>({8}, noise<float>(8, 2));
      const AddLayerNorm both = add_layer_norm(tanh(x), exp(x), weight);
      const Tensor y = tanh(both.sum) * both.normed;
      if (discards && which != 1) tape.discard(both.sum);
      if (discards && which != 0) tape.discard(both.normed);
      tape.backward(sum(y));
      if (discards) CHECK((values_of<float>(tape.gradient(x)) == expected));
      expected = values_of<float>(tape.gradient(x));
    }
  }
}

TEST_CASE("discard: variables, constants and shared memory stay; what is gone is refused by name") {
  Context context({.threads = 1});
  context.poison = true;
  Tape tape(context);
  const Tensor x = tape.variable<float>({2, 2}, {1, 2, 3, 4}), constant = tape.constant<float>({2}, {1, 2});
  const Tensor y = exp(x), view = reshape(y, {4}), z = tanh(y);
  for (const Tensor& tensor : {x, constant, y, view, z, z}) tape.discard(tensor);
  CHECK(values_of<float>(x) == std::vector<float>{1, 2, 3, 4});
  CHECK(values_of<float>(constant) == std::vector<float>{1, 2});
  CHECK(y.ptr<float>()[0] == Approx(std::exp(1.0f)));
  CHECK_NOTHROW(exp(y));
  CHECK_THROWS_WITH(exp(z), contains("exp: expected tensors that are still there, got one of shape (2, 2) that was "
                                     "discarded"));
  Context other_context({.threads = 1});
  Tape other(other_context);
  CHECK_THROWS_WITH(other.discard(y), contains("discard: expected a tensor of this tape, got another's"));
}

TEST_CASE("discard: on an evaluating tape the memory serves at once") {
  Context context({.threads = 1});
  Tape tape(context, Tape::Mode::evaluate);
  const Tensor x = tape.constant<float>({4, 8}, noise<float>(32, 1)), y = exp(x);
  const void* const memory = y.data;
  tape.discard(y);
  CHECK(tanh(x).data == memory);
  CHECK_THROWS_WITH(tanh(y), contains("that was discarded"));
}

TEST_CASE("discard: the first op that is not finite is found though its result is gone") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = tape.variable<float>({2}, {-1, 1});
  const Tensor bad = log(x), after = tanh(bad);
  tape.discard(bad);
  (void)exp(after);
  CHECK(tape.first_non_finite() == "log -> f32 (2)");
}
