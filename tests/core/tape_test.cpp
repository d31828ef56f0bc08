#include "core/autograd/tape.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/autograd/profile.h"
#include "core/gradcheck/gradcheck.h"
#include "core/ops.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace tril;
using namespace tril::test;

namespace {

// Parameters in one flat buffer, as nn/params.h lays them out.
struct Store {
  std::vector<double> values, gradients;
  std::vector<uint8_t> received;
  std::vector<std::string> names;

  explicit Store(const std::vector<std::pair<std::string, int64_t>>& params) {
    for (const auto& [name, count] : params) {
      offsets_.push_back(static_cast<int64_t>(values.size()));
      bytes_.push_back(offsets_.back() * static_cast<int64_t>(sizeof(double)));
      for (int64_t i = 0; i < count; ++i) values.push_back(0.25 * static_cast<double>(values.size()) - 0.4);
      counts_.push_back(count);
      names.push_back(name);
    }
    gradients.assign(values.size(), -77.0);
    received.assign(names.size(), 0);
  }
  [[nodiscard]] Tensor at(size_t index) {
    Tensor param;
    param.data = values.data() + offsets_[index];
    param.shape = {counts_[index]};
    param.dtype = DType::f64;
    param.slot = static_cast<int32_t>(index);
    return param;
  }
  [[nodiscard]] ParameterGradients binding() {
    return {.values = reinterpret_cast<const std::byte*>(values.data()),
            .gradients = reinterpret_cast<std::byte*>(gradients.data()),
            .bytes = static_cast<int64_t>(values.size() * sizeof(double)),
            .received = received,
            .offsets = bytes_,
            .names = names};
  }

 private:
  std::vector<int64_t> offsets_, bytes_, counts_;
};

Tensor two(Tape& tape) { return tape.variable<double>({2}, {3.0, 4.0}); }

}  // namespace

TEST_CASE("tape: x * x has gradient 2x, and an operand used many times the sum") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = two(tape);
  tape.backward(sum(x * x));
  CHECK(values_of<double>(tape.gradient(x)) == std::vector<double>{6, 8});
  tape.reset();
  const Tensor y = two(tape);
  tape.backward(sum(y * y + scale(y, 3.0) + y));
  CHECK(values_of<double>(tape.gradient(y)) == std::vector<double>{10, 12});
  tape.reset();
  const Tensor z = two(tape);
  tape.backward(sum(concat({z, z, z}, 0)));
  CHECK(values_of<double>(tape.gradient(z)) == std::vector<double>{3, 3});
}

TEST_CASE("tape: gradients of shared operands are right, with and without poison") {
  const auto require_right = [](const char* label, const std::vector<Shape>& shapes, const SampleFunction& run) {
    Sample sample{.label = label, .run = run};
    for (const Shape& shape : shapes) sample.inputs.push_back({.shape = shape});
    const GradcheckResult result = gradcheck("function", sample, {.most_elements = 12});
    INFO(result.report());
    CHECK(result.verdict() == Verdict::passed);
  };
  require_right("x * x + x", {{3}}, [](auto in) { return std::vector{in[0] * in[0] + in[0]}; });
  require_right("three consumers", {{4}}, [](auto in) {
    const Tensor x = tanh(in[0]);
    return std::vector{exp(x), x * x, sum(sigmoid(x))};
  });
  require_right("a residual chain of 50", {{3, 4}, {4, 4}, {4}}, [](auto in) {
    Tensor x = in[0];
    for (int i = 0; i < 50; ++i) x = x + scale(tanh(linear(layer_norm(x, in[2]), in[1])), 0.1);
    return std::vector{x};
  });
  require_right("a chain that doubles", {{2}}, [](auto in) {
    Tensor x = in[0];
    for (int i = 0; i < 10; ++i) x = scale(x + x, 0.5) + scale(x, 1e-2);
    return std::vector{x};
  });
  require_right("through views", {{2, 6}}, [](auto in) {
    const Tensor a = reshape(in[0], {3, 4}), b = reshape(in[0], {4, 3});
    return std::vector{matmul(a, b), reshape(a * a, {12})};
  });
  require_right("a tied weight", {{5, 4}}, [](auto in) {
    const Tensor ids = in[0].tape->template constant<int32_t>({3}, {4, 0, 4});
    return std::vector{linear(tanh(embedding(ids, in[0])), in[0])};
  });
}

