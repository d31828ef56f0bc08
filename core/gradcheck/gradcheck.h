// The room core/gradcheck: whether a backward is the derivative of its forward. This is its only public header.

// The gradient checker: backward against differences of forward in f64, and everything else an op promises. Used by the
// tests and by `tril gradcheck`. It makes its own contexts; call it from any thread, on what no other thread is using.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "core/autograd/op.h"
#include "core/autograd/tape.h"

namespace tril {

// From best to worst. A check that is inconclusive has not passed.
enum class Verdict : uint8_t { passed, inconclusive, failed };

enum class Check : uint8_t {
  runs,        // forward and backward do not throw
  error,       // an error sample throws, with its text
  reached,     // a gradient arrives at every input that is varied
  written,     // backward writes every element of it
  gradient,    // it is the derivative
  poison,      // nothing depends on what memory held before
  unchanged,   // forward leaves its operands, and backward operands and outputs, as they were
  repeatable,  // a second run gives the same bits
  threads,     // the same bits at another number of threads
  linear,      // the gradient is linear in the cotangent
  alone,       // an input gets the same bits if no other wants a gradient
  accumulate,  // gradients are added to what is there
  f32,         // f32 agrees with f64
  compose,     // the op agrees with its composition from simpler ops
};

[[nodiscard]] const char* name_of(Verdict verdict);
[[nodiscard]] const char* name_of(Check check);

struct GradcheckOptions {
  uint64_t seed = 1;               // of values, cotangents, dropout and the choice of elements
  int threads = 3;                 // results are compared with those of one thread
  int64_t most_elements = 200;     // varied per input: a random choice of a larger one, fewer of a huge one
  int input = -1;                  // vary this input alone; -1: all
  std::vector<int64_t> element{};  // vary this element of that input alone
  std::string command{};           // repeats the check: "tril gradcheck attention --sample 3"
};

// One element's derivative. `numeric` is extrapolated from central differences at three steps, each half of the one
// before; `error` estimates how far off it is.
struct ElementCheck {
  int64_t element = 0;  // counted row-major
  double analytic = 0, numeric = 0, error = 0;
  std::array<double, 3> steps{}, differences{};
  double left = 0, right = 0;  // one-sided differences at the last step
  double jump = 0;             // of the derivative, extrapolated to step 0: not 0 at a kink
  double scale = 0;            // what errors are relative to: the sum of the terms' sizes
  Verdict verdict = Verdict::passed;
  std::string reason{};  // why it is inconclusive

  [[nodiscard]] double relative_error() const;
};

struct InputCheck {
  int input = 0;
  std::string name;
  Shape shape;
  std::string skipped{};                 // why it was not varied
  bool reached = false;                  // backward gave it a gradient
  std::vector<double> gradient{};        // from backward, every element
  std::vector<ElementCheck> elements{};  // those that were varied

  [[nodiscard]] int64_t count(Verdict verdict) const;
  [[nodiscard]] const ElementCheck* worst(Verdict verdict) const;  // null if none has it
};

struct Finding {
  Check check = Check::runs;
  Verdict verdict = Verdict::failed;
  int input = -1;         // the one it is about; -1: none in particular
  std::string diagnosis;  // one line
  std::string report;     // the full report, several lines
};

struct GradcheckResult {
  std::string name, label;
  std::vector<InputCheck> inputs{};
  std::vector<Finding> findings{};
  double worst_f32 = 0;  // difference between f32 and f64, relative to their size

  [[nodiscard]] Verdict verdict() const;
  [[nodiscard]] int64_t elements() const;    // that were varied
  [[nodiscard]] double worst() const;        // largest relative error of an element
  [[nodiscard]] std::string report() const;  // of all findings; empty if there are none
};

// Checks a function of tensors: an op's sample, or any other. If the sample has an error text, the function must throw
// an Error that contains it.
[[nodiscard]] GradcheckResult gradcheck(const std::string& name, const Sample& sample,
                                        const GradcheckOptions& options = {});

struct CheckedParameter {
  std::string name;
  Tensor value;  // f64; its numbers are varied in place and put back
};

// Checks a loss as a function of parameters, such as a whole model's. The loss must be the same function every time:
// its random numbers come from the context's seed.
[[nodiscard]] GradcheckResult gradcheck(const std::string& name, const std::vector<CheckedParameter>& parameters,
                                        const ParameterGradients& binding, const std::function<Tensor(Tape&)>& loss,
                                        const GradcheckOptions& options = {});

// One element's values as text, several lines: analytic, each difference, the extrapolation, one-sided.
[[nodiscard]] std::string describe(const ElementCheck& check);
// "[0,1,3]"
[[nodiscard]] std::string index_text(const Shape& shape, int64_t element);

}  // namespace tril
