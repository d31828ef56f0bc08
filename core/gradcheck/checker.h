// Inside of the gradient checker: one check of one subject, from its first pass to the findings.
#pragma once

#include <string>
#include <vector>

#include "core/gradcheck/numeric.h"
#include "core/gradcheck/pass.h"
#include "core/gradcheck/report.h"

namespace tril::gradchecks {

class Checker {
 public:
  Checker(const std::string& name, Subject subject, const std::string& label, const GradcheckOptions& options)
      : subject_(std::move(subject)), options_(options), runner_(subject_, options.threads) {
    result_.name = name;
    result_.label = label;
  }

  GradcheckResult run();

 private:
  // Calls check(); an Error becomes a finding.
  template <class Body>
  bool attempt(Body&& check);
  void add(Check check, Verdict verdict, int input, const std::string& diagnosis, const std::string& details = {});
  void fail(Check check, int input, const std::string& diagnosis) { add(check, Verdict::failed, input, diagnosis); }

  void expect_valid_options() const;
  bool expect_written();
  void expect_same_bits(Check check, const PassOptions& options, const char* when);
  // Compares lists of numbers, one per output or one per input. Differences and `tolerance` are relative to scale(i)
  // for list i. A list that differs by more becomes a finding. Returns the largest relative difference.
  template <class Scale>
  double expect_close(Check check, const char* of, const std::vector<Numbers>& expected,
                      const std::vector<Numbers>& got, double tolerance, Scale&& scale, const char* when);
  void check_linear();
  void check_outputs_alone();
  void check_inputs_alone();
  void check_accumulation();
  void check_f32();
  void check_composition();
  void check_derivatives();
  void measure(Differences& differences, InputCheck& input);
  void report_derivatives();
  [[nodiscard]] std::vector<int64_t> chosen_elements(size_t input) const;
  [[nodiscard]] std::string facts() const;
  [[nodiscard]] std::string reproduce(const InputCheck& input, const ElementCheck* element) const;
  [[nodiscard]] bool found(Check check) const;

  Subject subject_;
  GradcheckOptions options_;
  Runner runner_;
  Pass plain_;
  Facts facts_;
  GradcheckResult result_;
};

template <class Body>
bool Checker::attempt(Body&& check) {
  try {
    check();
    return true;
  } catch (const Error& error) {
    fail(Check::runs, -1, cat("it throws: ", error.what()));
    return false;
  }
}

}  // namespace tril::gradchecks
