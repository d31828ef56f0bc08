#include "core/gradcheck/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/gradcheck/checker.h"

namespace tril {
namespace gradchecks {
namespace {

// Varying one element costs a pass over the whole input. So of a large input of n elements only kWork / n are varied,
// but at least kFewest.
constexpr int64_t kWork = 200'000, kFewest = 16;

}  // namespace

bool Checker::found(Check check) const {
  return std::any_of(result_.findings.begin(), result_.findings.end(),
                     [&](const Finding& finding) { return finding.check == check; });
}

void Checker::add(Check check, Verdict verdict, int input, const std::string& diagnosis, const std::string& details) {
  std::string where;
  if (input >= 0) {
    const Input& of = subject_.inputs[static_cast<size_t>(input)];
    where = cat("  input=", input, subject_.of_parameters() ? cat(" ", of.name) : "", " ", of.shape);
  }
  std::string report = cat(verdict == Verdict::failed ? "FAIL" : "INCONCLUSIVE", " gradcheck  ", result_.name, "  \"",
                           result_.label, "\"", where, "  dtype=", check == Check::f32 ? "f32" : "f64",
                           "  check=", name_of(check), "  seed=", options_.seed, "\n");
  report += details.empty() ? cat("  ", diagnosis, "\n") : details;
  if (!options_.command.empty() && details.find("reproduce:") == std::string::npos)
    report += cat("  reproduce: ", options_.command, " --seed ", options_.seed, "\n");
  result_.findings.push_back(
      {.check = check, .verdict = verdict, .input = input, .diagnosis = diagnosis, .report = report});
}

// Throws if the options name an input or an element that does not exist or is not varied.
void Checker::expect_valid_options() const {
  const auto count = static_cast<int>(subject_.inputs.size());
  TRIL_CHECK(options_.input < count, "input", cat("0 to ", count - 1), cat(options_.input));
  TRIL_CHECK(options_.element.empty() || options_.input >= 0, "element", "the input it belongs to", "none",
             "name it with --input");
  if (options_.input < 0) return;
  const Input& input = subject_.inputs[static_cast<size_t>(options_.input)];
  TRIL_CHECK(input.not_varied.empty(), "input", "one that is varied",
             cat(options_.input, ", which is not: ", input.not_varied));
  if (options_.element.empty()) return;
  const auto places = static_cast<int>(options_.element.size());
  TRIL_CHECK(places == input.shape.rank(), "element", cat("an index into ", input.shape), cat(places, " numbers"));
  for (int axis = 0; axis < places; ++axis) {
    const int64_t at = options_.element[static_cast<size_t>(axis)];
    TRIL_CHECK(at >= 0 && at < input.shape[axis], "element", cat("an index into ", input.shape),
               cat(at, " on axis ", axis));
  }
}

std::vector<int64_t> Checker::chosen_elements(size_t input) const {
  if (!options_.element.empty()) {
    int64_t element = 0;
    for (int axis = 0; axis < subject_.inputs[input].shape.rank(); ++axis)
      element = element * subject_.inputs[input].shape[axis] + options_.element[static_cast<size_t>(axis)];
    return {element};
  }
  const int64_t count = subject_.count(input);
  std::set<int64_t> chosen;
  const int64_t most = std::min(options_.most_elements, std::max(kFewest, kWork / std::max<int64_t>(1, count)));
  if (count <= most) {
    for (int64_t e = 0; e < count; ++e) chosen.insert(chosen.end(), e);
  } else {
    chosen = {0, count - 1};
    const RandomKey key{.seed = options_.seed, .step = 1, .stream = static_cast<uint32_t>(input)};
    for (uint32_t draw = 0; static_cast<int64_t>(chosen.size()) < most; ++draw)
      chosen.insert(static_cast<int64_t>(random_uniform(key, 0, draw) * static_cast<double>(count)));
  }
  return {chosen.begin(), chosen.end()};
}

void Checker::measure(Differences& differences, InputCheck& input) {
  const auto at = static_cast<size_t>(input.input);
  input.reached = plain_.reached[at];
  input.gradient = plain_.gradients[at];
  input.gradient.resize(static_cast<size_t>(subject_.count(at)), 0.0);
  if (options_.input >= 0 && options_.input != input.input) return;
  for (const int64_t element : chosen_elements(at))
    input.elements.push_back(differences.check(at, element, input.gradient[static_cast<size_t>(element)]));
}

void Checker::check_derivatives() {
  Numbers cotangent;
  for (size_t k = 0; k < plain_.outputs.size(); ++k) {
    const Numbers part = cotangent_of(subject_, k, static_cast<int64_t>(plain_.outputs[k].size()));
    cotangent.insert(cotangent.end(), part.begin(), part.end());
  }
  Differences differences(runner_, cotangent);
  for (InputCheck& input : result_.inputs)
    if (input.skipped.empty()) measure(differences, input);
  report_derivatives();
}

std::string Checker::facts() const {
  return cat("  backward twice: ", found(Check::repeatable) ? "DIFFERENT" : "identical",
             ".  gradient reached: ", found(Check::reached) ? "NO" : "yes",
             ".  inputs kept: ", found(Check::unchanged) ? "NO" : "yes", ".\n");
}

// The command that repeats the check of one element.
std::string Checker::reproduce(const InputCheck& input, const ElementCheck* element) const {
  if (options_.command.empty() || element == nullptr) return {};
  const std::string index = index_text(input.shape, element->element);
  const std::string inside = index.substr(1, index.size() - 2);
  return cat("  reproduce: ", options_.command, " --input ", input.input,
             inside.empty() ? "" : cat(" --element ", inside), " --seed ", options_.seed, "\n");
}

void Checker::report_derivatives() {
  for (size_t i = 0; i < result_.inputs.size(); ++i) {
    const InputCheck& input = result_.inputs[i];
    if (const std::string diagnosis = diagnose(result_.inputs, i, facts_); !diagnosis.empty()) {
      const std::string elements = element_report(result_.inputs, i, facts_);
      add(Check::gradient, Verdict::failed, input.input, diagnosis,
          cat(elements.empty() ? cat("  ", diagnosis, "\n") : elements, facts(),
              reproduce(input, input.worst(Verdict::failed))));
    }
    if (const ElementCheck* const unclear = input.worst(Verdict::inconclusive); unclear != nullptr)
      add(Check::gradient, Verdict::inconclusive, input.input, unclear->reason,
          cat("  ", input.count(Verdict::inconclusive), " of ", input.elements.size(),
              " elements cannot be decided; the worst at ", index_text(input.shape, unclear->element), "\n",
              describe(*unclear), reproduce(input, unclear)));
  }
}

GradcheckResult Checker::run() {
  expect_valid_options();
  for (size_t i = 0; i < subject_.inputs.size(); ++i) {
    const Input& input = subject_.inputs[i];
    result_.inputs.push_back(
        {.input = static_cast<int>(i), .name = input.name, .shape = input.shape, .skipped = input.not_varied});
    if (!input.floating && input.not_varied.empty())
      fail(Check::reached, static_cast<int>(i), "whole numbers cannot be varied: say why in not_varied");
  }
  if (!result_.findings.empty() || !attempt([&] { plain_ = runner_.run(); })) return result_;
  if (!plain_.changed.empty()) fail(Check::unchanged, -1, cat(plain_.changed, " is overwritten"));
  for (const Numbers& output : plain_.outputs)
    if (!std::all_of(output.begin(), output.end(), [](double y) { return std::isfinite(y); })) {
      add(Check::gradient, Verdict::inconclusive, -1, "the function is not finite");
      return result_;
    }
  bool written = true;
  if (!attempt([&] { written = expect_written(); }) || !written) return result_;
  attempt([&] {
    expect_same_bits(Check::poison, {.poison = true}, "where memory held NaN before");
    expect_same_bits(Check::repeatable, {}, "the second time");
    expect_same_bits(Check::threads, {.several_threads = true}, "on several threads");
    check_linear();
    check_outputs_alone();
    check_inputs_alone();
    check_accumulation();
    check_f32();
    check_composition();
  });
  for (size_t i = 0; i < plain_.reached.size(); ++i)
    if (subject_.varied(i) && !plain_.reached[i])
      fail(Check::reached, static_cast<int>(i), "backward gives it no gradient: the path to it is cut");
  attempt([&] { check_derivatives(); });
  // Findings about the derivative come first: they explain most of the others.
  std::stable_partition(result_.findings.begin(), result_.findings.end(),
                        [](const Finding& finding) { return finding.check == Check::gradient; });
  return result_;
}

namespace {

GradcheckResult check_error(const std::string& name, const Sample& sample, const GradcheckOptions& options) {
  GradcheckResult result{.name = name, .label = sample.label};
  const auto report = [&](const std::string& got) {
    const std::string diagnosis = cat("expected an error with \"", sample.error, "\", got ", got);
    result.findings.push_back({.check = Check::error,
                               .diagnosis = diagnosis,
                               .report = cat("FAIL gradcheck  ", name, "  \"", sample.label, "\"  check=error\n  ",
                                             diagnosis, "\n  reproduce: ", options.command, "\n")});
  };
  Subject subject = subject_of(sample, options.seed);
  Runner runner(subject, 1);
  Numbers outputs;
  try {
    runner.evaluate(outputs);
    report("none");
  } catch (const Error& error) {
    const std::string_view text = error.what();
    if (text.find(sample.error) == std::string_view::npos || text.find('\n') != std::string_view::npos)
      report(cat("\"", text, "\""));
  } catch (const std::exception& error) { report(cat("another kind: ", error.what())); }
  return result;
}

}  // namespace
}  // namespace gradchecks

double ElementCheck::relative_error() const {
  const double off = std::fabs(analytic - numeric);
  return off == 0 ? 0.0 : off / scale;
}

int64_t InputCheck::count(Verdict verdict) const {
  return std::count_if(elements.begin(), elements.end(),
                       [&](const ElementCheck& check) { return check.verdict == verdict; });
}

const ElementCheck* InputCheck::worst(Verdict verdict) const {
  const ElementCheck* most = nullptr;
  for (const ElementCheck& check : elements)
    if (check.verdict == verdict && (most == nullptr || !(check.relative_error() <= most->relative_error())))
      most = &check;
  return most;
}

Verdict GradcheckResult::verdict() const {
  Verdict worst = Verdict::passed;
  for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
  return worst;
}

int64_t GradcheckResult::elements() const {
  int64_t total = 0;
  for (const InputCheck& input : inputs) total += static_cast<int64_t>(input.elements.size());
  return total;
}

double GradcheckResult::worst() const {
  double most = 0;
  for (const InputCheck& input : inputs)
    for (const ElementCheck& check : input.elements)
      if (const double error = check.relative_error(); !(error <= most)) most = std::isnan(error) ? HUGE_VAL : error;
  return most;
}

std::string GradcheckResult::report() const {
  std::string text;
  for (const Finding& finding : findings) text += finding.report;
  return text;
}

GradcheckResult gradcheck(const std::string& name, const Sample& sample, const GradcheckOptions& options) {
  if (!sample.error.empty()) return gradchecks::check_error(name, sample, options);
  return gradchecks::Checker(name, gradchecks::subject_of(sample, options.seed), sample.label, options).run();
}

GradcheckResult gradcheck(const std::string& name, const std::vector<CheckedParameter>& parameters,
                          const ParameterGradients& binding, const std::function<Tensor(Tape&)>& loss,
                          const GradcheckOptions& options) {
  gradchecks::Subject subject{.loss = loss, .binding = binding, .seed = options.seed};
  for (const CheckedParameter& parameter : parameters) {
    TRIL_CHECK(parameter.value.dtype == DType::f64 && parameter.value.is_parameter(), parameter.name,
               "a parameter of f64", cat(parameter.value.dtype));
    subject.inputs.push_back({.name = parameter.name, .shape = parameter.value.shape, .parameter = parameter.value});
  }
  return gradchecks::Checker(name, std::move(subject), "parameters", options).run();
}

}  // namespace tril
