// Every op's gradients, and large products, which have loops of their own: by the library alone.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "core/gradcheck/gradcheck.h"
#include "core/machine/cpu.h"
#include "core/ops.h"

namespace {

template <class T>
std::vector<T> numbers(int64_t count, uint32_t stream) {
  std::vector<T> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(T(static_cast<float>(
        tril::random_normal({.seed = 1, .step = 0, .stream = stream}, 0, static_cast<uint32_t>(i)))));
  return out;
}

template <class T>
std::vector<double> product() {
  constexpr int64_t kRows = 520, kInner = 528, kColumns = 1040;
  tril::Context context;
  tril::Tape tape(context);
  const tril::Tensor y =
      linear(tape.constant<T>({kRows, kInner}, numbers<T>(kRows * kInner, 1)),
             tape.constant<tril::Compute<T>>({kColumns, kInner}, numbers<tril::Compute<T>>(kColumns * kInner, 2)));
  const T* const values = y.template ptr<T>();
  std::vector<double> out;
  for (int64_t i = 0; i < y.count(); ++i) out.push_back(static_cast<double>(values[i]));
  return out;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    squares += (a[i] - b[i]) * (a[i] - b[i]);
    all += b[i] * b[i];
  }
  return std::sqrt(squares / all);
}

}  // namespace

int main() {
  size_t checked = 0, wrong = 0;
  for (const tril::OpInfo* const op : tril::all_ops())
    for (const tril::Sample& sample : op->samples()) {
      const tril::GradcheckResult result = tril::gradcheck(op->name, sample, {});
      ++checked;
      if (result.verdict() == tril::Verdict::passed) continue;
      ++wrong;
      std::puts(result.report().c_str());
    }
  const std::vector<double> exact = product<double>();
  const double off = distance(product<float>(), exact), off_bf16 = distance(product<tril::bf16>(), exact);
  const std::string level(tril::name_of(tril::cpu().level));
  std::printf("level %s: %zu samples, %zu wrong; products off by %.1e in f32, %.1e in bf16\n", level.c_str(), checked,
              wrong, off, off_bf16);
  return checked > 0 && wrong == 0 && off < 1e-6 && off_bf16 < 1e-2 ? 0 : 1;
}
