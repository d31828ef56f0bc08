// Every op there is, checked on all its samples: from the day it is listed, an op is covered.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/gradcheck/gradcheck.h"
#include "support/catch.h"

using namespace tril;
using namespace tril::test;

TEST_CASE("registry: every op has a name of its own, a file of that name, and is found by it") {
  std::set<std::string> names;
  for (const OpInfo* const op : all_ops()) {
    INFO(op->name);
    CHECK(names.insert(op->name).second);
    CHECK(find_op(op->name) == op);
    CHECK(is_listed_op(op->name));
    CHECK(std::filesystem::exists(std::filesystem::path(TRIL_SOURCE_DIR) / "core/ops" / cat(op->name, ".cpp")));
  }
  CHECK(find_op("no_such_op") == nullptr);
  const std::filesystem::directory_iterator files(std::filesystem::path(TRIL_SOURCE_DIR) / "core/ops");
  for (const auto& file : files)
    if (file.path().extension() == ".cpp") CHECK(names.count(file.path().stem().string()) == 1);
}

TEST_CASE("registry: every op passes the gradient check on all its samples") {
  for (const OpInfo* const op : all_ops()) {
    DYNAMIC_SECTION(op->name) {
      const std::vector<Sample> samples = op->samples();
      int number = 0;
      for (const Sample& sample : samples) {
        INFO("sample " << number << ", " << sample.label);
        const GradcheckResult result =
            gradcheck(op->name, sample, {.command = cat("tril gradcheck ", op->name, " --sample ", number)});
        INFO(result.report());
        CHECK(result.verdict() == Verdict::passed);
        CHECK(result.worst() < 1e-8);
        ++number;
      }
    }
  }
}

TEST_CASE("registry: every op has samples that run and samples that must fail, each with a label") {
  for (const OpInfo* const op : all_ops()) {
    INFO(op->name);
    std::set<std::string> labels;
    int errors = 0;
    const std::vector<Sample> samples = op->samples();
    for (const Sample& sample : samples) {
      INFO(sample.label);
      CHECK(labels.insert(sample.label).second);
      errors += !sample.error.empty();
    }
    CHECK(errors >= 1);
    CHECK(static_cast<int>(samples.size()) - errors >= 3);
  }
}

TEST_CASE("registry: every operand is varied in some sample, unless it holds whole numbers, which is printed") {
  for (const OpInfo* const op : all_ops()) {
    INFO(op->name);
    const std::vector<Sample> samples = op->samples();
    size_t operands = 0;
    for (const Sample& sample : samples)
      if (sample.error.empty()) operands = std::max(operands, sample.inputs.size());
    CHECK(operands > 0);
    for (size_t i = 0; i < operands; ++i) {
      bool varied = false, whole = true;
      std::string reason;
      for (const Sample& sample : samples) {
        if (!sample.error.empty() || i >= sample.inputs.size()) continue;
        const SampleInput& input = sample.inputs[i];
        varied = varied || (input.not_varied.empty() && input.shape.count() > 0);
        whole = whole && input.values == SampleInput::Values::tokens;
        if (reason.empty()) reason = input.not_varied;
      }
      INFO("operand " << i << ", not varied because: " << reason);
      CHECK((varied || (whole && !reason.empty())));
      if (!varied) WARN(op->name << ": operand " << i << " is not varied: " << reason);
    }
  }
}