TEST_CASE("tape: memory is used anew, and gives the same bits in every pass") {
  Context context({.threads = 4});
  Tape tape(context);
  const std::vector<float> numbers = noise<float>(6 * 8, 1), weights = noise<float>(8 * 8, 2);
  std::vector<float> first;
  for (int pass = 0; pass < 100; ++pass) {
    tape.reset();
    const Tensor x = tape.variable<float>({6, 8}, numbers), w = tape.variable<float>({8, 8}, weights);
    Tensor y = x;
    for (int i = 0; i < 5; ++i) y = y + gelu(linear(y, w));
    tape.backward(mean(y * x));
    const std::vector<float> gradient = values_of<float>(tape.gradient(w));
    if (pass == 0) first = gradient;
    REQUIRE(same_bits(first, gradient));
  }
}

TEST_CASE("tape: a tensor from before a reset is refused, by the op's name") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = two(tape);
  const Tensor loss = sum(x);
  tape.reset();
  const Tensor fresh = two(tape);
  CHECK_THROWS_WITH(exp(x), contains("exp: expected tensors of the current pass, got one of shape (2) made before its "
                                     "tape was reset"));
  CHECK_THROWS_WITH(fresh + x, contains("add: expected tensors of the current pass"));
  CHECK_THROWS_WITH(tape.backward(loss), contains("backward: expected a tensor of the current pass"));
  CHECK_THROWS_WITH(tape.gradient(x), contains("gradient: expected a tensor of the current pass"));
  CHECK_THROWS_WITH(tape.keep_gradient(x), contains("keep_gradient"));
}

TEST_CASE("tape: operands on two tapes, and none at all, are refused") {
  Context context({.threads = 1}), other({.threads = 1});
  Tape tape(context), second(other);
  CHECK_THROWS_WITH(two(tape) * two(second), contains("mul: expected operands on one tape, got operands on two"));
  CHECK_THROWS_WITH(second.backward(sum(two(tape))), contains("backward: expected a tensor of this tape"));
  Store store({{"w", 2}});
  CHECK_THROWS_WITH(exp(store.at(0)), contains("exp: expected at least one operand on a tape"));
  Tensor unmade;
  unmade.shape = {2};
  unmade.dtype = DType::f64;
  CHECK_THROWS_WITH(two(tape) + unmade, contains("add: expected a tensor, got an empty one that was never made"));
}

TEST_CASE("tape: one context serves one tape at a time") {
  Context context({.threads = 1});
  Tape first(context), second(context);
  const Tensor x = two(first);
  CHECK_THROWS_WITH(two(second), contains("variable: expected a context that no other tape is using"));
  CHECK_THROWS_WITH(second.constant<float>({1}, {1.0f}), contains("constant: expected a context"));
  const float outside = 1.0f;
  CHECK_THROWS_WITH(exp(second.view({1}, DType::f32, &outside)), contains("exp: expected a context"));
  CHECK(exp(x).count() == 2);
  first.reset();
  CHECK(exp(two(second)).count() == 2);
  second.reset();
  {
    Tape third(context);
    (void)two(third);
  }
  CHECK(exp(two(first)).count() == 2);
}

TEST_CASE("tape: backward needs a scalar or a cotangent of the right shape") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = two(tape), y = exp(x);
  CHECK_THROWS_WITH(tape.backward(y), contains("backward: expected a loss with one element, got shape (2)"));
  CHECK_THROWS_WITH(tape.backward(y, tape.constant<double>({3}, {1, 1, 1})),
                    contains("expected a cotangent of f64 (2), got f64 (3)"));
  CHECK_THROWS_WITH(tape.backward(y, tape.constant<float>({2}, {1, 1})), contains("got f32 (2)"));
  tape.backward(y, tape.constant<double>({2}, {1, -2}));
  CHECK(values_of<double>(tape.gradient(x)) == std::vector<double>{std::exp(3.0), -2 * std::exp(4.0)});
  CHECK_THROWS_WITH(tape.backward(sum(tape.constant<double>({2}, {1, 2}))),
                    contains("expected a tensor that depends on a variable or a bound parameter"));
}

