// Proof of the gradient checker: ops broken on purpose, each of which it must find and name, and honest ones it must
// let pass.
#include "core/gradcheck/gradcheck.h"

#include <algorithm>

#include "core/mutant.h"
#include "core/ops.h"
#include "core/ops/softmax.h"
#include "support/catch.h"

using namespace tril;
using namespace tril::test;

namespace {

struct NoOptions {};

template <class Attrs = NoOptions>
Sample sample_of(const OpInfo& op, const std::vector<Shape>& shapes, const Attrs& attrs = {},
                 SampleInput::Values values = SampleInput::Values::positive) {
  Sample sample{.label = "mutant"};
  for (const Shape& shape : shapes) sample.inputs.push_back({.shape = shape, .values = values});
  sample.run = [&op, attrs](auto in) { return std::vector{apply(op, in, &attrs)}; };
  return sample;
}

GradcheckResult check(const Sample& sample) {
  return gradcheck("mutant", sample, {.seed = 7, .command = "tril gradcheck mutant --sample 0"});
}

const Finding* find(const GradcheckResult& result, Check check) {
  const auto found = std::find_if(result.findings.begin(), result.findings.end(),
                                  [&](const Finding& finding) { return finding.check == check; });
  return found == result.findings.end() ? nullptr : &*found;
}

// Requires that this check fails, with this diagnosis.
void require_found(const GradcheckResult& result, Check check, const std::string& diagnosis) {
  INFO(result.report());
  REQUIRE(result.verdict() == Verdict::failed);
  const Finding* const finding = find(result, check);
  REQUIRE(finding != nullptr);
  CHECK_THAT(finding->diagnosis, contains(diagnosis));
  CHECK_THAT(finding->report, contains("reproduce: tril gradcheck mutant --sample 0"));
}

// Requires that this check fails and no other.
void require_only(const GradcheckResult& result, Check check) {
  INFO(result.report());
  for (const Finding& finding : result.findings) CHECK(finding.check == check);
}

void times(Numbers& numbers, double factor) {
  for (double& number : numbers) number *= factor;
}

void honest(const Backward&, std::vector<Numbers>&) {}
void double_it(const Backward&, std::vector<Numbers>& g) { times(g[0], 2.0); }
void flip_sign(const Backward&, std::vector<Numbers>& g) { times(g[0], -1.0); }
void slightly_off(const Backward&, std::vector<Numbers>& g) { times(g[0], 1 + 1e-6); }
void zero_all(const Backward&, std::vector<Numbers>& g) { times(g[0], 0.0); }
void zero_one(const Backward&, std::vector<Numbers>& g) { g[0][3] = 0; }
void nan_one(const Backward&, std::vector<Numbers>& g) { g[0][2] = std::nan(""); }
void swap_two(const Backward&, std::vector<Numbers>& g) { std::swap(g[0], g[1]); }
void shift(const Backward&, std::vector<Numbers>& g) { std::rotate(g[0].begin(), g[0].end() - 1, g[0].end()); }
void shift_back(const Backward&, std::vector<Numbers>& g) { std::rotate(g[0].begin(), g[0].begin() + 1, g[0].end()); }
void wrong_last_column(const Backward& op, std::vector<Numbers>& g) {
  const auto width = static_cast<size_t>(op.shape(0).last());
  for (size_t i = width - 1; i < g[0].size(); i += width) g[0][i] *= 1.5;
}
void wrong_triangle(const Backward& op, std::vector<Numbers>& g) {
  const int64_t width = op.shape(0).last();
  for (int64_t i = 0; i < op.shape(0).count(); ++i)
    if (i % width > i / width % op.shape(0)[-2]) g[0][static_cast<size_t>(i)] *= 3.0 + static_cast<double>(i);
}
void transpose(const Backward& op, std::vector<Numbers>& g) {
  const Numbers before = g[0];
  const auto rows = static_cast<size_t>(op.shape(0)[-2]), columns = static_cast<size_t>(op.shape(0)[-1]);
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j) g[0][j * rows + i] = before[i * columns + j];
}
// softmax without the inner product of the weights and their gradients.
void drop_inner_product(const Backward& op, std::vector<Numbers>& g) {
  for (size_t i = 0; i < g[0].size(); ++i) g[0][i] = number_at(op.out(0), i) * number_at(op.dout(0), i);
}
// Leaves one row out of a sum over rows.
void drop_first_row(const Backward& op, std::vector<Numbers>& g) {
  for (size_t i = 0; i < g[1].size(); ++i) g[1][i] -= number_at(op.dout(0), i);
}
// As if a mean had not been subtracted.
void add_row_sums(const Backward& op, std::vector<Numbers>& g) {
  const auto width = static_cast<size_t>(op.shape(0).last());
  for (size_t first = 0; first < g[0].size(); first += width) {
    double sum = 0;
    for (size_t i = first; i < first + width; ++i) sum += number_at(op.dout(0), i);
    for (size_t i = first; i < first + width; ++i) g[0][i] += sum;
  }
}
void ignore_dout(const Backward& op, std::vector<Numbers>& g) {
  for (size_t i = 0; i < g[0].size(); ++i) g[0][i] = number_at(op.out(0), i);
}
void read_undeclared(const Backward& op, std::vector<Numbers>& g) { g[0][0] += 0 * number_at(op.in(0), 0); }
void depend_on_threads(const Backward& op, std::vector<Numbers>& g) { times(g[0], op.threads() > 1 ? 1 + 1e-15 : 1); }
void wrong_alone(const Backward& op, std::vector<Numbers>& g) { times(g[0], op.din(1) ? 1.0 : 2.0); }
void wrong_in_f32(const Backward& op, std::vector<Numbers>& g) {
  times(g[0], op.dout(0).dtype == DType::f32 ? 1 + 1e-4 : 1.0);
}
void not_again(const Backward&, std::vector<Numbers>& g) {
  static double calls = 0;
  times(g[0], 1 + 1e-15 * ++calls);
}
void spoil_output(const Backward& op, std::vector<Numbers>&) {
  if (op.out(0).dtype == DType::f64) op.out(0).ptr<double>()[0] += 1;
}

