// Ten steps of AdamW with weight decay and clipping against PyTorch: the same losses and gradient norms.
#include "nn/gpt.h"
#include "support/golden.h"
#include "train/run/optimizer.h"

namespace tril::test {

TEMPLATE_TEST_CASE("AdamW: ten losses of a model in training equal those of PyTorch", "[golden]", float, double) {
  using T = TestType;
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
    AdamW optimizer(store, {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1, .epsilon = 1e-8});
    Context context;
    Tape tape(context);
    tape.bind(gradients.binding());

    const std::vector<int32_t> ids = golden.ids("ids"), targets = golden.ids("targets");
    const std::vector<double> losses = golden.values("losses"), norms = golden.values("norms");
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
      const double norm = optimizer.norm(gradients, context.threads());
      CHECK(std::abs(norm - norms[step]) <= kGoldenTolerance<T> * norms[step]);
      optimizer.update(gradients, 0.01, clip_scale(norm, 1.0), context.threads());
    }
  }
}

}  // namespace tril::test
