// What an op promises besides the derivative itself.
#include <algorithm>
#include <bit>
#include <cmath>

#include "core/gradcheck/checker.h"

namespace tril::gradchecks {
namespace {

constexpr double kExact = 1e-12;  // sums of the same terms in another order, in f64
constexpr double kCompose = 1e-10;
constexpr double kF32 = 5e-6;                     // 84 roundings
constexpr double kBf16 = 0.02;                    // 10 roundings
constexpr uint64_t kNeverWritten = ~uint64_t{0};  // the NaN that poisoned memory holds

double largest(const Numbers& numbers) {
  double most = 0;
  for (const double value : numbers) most = std::max(most, std::fabs(value));
  return most;
}

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

}  // namespace

// Gradients are filled with NaN before the pass. An element that is still NaN afterwards was either never written, or
// added to instead of overwritten. A second pass, filled with ordinary numbers, tells which.
bool Checker::expect_written() {
  const Pass poisoned = runner_.run({.poison = true});
  bool all = true;
  for (size_t i = 0; i < poisoned.gradients.size(); ++i) {
    const Numbers& gradient = poisoned.gradients[i];
    const auto is_poison = [](double value) { return std::bit_cast<uint64_t>(value) == kNeverWritten; };
    const auto kept = std::count_if(gradient.begin(), gradient.end(), is_poison);
    if (kept == 0) continue;
    all = false;
    const Pass onto = runner_.run({.offsets = true});
    const Numbers offset = offset_of(subject_, i);
    bool added = false;
    for (size_t e = 0; e < gradient.size(); ++e) added |= is_poison(gradient[e]) && onto.gradients[i][e] != offset[e];
    const auto count = static_cast<int64_t>(gradient.size());
    if (added)
      fail(Check::poison, static_cast<int>(i), "backward adds to memory that it should overwrite");
    else
      fail(Check::written, static_cast<int>(i),
           kept == count ? std::string("backward writes nothing into the gradient")
                         : cat("backward leaves ", kept, " of ", count, " elements of the gradient unwritten"));
  }
  return all;
}

void Checker::expect_same_bits(Check check, const PassOptions& options, const char* when) {
  const Pass pass = runner_.run(options);
  const auto compare = [&](const char* of, size_t i, const Numbers& expected, const Numbers& got) {
    int64_t first = -1, count = 0;
    for (size_t e = 0; e < expected.size(); ++e)
      if (e >= got.size() || !same_bits(expected[e], got[e])) {
        ++count;
        if (first < 0) first = static_cast<int64_t>(e);
      }
    if (count == 0) return;
    const auto e = static_cast<size_t>(first);
    fail(check, -1,
         cat(count, " of ", expected.size(), " elements of the ", of, " ", i, " have other bits ", when, ": element ",
             e, " is ", number(expected[e], 16), ", then ", e < got.size() ? number(got[e], 16) : "missing"));
  };
  for (size_t i = 0; i < plain_.outputs.size(); ++i) compare("output", i, plain_.outputs[i], pass.outputs[i]);
  for (size_t i = 0; i < plain_.gradients.size(); ++i)
    if (options.only_input < 0 || options.only_input == static_cast<int>(i))
      compare("gradient of input", i, plain_.gradients[i], pass.gradients[i]);
}

template <class Scale>
double Checker::expect_close(Check check, const char* of, const std::vector<Numbers>& expected,
                             const std::vector<Numbers>& got, double tolerance, Scale&& scale, const char* when) {
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double unit = scale(i);
    int64_t count = 0;
    size_t at = 0;
    double most = -1;
    for (size_t e = 0; e < expected[i].size(); ++e) {
      const double off = e < got[i].size() ? std::fabs(expected[i][e] - got[i][e]) : HUGE_VAL;
      if (!(off <= tolerance * unit)) ++count;  // NaN is off
      if (!(off <= most)) {
        most = off;
        at = e;
      }
    }
    worst = std::max(worst, most > 0 ? most / unit : 0.0);
    if (count > 0)
      fail(check, -1,
           cat(count, " of ", expected[i].size(), " elements of the ", of, " ", i, " differ ", when, ": element ", at,
               " is ", at < got[i].size() ? number(got[i][at]) : "missing", " for ", number(expected[i][at])));
  }
  return worst;
}

void Checker::check_linear() {
  const Pass none = runner_.run({.cotangent_factor = 0.0}), twice = runner_.run({.cotangent_factor = 2.0});
  for (size_t i = 0; i < plain_.gradients.size(); ++i) {
    const Numbers& gradient = plain_.gradients[i];
    const auto zero = [](double value) { return value == 0; };
    if (!std::all_of(none.gradients[i].begin(), none.gradients[i].end(), zero)) {
      fail(Check::linear, static_cast<int>(i),
           "the gradient is not zero where the output's is: backward does not multiply by the gradient of its output");
      facts_.ignores_cotangent = true;
      continue;
    }
    for (size_t e = 0; e < gradient.size(); ++e)
      if (!same_bits(2 * gradient[e], twice.gradients[i][e])) {
        fail(Check::linear, static_cast<int>(i),
             cat("twice the output's gradient does not give twice the gradient: element ", e, " is ",
                 number(twice.gradients[i][e], 16), " for ", number(2 * gradient[e], 16)));
        break;
      }
  }
}