void write_nothing(const Gradient&, const Numbers&) {}
void write_all_but_last(const Gradient& target, const Numbers& gradient) {
  write_well(target, Numbers(gradient.begin(), gradient.end() - 1));
}
void write_over(const Gradient& target, const Numbers& gradient) {
  write_well({.tensor = target.tensor, .accumulate = false}, gradient);
}
void write_first_time_only(const Gradient& target, const Numbers& gradient) {
  if (!target.accumulate) write_well(target, gradient);
}
// Adds even where it should overwrite, so to memory that may hold anything.
void always_add(const Gradient& target, const Numbers& gradient) {
  write_well({.tensor = target.tensor, .accumulate = true}, gradient);
}

}  // namespace

TEST_CASE("gradcheck: an op whose wrapper changes nothing passes") {
  const GradcheckResult result = check(sample_of(mutant<"exp", honest>(), {{2, 9}}));
  INFO(result.report());
  CHECK(result.verdict() == Verdict::passed);
  CHECK(result.findings.empty());
  CHECK(result.elements() == 18);
  CHECK(result.worst() < 1e-10);
}

TEST_CASE("gradcheck: finds a factor, a sign and a part in a million") {
  const auto run = [](const OpInfo& op) { return check(sample_of(op, {{3, 4}})); };
  const GradcheckResult doubled = run(mutant<"tanh", double_it>());
  require_found(doubled, Check::gradient, "a factor +2.000000e+00 is too much");
  require_only(doubled, Check::gradient);
  require_found(run(mutant<"tanh", flip_sign>()), Check::gradient, "the sign is flipped");
  require_found(run(mutant<"tanh", slightly_off>()), Check::gradient, "a factor +1.000001e+00");
}

TEST_CASE("gradcheck: finds a dropped term") {
  const GradcheckResult softmax = check(sample_of(mutant<"softmax", drop_inner_product>(), {{3, 5}}, SoftmaxAttrs{-1}));
  require_found(softmax, Check::gradient, "a term is missing or wrong");
  require_only(softmax, Check::gradient);
  const GradcheckResult bias = check(sample_of(mutant<"add", drop_first_row>(), {{4, 3}, {3}}));
  require_found(bias, Check::gradient, "a term is missing or wrong");
  CHECK(find(bias, Check::gradient)->input == 1);
  require_found(check(sample_of(mutant<"log", add_row_sums>(), {{3, 5}})), Check::gradient,
                "off by the same amount along each row");
}