TEST_CASE("tape: values must fit their shape") {
  Context context({.threads = 1});
  Tape tape(context);
  CHECK_THROWS_WITH(tape.variable<double>({3}, {1.0}), contains("variable: expected 3 values for shape (3), got 1"));
  CHECK_THROWS_WITH(tape.constant<int32_t>({2, 2}, {1, 2, 3}), contains("constant: expected 4 values"));
  CHECK_THROWS_WITH(tape.variable<int32_t>({1}, {1}), contains("variable: expected f32, f64 or bf16, got i32"));
  CHECK_THROWS_WITH(tape.view({2}, DType::f32, nullptr), contains("view: expected memory to look at"));
  CHECK_THROWS_WITH(two(tape).ptr<float>(), contains("expected a view as f64, got a view as f32"));
  CHECK_THROWS_WITH(two(tape).item(), contains("item: expected a tensor with one floating-point element"));
}

TEST_CASE("tape: a parameter that receives no gradient is named, unless that is allowed") {
  Context context({.threads = 1});
  Store store({{"layer.weight", 2}, {"layer.bias", 2}, {"head", 2}});
  Tape tape(context);
  tape.bind(store.binding());
  const Tensor x = tape.constant<double>({2}, {1, 2});
  CHECK_THROWS_WITH(tape.backward(sum(x * store.at(0))),
                    contains("backward: expected a gradient for every parameter, got none for layer.bias, head"));
  CHECK(store.gradients[2] == -77.0);
  tape.backward(sum(x * store.at(0)), {.allow_unused = true});
  CHECK(tape.has_gradient(store.at(0)));
  CHECK_FALSE(tape.has_gradient(store.at(1)));
  CHECK_THROWS_WITH(tape.gradient(store.at(1)), contains("gradient: expected a tensor that received a gradient"));
  CHECK(store.gradients == std::vector<double>{2, 4, 0, 0, 0, 0});
}

TEST_CASE("tape: a binding has an offset and a name for each parameter") {
  Context context({.threads = 1});
  Store store({{"a", 2}, {"b", 1}});
  Tape tape(context);
  ParameterGradients binding = store.binding();
  binding.offsets = {};
  CHECK_THROWS_WITH(tape.bind(binding), contains("bind: expected an offset and a name for each of 2 parameters"));
  binding = store.binding();
  binding.names = binding.names.first(1);
  CHECK_THROWS_WITH(tape.bind(binding), contains("got 2 and 1"));
}

TEST_CASE("tape: a parameter of another store has no gradient here") {
  Context context({.threads = 1});
  Store bound({{"a", 2}}), other({{"b", 2}});
  Tape tape(context);
  tape.bind(bound.binding());
  tape.backward(sum(two(tape) * bound.at(0)));
  CHECK(tape.has_gradient(bound.at(0)));
  CHECK_FALSE(tape.has_gradient(other.at(0)));
  CHECK_THROWS_WITH(tape.gradient(other.at(0)), contains("that received none"));
}

TEST_CASE("tape: parameters of another store are refused") {
  Context context({.threads = 1});
  Store store({{"w", 2}}), other({{"v", 2}});
  Tape tape(context);
  tape.bind(store.binding());
  CHECK_THROWS_WITH(tape.constant<double>({2}, {1, 2}) * other.at(0),
                    contains("mul: expected a parameter of the store that is bound"));
}

TEST_CASE("tape: gradients of parameters are overwritten first and added to afterwards, over passes") {
  Context context({.threads = 1});
  Store store({{"w", 2}});
  Tape tape(context);
  tape.bind(store.binding());
  const auto pass = [&](double a, double b) {
    tape.reset();
    tape.backward(sum(tape.constant<double>({2}, {a, b}) * store.at(0)));
  };
  pass(1, 2);
  CHECK(store.gradients == std::vector<double>{1, 2});
  pass(10, 20);
  CHECK(store.gradients == std::vector<double>{11, 22});
  store.received[0] = 0;
  pass(5, 6);
  CHECK(store.gradients == std::vector<double>{5, 6});
}

TEST_CASE("tape: a second backward on the same tape adds") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = two(tape), loss = sum(exp(x));
  tape.backward(loss);
  const std::vector<double> once = values_of<double>(tape.gradient(x));
  tape.backward(loss);
  CHECK(values_of<double>(tape.gradient(x)) == std::vector<double>{2 * once[0], 2 * once[1]});
}

