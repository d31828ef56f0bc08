#include <cstdio>

#include "core/ops.h"

int main() {
  tril::Context context;
  tril::Tape tape(context);
  const tril::Tensor x = tape.variable<float>({2}, {3.0f, 4.0f});
  tape.backward(sum(x * x));
  const float* const gradient = tape.gradient(x).ptr<float>();
  std::printf("%g %g\n", gradient[0], gradient[1]);  // 6 8
}