TEST_CASE("gradcheck: finds a transpose, of a square and of an oblong") {
  for (const Shape& shape : {Shape{4, 4}, Shape{2, 5}, Shape{1, 3, 4}}) {
    const GradcheckResult result = check(sample_of(mutant<"exp", transpose>(), {shape}));
    require_found(result, Check::gradient, "transposed");
    require_only(result, Check::gradient);
  }
}

TEST_CASE("gradcheck: finds an element that is one off") {
  require_found(check(sample_of(mutant<"exp", shift>(), {{9}})), Check::gradient, "shifted by one along axis 0");
  require_found(check(sample_of(mutant<"exp", shift_back>(), {{9}})), Check::gradient, "shifted by one along axis 0");
  require_found(check(sample_of(mutant<"exp", shift>(), {{3, 5}})), Check::gradient, "shifted by one along axis 1");
}

TEST_CASE("gradcheck: finds the gradients of two inputs swapped") {
  const GradcheckResult result = check(sample_of(mutant<"mul", swap_two>(), {{3, 3}, {3, 3}}));
  require_found(result, Check::gradient, "it is the gradient of input 1: the two are swapped");
}

TEST_CASE("gradcheck: finds zeros where there should be none") {
  const GradcheckResult one = check(sample_of(mutant<"exp", zero_one>(), {{2, 4}}));
  require_found(one, Check::gradient, "one element is left out");
  CHECK_THAT(one.report(), contains("wrong elements: only [0,3]"));
  CHECK_THAT(one.report(), contains("--input 0 --element 0,3 --seed 7"));
  require_found(check(sample_of(mutant<"exp", zero_all>(), {{2, 4}})), Check::gradient, "zero everywhere");
}

TEST_CASE("gradcheck: finds NaN, also in an element that is not varied") {
  require_found(check(sample_of(mutant<"exp", nan_one>(), {{2, 4}})), Check::gradient, "not finite");
  const GradcheckResult last = gradcheck("mutant", sample_of(mutant<"exp", nan_one>(), {{8}}),
                                         {.input = 0, .element = {7}, .command = "tril gradcheck mutant --sample 0"});
  require_found(last, Check::gradient, "not finite");
}

TEST_CASE("gradcheck: finds a gradient that forgets the output's") {
  const GradcheckResult result = check(sample_of(mutant<"exp", ignore_dout>(), {{2, 4}}));
  require_found(result, Check::linear, "does not multiply by the gradient of its output");
  require_found(result, Check::gradient, "does not multiply by the gradient of its output");
}

TEST_CASE("gradcheck: finds what backward does to memory") {
  const auto run = [](const OpInfo& op) { return check(sample_of(op, {{2, 4}})); };
  require_found(run(mutant<"exp", honest, write_nothing>()), Check::written, "writes nothing into the gradient");
  require_found(run(mutant<"exp", honest, write_all_but_last>()), Check::written, "leaves 1 of 8 elements");
  require_found(run(mutant<"exp", honest, write_over>()), Check::accumulate, "overwrites a gradient");
  require_only(run(mutant<"exp", honest, write_over>()), Check::accumulate);
  require_found(run(mutant<"exp", honest, write_first_time_only>()), Check::accumulate, "adds nothing");
  require_found(run(mutant<"exp", honest, always_add>()), Check::poison, "adds to memory that it should overwrite");
  require_found(run(mutant<"exp", spoil_output>()), Check::unchanged, "output 0 by backward is overwritten");
}

TEST_CASE("gradcheck: finds what depends on what it should not") {
  const auto run = [](const OpInfo& op) { return check(sample_of(op, {{2, 4}})); };
  require_found(run(mutant<"exp", read_undeclared>()), Check::runs,
                "expected infer to declare backward_reads_input(0)");
  require_found(run(mutant<"exp", depend_on_threads>()), Check::threads, "other bits on several threads");
  require_found(run(mutant<"exp", not_again>()), Check::repeatable, "other bits the second time");
  require_found(check(sample_of(mutant<"mul", wrong_alone>(), {{3}, {3}})), Check::alone,
                "where no other input wants a gradient");
  const GradcheckResult f32 = run(mutant<"exp", wrong_in_f32>());
  require_found(f32, Check::f32, "differ in f32");
  require_only(f32, Check::f32);
}