TEST_CASE("tape: what keeps its gradient passes each backward's own on") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = two(tape), kept = exp(x), other = sum(x), loss = sum(kept);
  tape.keep_gradient(kept);
  for (const double times : {1.0, 2.0, 3.0}) {
    tape.backward(loss);
    CHECK(values_of<double>(tape.gradient(kept)) == std::vector<double>{times, times});
    CHECK(values_of<double>(tape.gradient(x)) == std::vector<double>{times * std::exp(3.0), times * std::exp(4.0)});
  }
  const double before = values_of<double>(tape.gradient(x))[0];
  tape.backward(other);
  CHECK(values_of<double>(tape.gradient(x))[0] == before + 1);
  CHECK(values_of<double>(tape.gradient(kept)) == std::vector<double>{3, 3});
}

TEST_CASE("tape: a cotangent must be there, and of this pass") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor old = two(tape);
  tape.reset();
  const Tensor x = two(tape), y = exp(x);
  Tensor empty = y;
  empty.tape = nullptr;
  empty.slot = -1;
  empty.data = nullptr;
  CHECK_THROWS_WITH(tape.backward(y, empty), contains("backward: expected a tensor, got an empty one"));
  CHECK_THROWS_WITH(tape.backward(y, old), contains("backward: expected tensors of the current pass"));
  tape.backward(y, x);
  CHECK(values_of<double>(tape.gradient(x)) == std::vector<double>{3 * std::exp(3.0), 4 * std::exp(4.0)});
}

TEST_CASE("tape: dropout is that of the step in which it was recorded") {
  const auto gradient_at = [](const std::function<void(Context&)>& meanwhile) {
    Context context({.threads = 1});
    context.set_step(5, 2);
    Tape tape(context);
    const Tensor x = tape.variable<double>({4, 50}, noise<double>(200, 1)),
                 qkv = tape.variable<double>({2, 7, 6}, noise<double>(84, 2)),
                 branch = tape.variable<double>({4, 50}, noise<double>(200, 3)),
                 weight = tape.constant<double>({50}, std::vector<double>(50, 1.0));
    const Tensor y = add(sum(dropout(x, 0.5)), add(sum(attention(qkv, {.heads = 1, .dropout = 0.5})),
                                                   sum(add_layer_norm(x, branch, weight, {}, 0.5).sum)));
    meanwhile(context);
    tape.backward(y);
    std::vector<double> all;
    for (const Tensor& variable : {x, qkv, branch})
      for (const double value : values_of<double>(tape.gradient(variable))) all.push_back(value);
    return all;
  };
  const std::vector<double> expected = gradient_at([](Context&) {});
  CHECK(std::count(expected.begin(), expected.end(), 0.0) > 50);  // of the branch alone
  CHECK(gradient_at([](Context& context) { context.set_step(6, 2); }) == expected);
  CHECK(gradient_at([](Context& context) { context.set_step(5, 9); }) == expected);
}

TEST_CASE("tape: dropout stays out of an evaluation, whichever operand is on the tape") {
  Context context({.threads = 1});
  Tape tape(context, Tape::Mode::evaluate);
  std::vector<double> numbers(2 * 7 * 4), weights = {1, 1, 1, 1};
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::sin(static_cast<double>(i));
  Tensor outside;
  outside.data = numbers.data();
  outside.shape = {2, 7, 4};
  outside.dtype = DType::f64;
  const Tensor inside = tape.constant<double>({2, 7, 4}, numbers), weight = tape.constant<double>({4}, weights);
  CHECK(values_of<double>(attention(outside, inside, inside, {.heads = 2, .dropout = 0.5})) ==
        values_of<double>(attention(inside, inside, inside, {.heads = 2})));
  CHECK(values_of<double>(add_layer_norm(outside, inside, weight, {}, 0.5).sum) ==
        values_of<double>(add(inside, inside)));
}

TEST_CASE("tape: without a binding parameters are constants") {
  Context context({.threads = 1});
  Store store({{"w", 2}});
  Tape tape(context);
  const Tensor x = two(tape);
  tape.backward(sum(x * store.at(0)));
  CHECK(values_of<double>(tape.gradient(x)) == store.values);
  CHECK(store.gradients == std::vector<double>{-77, -77});
}

TEST_CASE("tape: the gradient of a tensor in the middle is kept on request") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = two(tape), middle = exp(x), kept = scale(middle, 2.0);
  tape.keep_gradient(kept);
  tape.backward(sum(kept * kept));
  CHECK(values_of<double>(tape.gradient(kept)) == std::vector<double>{4 * std::exp(3.0), 4 * std::exp(4.0)});
  CHECK_FALSE(tape.has_gradient(middle));
  CHECK_THROWS_WITH(tape.gradient(middle), contains("kept with keep_gradient"));
}

