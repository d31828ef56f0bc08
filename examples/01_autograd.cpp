// A first gradient, twice: by hand with the chain rule, and by the tape, which remembers what was computed and walks it
// from the end.
//
// One neuron looks at x and predicts p = tanh(w x + b); the loss is how far off it is, squared. Which way should w and
// b move to make the loss smaller? Against their gradients: how much the loss changes when they do.
#include <cmath>
#include <cstdio>
#include <iostream>

#include "core/ops.h"

namespace {

struct Neuron {
  double w, b;
};
struct Slopes {
  double loss, dw, db;
};
constexpr double kInput = 1.5, kTarget = 0.25;

// Every line of the first half gets its line in the second, in the opposite order: its gradient is the gradient of what
// came out times the derivative of the step. That is all there is to backpropagation.
Slopes by_hand(const Neuron& neuron) {
  const double z = neuron.w * kInput + neuron.b;
  const double p = std::tanh(z);
  const double error = p - kTarget;
  const double loss = error * error;

  const double d_error = 2 * error;      // of loss = error²
  const double d_p = d_error;            // of error = p - target
  const double d_z = d_p * (1 - p * p);  // of p = tanh(z)
  return {loss, d_z * kInput, d_z};      // of z = w x + b
}

// The same on a tape. Nothing is written twice: each op knows its own backward.
Slopes by_tape(const Neuron& neuron, bool show_tape) {
  tril::Context context;                                          // threads, memory, random numbers
  tril::Tape tape(context);                                       // what was computed
  const tril::Tensor w = tape.variable<double>({1}, {neuron.w});  // wants a gradient
  const tril::Tensor b = tape.variable<double>({1}, {neuron.b});
  const tril::Tensor x = tape.constant<double>({1}, {kInput});  // wants none
  const tril::Tensor target = tape.constant<double>({1}, {kTarget});

  const tril::Tensor error = tanh(w * x + b) - target;
  const tril::Tensor loss = sum(error * error);
  tape.backward(loss);

  if (show_tape)
    std::cout << "The tape, a line for each op with the numbers of what it made and what it read:\n"
              << tape.to_string() << "\nWhat tensors hold: w is " << w << ", and the slope of the loss by it "
              << tape.gradient(w) << ".\nWith numbers they calculate, too: 2 w - 1 is " << 2 * w - 1 << "\n\n"
              << std::flush;
  return {loss.item(), tape.gradient(w).item(), tape.gradient(b).item()};
}

}  // namespace

int main() {
  Neuron neuron{.w = 0.8, .b = -0.3};
  const Slopes hand = by_hand(neuron), taped = by_tape(neuron, true);
  std::printf("                    by hand       by tape\n");
  std::printf("loss           %12.9f  %12.9f\n", hand.loss, taped.loss);
  std::printf("d loss / d w   %12.9f  %12.9f\n", hand.dw, taped.dw);
  std::printf("d loss / d b   %12.9f  %12.9f\n\n", hand.db, taped.db);

  std::printf("Now walk against the gradient, a step of 0.2 times it, again and again:\n");
  double last = taped.loss;
  for (int step = 0; step <= 5; ++step) {
    const Slopes here = by_tape(neuron, false);
    std::printf("step %d: w %8.5f  b %8.5f  loss %.6f\n", step, neuron.w, neuron.b, here.loss);
    neuron.w -= 0.2 * here.dw;
    neuron.b -= 0.2 * here.db;
    last = here.loss;
  }

  const bool agree = std::abs(hand.loss - taped.loss) < 1e-12 && std::abs(hand.dw - taped.dw) < 1e-12 &&
                     std::abs(hand.db - taped.db) < 1e-12;
  std::printf("\n%s\n", agree ? "Both ways agree, and the neuron learned." : "The two ways differ: that is a bug.");
  return agree && last < 0.01 * taped.loss ? 0 : 1;
}