TEST_CASE("gradcheck: tells where the wrong elements lie") {
  CHECK_THAT(check(sample_of(mutant<"exp", wrong_last_column>(), {{3, 5}})).report(),
             contains("exactly those with index 4 on axis 1"));
  CHECK_THAT(check(sample_of(mutant<"exp", wrong_triangle>(), {{4, 4}})).report(), contains("all have column > row"));
  CHECK_THAT(check(sample_of(mutant<"exp", double_it>(), {{4, 4}})).report(), contains("every element"));
}

TEST_CASE("gradcheck: a failure's report holds all that is needed to look further") {
  const std::string report = check(sample_of(mutant<"exp", double_it>(), {{2, 4}})).report();
  for (const char* part :
       {"FAIL gradcheck  mutant", "input=0 (2, 4)", "dtype=f64", "check=gradient", "seed=7", "8 of 8 elements wrong",
        "analytic", "(step +", "Richardson", "±", "ratio      +2.000000e+00", "one-sided", "no kink here", "worst 5:",
        "backward twice: identical", "inputs kept: yes", "reproduce: tril gradcheck mutant --sample 0 --input 0"})
    CHECK_THAT(report, contains(part));
}

TEST_CASE("gradcheck: a kink or a value that is not finite is inconclusive, never a pass") {
  const auto at = [](const std::vector<double>& values, const SampleFunction& run) {
    Sample sample{.label = "given", .inputs = {{.shape = {static_cast<int64_t>(values.size())}}}, .run = run};
    sample.inputs[0].given = values;
    const GradcheckResult result = gradcheck("function", sample);
    INFO(result.report());
    CHECK(result.verdict() == Verdict::inconclusive);
    return result.report();
  };
  CHECK_THAT(at({1, 0, -1}, [](auto in) { return std::vector{relu(in[0])}; }), contains("a kink"));
  CHECK_THAT(at({2, 1, 2}, [](auto in) { return std::vector{max(in[0])}; }), contains("a kink"));
  // Differences and backward agree on 0 in the middle of |x|.
  CHECK_THAT(at({1, 0}, [](auto in) { return std::vector{relu(in[0]) + relu(scale(in[0], -1.0))}; }),
             contains("a kink"));
  CHECK_THAT(at({1, 0}, [](auto in) { return std::vector{log(in[0])}; }), contains("not finite"));
  CHECK_THAT(at({0x1p-40}, [](auto in) { return std::vector{log(in[0])}; }), contains("not finite nearby"));
}

TEST_CASE("gradcheck: a kink nearby is not taken for one") {
  Sample sample{.label = "near", .inputs = {{.shape = {3}}}, .run = [](auto in) { return std::vector{relu(in[0])}; }};
  sample.inputs[0].given = {0.01, -1e-3, 1e-4};
  const GradcheckResult result = gradcheck("relu", sample);
  INFO(result.report());
  CHECK(result.verdict() == Verdict::passed);
}

TEST_CASE("gradcheck: compares with the composition") {
  Sample sample{
      .label = "composed", .inputs = {{.shape = {3, 4}}}, .run = [](auto in) { return std::vector{silu(in[0])}; }};
  sample.compose = [](auto in) { return std::vector{in[0] * sigmoid(in[0])}; };
  CHECK(gradcheck("silu", sample).verdict() == Verdict::passed);
  sample.compose = [](auto in) { return std::vector{in[0] * sigmoid(scale(in[0], 1.0 + 1e-8))}; };
  const GradcheckResult result = gradcheck("silu", sample);
  REQUIRE(find(result, Check::compose) != nullptr);
  CHECK_THAT(find(result, Check::compose)->diagnosis, contains("from the composition"));
}

TEST_CASE("gradcheck: an error sample must throw, and with its text") {
  Sample sample{.label = "bad", .inputs = {{.shape = {2, 3}}, {.shape = {2, 4}}}, .run = [](auto in) {
                  return std::vector{add(in[0], in[1])};
                }};
  sample.error = "expected shapes that broadcast";
  CHECK(gradcheck("add", sample).verdict() == Verdict::passed);
  sample.error = "some other text";
  CHECK_THAT(gradcheck("add", sample).report(), contains("got \"add: expected shapes that broadcast"));
  sample.inputs[1].shape = {2, 3};
  CHECK_THAT(gradcheck("add", sample).report(), contains("got none"));
  CHECK(gradcheck("add", sample).verdict() == Verdict::failed);
}

