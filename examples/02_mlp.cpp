// Two spirals wound around each other, and a small network that learns to tell them apart: modules, an optimizer, a
// training loop.
#include <cmath>
#include <cstdio>
#include <numbers>
#include <vector>

#include "core/ops.h"
#include "nn/layers.h"
#include "train/run/adamw.h"

namespace {

using tril::Shape;
using tril::Tensor;

constexpr int64_t kPoints = 200;  // of each spiral

struct Points {
  std::vector<float> at;        // (N, 2)
  std::vector<int32_t> spiral;  // (N), 0 or 1
  [[nodiscard]] int64_t count() const { return static_cast<int64_t>(spiral.size()); }
};

// Two turns each, the second one the first turned by half a circle.
Points two_spirals() {
  Points points;
  for (int64_t i = 0; i < kPoints; ++i)
    for (int32_t spiral = 0; spiral < 2; ++spiral) {
      const double along = (static_cast<double>(i) + 10.0) / (kPoints + 10.0);
      const double angle = 4.0 * std::numbers::pi * along + spiral * std::numbers::pi;
      points.at.push_back(static_cast<float>(along * std::cos(angle)));
      points.at.push_back(static_cast<float>(along * std::sin(angle)));
      points.spiral.push_back(spiral);
    }
  return points;
}

// Three linear layers with a tanh between: without the bends it could only draw one straight line. A module names its
// parameters when it is made, in a scope of a store that owns them.
class Network {
 public:
  explicit Network(const tril::Scope& scope)
      : first_(scope / "first", 2, 32, true, 1.0),  // the last number: how large the first weights are
        second_(scope / "second", 32, 32, true, 0.3),
        last_(scope / "last", 32, 2, true, 0.3) {}
  Tensor operator()(const Tensor& x) const { return last_(tanh(second_(tanh(first_(x))))); }  // (N, 2) -> (N, 2)

 private:
  tril::Linear first_, second_, last_;
};

// For each point the spiral with the larger score.
std::vector<int32_t> predict(tril::Context& context, const Network& network, const std::vector<float>& at) {
  tril::Tape tape(context, tril::Tape::Mode::evaluate);  // records nothing
  const auto count = static_cast<int64_t>(at.size()) / 2;
  const Tensor scores = network(tape.constant<float>({count, 2}, at));
  std::vector<int32_t> spirals;
  for (int64_t i = 0; i < count; ++i)
    spirals.push_back(scores.ptr<float>()[2 * i + 1] > scores.ptr<float>()[2 * i] ? 1 : 0);
  return spirals;
}

int64_t right_ones(const std::vector<int32_t>& predicted, const std::vector<int32_t>& truth) {
  int64_t right = 0;
  for (size_t i = 0; i < truth.size(); ++i) right += predicted[i] == truth[i] ? 1 : 0;
  return right;
}

// What the network thinks of every place of the plane.
void draw(tril::Context& context, const Network& network) {
  constexpr int kRows = 21, kColumns = 45;
  std::vector<float> at;
  for (int row = 0; row < kRows; ++row)
    for (int column = 0; column < kColumns; ++column) {
      at.push_back(2.0f * static_cast<float>(column) / (kColumns - 1) - 1.0f);
      at.push_back(1.0f - 2.0f * static_cast<float>(row) / (kRows - 1));
    }
  const std::vector<int32_t> spirals = predict(context, network, at);
  for (size_t i = 0; i < spirals.size(); ++i)
    std::printf("%c%s", spirals[i] == 0 ? '.' : '#', (i + 1) % kColumns == 0 ? "\n" : "");
}

}  // namespace

int main() {
  const Points points = two_spirals();
  tril::ParamStore store(tril::DType::f32, /*seed=*/1);
  const Network network{tril::Scope(store)};
  store.freeze();  // lays the parameters out in one buffer and fills them
  tril::GradStore gradients(store);
  tril::AdamW optimizer(store, {.weight_decay = 0.0});
  std::printf("%lld points of two spirals, a network of %lld numbers\n\n", static_cast<long long>(points.count()),
              static_cast<long long>(store.count()));

  tril::Context context;
  tril::Tape tape(context);
  tape.bind(gradients.binding());  // parameters used on this tape send their gradients there
  int64_t right = 0;
  for (int step = 0; step <= 3000 && right < points.count(); ++step) {
    gradients.reset();
    const Tensor x = tape.constant<float>({points.count(), 2}, points.at);
    const Tensor loss = cross_entropy(network(x), tape.constant<int32_t>({points.count()}, points.spiral));
    tape.backward(loss);
    const double loss_value = loss.item();
    tape.reset();  // the pass is over: its tensors are gone, its memory is there for the next
    if (step % 50 == 0) {
      right = right_ones(predict(context, network, points.at), points.spiral);
      std::printf("step %4d  loss %.4f  right %5.1f %%\n", step, loss_value,
                  100.0 * static_cast<double>(right) / static_cast<double>(points.count()));
    }
    optimizer.update(gradients, /*rate=*/0.01, /*gradient_scale=*/1.0, context.threads());
  }

  std::printf("\nThe plane as the network sees it, a letter for each spiral:\n");
  draw(context, network);
  return right == points.count() ? 0 : 1;
}