TEST_CASE("tape: constants get no gradient, and what depends on them alone is not recorded") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor c = tape.constant<double>({2}, {1, 2});
  (void)(exp(c) * c);
  CHECK(tape.records() == 0);
  const Tensor x = two(tape);
  tape.backward(sum(exp(c) * x));
  CHECK(tape.records() == 2);
  CHECK_FALSE(tape.has_gradient(c));
}

TEST_CASE("tape: an evaluating tape computes the same, records nothing and has no backward") {
  Context context({.threads = 1});
  std::vector<double> trained;
  {
    Tape tape(context);
    trained = values_of<double>(gelu(two(tape)));
  }
  Tape tape(context, Tape::Mode::evaluate);
  const Tensor x = two(tape), y = gelu(x);
  CHECK(same_bits(values_of<double>(y), trained));
  CHECK(tape.records() == 0);
  CHECK_FALSE(tape.training());
  CHECK_THROWS_WITH(tape.backward(sum(y)), contains("backward: expected a tape in train mode"));
}

TEST_CASE("tape: an op that fails leaves the tape usable") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = two(tape);
  CHECK_THROWS_AS(x + tape.constant<double>({3}, {1, 2, 3}), Error);
  tape.backward(sum(x * x));
  CHECK(values_of<double>(tape.gradient(x)) == std::vector<double>{6, 8});
}

TEST_CASE("tape: a profile counts calls, FLOPs and bytes by op and shape, and only while it is set") {
  Context context({.threads = 1});
  Tape tape(context);
  const std::vector<float> values(6, 0.5f);
  const auto pass = [&] {
    const Tensor x = tape.variable<float>({2, 3}, values), w = tape.variable<float>({2, 3}, values);
    const Tensor y = linear(x, w, Tensor{}), z = linear(y, tape.variable<float>({1, 2}, {1.0f, 2.0f}), Tensor{});
    tape.backward(sum(z * z));
    tape.reset();
  };
  Profile profile;
  pass();
  CHECK(profile.rows().empty());
  context.profile = &profile;
  pass();
  pass();
  context.profile = nullptr;
  pass();
  std::vector<std::string> names;
  for (const OpTime& row : profile.rows()) names.push_back(row.name());
  REQUIRE(names ==
          std::vector<std::string>{"linear (2, 3) (2, 3)", "linear (2, 2) (1, 2)", "mul (2, 1) (2, 1)", "sum (2, 1)"});
  const OpTime& first = profile.rows()[0];
  CHECK(first.calls == 2);
  CHECK(first.flops == 2 * 3 * (2 * 2 * 3 * 2));  // two passes, backward twice forward
  // Forward x, w and y; backward x and w read, their gradients written, y's gradient read.
  CHECK(first.bytes == 2 * 4 * ((6 + 6 + 4) + (6 + 6 + 6 + 6 + 4)));
  CHECK(first.forward > 0);
  CHECK(first.backward > 0);
  CHECK(profile.rows()[2].flops == 0);
}

TEST_CASE("tape: the FLOPs of attention count what its queries look at") {
  Context context({.threads = 1});
  Tape tape(context);
  Profile profile;
  context.profile = &profile;
  const std::vector<float> values(2 * 5 * 4, 0.5f);
  const Tensor q = tape.variable<float>({2, 3, 4}, std::span(values).first(24)),
               k = tape.variable<float>({2, 5, 4}, values);
  (void)attention(q, k, k, {.heads = 2, .causal = false});
  (void)attention(q, q, q, {.heads = 2, .causal = true});
  (void)attention(k, q, q, {.heads = 2, .causal = true});
  CHECK(profile.rows()[0].flops == 4 * 2 * 4 * 15);
  CHECK(profile.rows()[1].flops == 4 * 2 * 4 * 6);
  CHECK(profile.rows()[2].flops == 4 * 2 * 4 * (6 + 2 * 3));
}

TEST_CASE("tape: prints its records, a line each") {
  Context context({.threads = 1});
  Tape tape(context);
  (void)sum(exp(two(tape)));
  CHECK(tape.to_string() == "exp -> %1 f64 (2) from %0\nsum -> %2 f64 () from %1\n");
}