// The gradients from each output alone must add up to those from all outputs. Backward then also runs with outputs that
// nothing depends on, whose gradient is null.
void Checker::check_outputs_alone() {
  if (plain_.outputs.size() < 2) return;
  std::vector<Numbers> sums = plain_.gradients;
  for (Numbers& sum : sums) std::fill(sum.begin(), sum.end(), 0.0);
  for (size_t k = 0; k < plain_.outputs.size(); ++k) {
    const Pass pass = runner_.run({.poison = true, .only_output = static_cast<int>(k)});
    for (size_t i = 0; i < sums.size(); ++i)
      for (size_t e = 0; e < pass.gradients[i].size(); ++e) sums[i][e] += pass.gradients[i][e];
  }
  const auto scale = [&](size_t i) { return largest(plain_.gradients[i]) + 1e-3; };
  expect_close(Check::linear, "gradient of input", plain_.gradients, sums, kExact, scale,
               "from their sum over each output alone");
}

void Checker::check_inputs_alone() {
  if (subject_.of_parameters()) return;
  int varied = 0;
  for (size_t i = 0; i < subject_.inputs.size(); ++i) varied += subject_.varied(i);
  for (size_t i = 0; varied > 1 && i < subject_.inputs.size(); ++i)
    if (plain_.reached[i])
      expect_same_bits(Check::alone, {.poison = true, .only_input = static_cast<int>(i)},
                       "where no other input wants a gradient");
}

void Checker::check_accumulation() {
  const Pass onto = runner_.run({.poison = true, .offsets = true});
  for (size_t i = 0; i < plain_.gradients.size(); ++i) {
    const Numbers &gradient = plain_.gradients[i], &got = onto.gradients[i], offset = offset_of(subject_, i);
    if (gradient.empty()) continue;
    const double unit = largest(gradient) + 1.0;
    int64_t wrong = 0, overwritten = 0, untouched = 0;
    for (size_t e = 0; e < gradient.size(); ++e) {
      wrong += !(std::fabs(got[e] - (offset[e] + gradient[e])) <= kExact * unit);
      overwritten += std::fabs(got[e] - gradient[e]) <= kExact * unit;
      untouched += got[e] == offset[e];
    }
    const auto all = static_cast<int64_t>(gradient.size());
    if (wrong == 0) continue;
    fail(Check::accumulate, static_cast<int>(i),
         overwritten == all ? "backward overwrites a gradient that it should add to"
         : untouched == all ? "backward adds nothing to a gradient that is there already"
                            : cat(wrong, " of ", all, " elements are not what was there plus the gradient"));
  }
  std::vector<Numbers> doubled = plain_.gradients;
  for (Numbers& gradient : doubled)
    for (double& value : gradient) value *= 2;
  if (!found(Check::accumulate))
    expect_close(
        Check::accumulate, "gradient of input", doubled, runner_.run({.backwards = 2}).gradients, kExact,
        [&](size_t i) { return largest(doubled[i]) + 1.0; }, "from twice their value after a second backward");
}

// f32 keeps 24 bits (bf16: 8) of the values that gradients are computed from. These values may be larger than the
// gradients, so the errors of gradients are measured relative to both.
void Checker::check_f32() {
  if (subject_.of_parameters()) return;
  const Pass pass = runner_.run({.dtype = DType::f32, .poison = true});
  double values = 0;
  for (size_t k = 0; k < plain_.outputs.size(); ++k) {
    const Numbers cotangent = cotangent_of(subject_, k, static_cast<int64_t>(plain_.outputs[k].size()));
    for (size_t e = 0; e < cotangent.size(); ++e)
      values = std::max(values, std::fabs(cotangent[e] * plain_.outputs[k][e]));
  }
  const double tolerance = subject_.bf16 ? kBf16 : kF32;
  const char* const when = subject_.bf16 ? "in bf16" : "in f32";
  const auto output_scale = [&](size_t i) { return largest(plain_.outputs[i]); };
  const auto gradient_scale = [&](size_t i) { return largest(plain_.gradients[i]) + values; };
  const double outputs =
      expect_close(Check::f32, "output", plain_.outputs, pass.outputs, tolerance, output_scale, when);
  const double gradients =
      expect_close(Check::f32, "gradient of input", plain_.gradients, pass.gradients, tolerance, gradient_scale, when);
  if (!subject_.bf16) result_.worst_f32 = std::max(outputs, gradients);
  const Pass several = runner_.run({.dtype = DType::f32, .several_threads = true});
  expect_close(Check::threads, "output", pass.outputs, several.outputs, 0.0, output_scale, "in f32 on several threads");
  expect_close(Check::threads, "gradient of input", pass.gradients, several.gradients, 0.0, gradient_scale,
               "in f32 on several threads");
}

void Checker::check_composition() {
  if (!subject_.compose) return;
  const Pass pass = runner_.run({.compose = true});
  expect_close(
      Check::compose, "output", pass.outputs, plain_.outputs, kCompose,
      [&](size_t i) { return largest(pass.outputs[i]) + 1e-3; }, "from the composition");
  std::vector<Numbers> expected = pass.gradients;
  for (size_t i = 0; i < expected.size(); ++i) expected[i].resize(plain_.gradients[i].size(), 0.0);
  expect_close(
      Check::compose, "gradient of input", expected, plain_.gradients, kCompose,
      [&](size_t i) { return largest(expected[i]) + 1e-3; }, "from the composition");
}

}  // namespace tril::gradchecks
