// Ten steps of each optimizer with weight decay and clipping against PyTorch: the same losses and gradient norms.
#include <functional>
#include <memory>

#include "nn/gpt.h"
#include "support/golden.h"
#include "train/run/adamw.h"
#include "train/run/sgd.h"

namespace tril::test {
namespace {

// `prefix`: of the golden losses and norms.
template <class T>
void check_ten_steps(const std::string& prefix, double rate, double clip,
                     const std::function<std::unique_ptr<Optimizer>(ParamStore&)>& make) {
  struct GoldenModel {
    const char* file;
    bool bias;
    Gelu gelu;
  };
  for (const GoldenModel& model : {GoldenModel{"gpt.safetensors", false, Gelu::erf},
                                   {"gpt_bias.safetensors", true, Gelu::erf},
                                   {"gpt_bias_tanh.safetensors", true, Gelu::tanh}}) {
    INFO(model.file);
    const Golden golden(model.file);
    ParamStore store(kDTypeOf<T>);
    const Gpt gpt(
        store,
        {.vocabulary = 11, .context = 8, .layers = 2, .heads = 2, .width = 16, .bias = model.bias, .gelu = model.gelu});
    store.freeze();
    golden.load_weights<T>(store);
    GradStore gradients(store);
    const std::unique_ptr<Optimizer> optimizer = make(store);
    Context context;
    Tape tape(context);
    tape.bind(gradients.binding());

    const std::vector<int32_t> ids = golden.ids("ids"), targets = golden.ids("targets");
    const std::vector<double> losses = golden.values(prefix + "losses"), norms = golden.values(prefix + "norms");
    REQUIRE(losses.size() == 10);
    for (size_t step = 0; step < losses.size(); ++step) {
      INFO("step " << step);
      tape.reset();
      gradients.reset();
      const auto batch = [&](const std::vector<int32_t>& all) {
        return tape.constant<int32_t>({3, 8}, std::span(all).subspan(step * 24, 24));
      };
      const Tensor loss = gpt.loss(batch(ids), batch(targets));
      CHECK(std::abs(loss.item() - losses[step]) <= kGoldenTolerance<T> * losses[step]);
      tape.backward(loss);
      const double norm = optimizer->norm(gradients, context.threads());
      CHECK(std::abs(norm - norms[step]) <= kGoldenTolerance<T> * norms[step]);
      optimizer->update(gradients, rate, clip_scale(norm, clip), context.threads());
    }
  }
}

}  // namespace

TEMPLATE_TEST_CASE("AdamW: ten losses of a model in training equal those of PyTorch", "[golden]", float, double) {
  check_ten_steps<TestType>("", 0.01, 1.0, [](ParamStore& store) {
    return std::make_unique<AdamW>(store,
                                   AdamWOptions{.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1, .epsilon = 1e-8});
  });
}

TEMPLATE_TEST_CASE("SGD: ten losses of a model in training equal those of PyTorch", "[golden]", float, double) {
  check_ten_steps<TestType>("sgd.", 0.1, 2.0, [](ParamStore& store) {
    return std::make_unique<Sgd>(store, SgdOptions{.momentum = 0.8, .weight_decay = 0.1});
  });
}

}  // namespace tril::test