TEST_CASE("gradcheck: an input that is not varied needs a reason, and one that is must be reached") {
  Sample sample{.label = "ids", .inputs = {SampleInput::of_tokens({2}, 3), {.shape = {3, 2}}}, .run = [](auto in) {
                  return std::vector{embedding(in[0], in[1])};
                }};
  CHECK(gradcheck("embedding", sample).verdict() == Verdict::passed);
  CHECK(gradcheck("embedding", sample).inputs[0].skipped == "token ids");
  sample.inputs[0].not_varied.clear();
  CHECK_THAT(gradcheck("embedding", sample).report(), contains("whole numbers cannot be varied"));
  const Sample unused{.label = "unused", .inputs = {{.shape = {2}}, {.shape = {2}}}, .run = [](auto in) {
                        return std::vector{exp(in[0])};
                      }};
  CHECK_THAT(gradcheck("exp", unused).report(), contains("the path to it is cut"));
}

TEST_CASE("gradcheck: of a large input it varies a part, the ends included") {
  const Sample sample = sample_of(*find_op("exp"), {{5000}});
  const GradcheckResult result = gradcheck("exp", sample, {.most_elements = 30});
  CHECK(result.verdict() == Verdict::passed);
  REQUIRE(result.elements() == 30);
  CHECK(result.inputs[0].elements.front().element == 0);
  CHECK(result.inputs[0].elements.back().element == 4999);
}

TEST_CASE("gradcheck: options that point nowhere are errors") {
  const Sample sample = sample_of(*find_op("exp"), {{2, 3}});
  CHECK_THROWS_WITH(gradcheck("exp", sample, {.input = 1}), contains("input: expected 0 to 0, got 1"));
  CHECK_THROWS_WITH(gradcheck("exp", sample, {.input = 0, .element = {2, 0}}),
                    contains("element: expected an index into (2, 3), got 2 on axis 0"));
  CHECK_THROWS_WITH(gradcheck("exp", sample, {.input = 0, .element = {1}}), contains("an index into (2, 3)"));
  CHECK_THROWS_WITH(gradcheck("exp", sample, {.element = {1, 1}}), contains("name it with --input"));
}

namespace {

// Two parameters in a flat buffer, as a store lays them out.
struct Parameters {
  std::vector<double> values = {0.5, -1.5, 2.0, 0.25, 1.0, 3.0}, gradients = std::vector<double>(6);
  std::vector<uint8_t> received = {0, 0};
  std::vector<std::string> names = {"first", "second"};
  std::vector<int64_t> offsets = {0, 4 * sizeof(double)};
  [[nodiscard]] CheckedParameter at(int index, int64_t offset, int64_t count) {
    Tensor value;
    value.data = values.data() + offset;
    value.shape = {count};
    value.dtype = DType::f64;
    value.slot = index;
    return {names[static_cast<size_t>(index)], value};
  }
  std::vector<CheckedParameter> all{at(0, 0, 4), at(1, 4, 2)};
  [[nodiscard]] ParameterGradients binding() {
    return {.values = reinterpret_cast<const std::byte*>(values.data()),
            .gradients = reinterpret_cast<std::byte*>(gradients.data()),
            .bytes = static_cast<int64_t>(values.size() * sizeof(double)),
            .received = received,
            .offsets = offsets,
            .names = names};
  }
};

}  // namespace

TEST_CASE("gradcheck: checks a loss of parameters, and puts their values back") {
  Parameters parameters;
  const std::vector<double> before = parameters.values;
  const Tensor a = parameters.all[0].value, b = parameters.all[1].value;
  const auto loss = [&](Tape& tape) {
    const Tensor one = tape.constant<double>({1}, {1.0});
    return sum(tanh(dropout(a * one, 0.3)) * tanh(a * one)) + sum(exp(b * one));
  };
  const GradcheckResult result = gradcheck("loss", parameters.all, parameters.binding(), loss);
  INFO(result.report());
  CHECK(result.verdict() == Verdict::passed);
  CHECK(result.elements() == 6);
  CHECK(parameters.values == before);
}

TEST_CASE("gradcheck: names a parameter that the loss does not reach") {
  Parameters parameters;
  const Tensor a = parameters.all[0].value;
  const auto loss = [&](Tape& tape) { return sum(a * tape.constant<double>({1}, {2.0})); };
  const GradcheckResult result = gradcheck("loss", parameters.all, parameters.binding(), loss);
  REQUIRE(find(result, Check::reached) != nullptr);
  CHECK_THAT(find(result, Check::reached)->report, contains("input=1 second"));
}
