// The model and cross-attention against PyTorch: outputs, loss and every gradient, from files that PyTorch wrote.
#include "support/golden.h"

#include "nn/attention.h"
#include "nn/gpt.h"

namespace tril::test {
namespace {

struct GoldenModel {
  const char* file;
  bool bias;
  Gelu gelu;
};
constexpr GoldenModel kModels[] = {{"gpt.safetensors", false, Gelu::erf},
                                   {"gpt_bias.safetensors", true, Gelu::erf},
                                   {"gpt_bias_tanh.safetensors", true, Gelu::tanh}};

GptConfig config_of(const GoldenModel& model) {
  return {.vocabulary = 11, .context = 8, .layers = 2, .heads = 2, .width = 16, .bias = model.bias, .gelu = model.gelu};
}

}  // namespace

TEMPLATE_TEST_CASE("gpt: logits and loss and every gradient equal those of PyTorch", "[golden]", float, double) {
  using T = TestType;
  for (const GoldenModel& model : kModels) {
    INFO(model.file);
    const Golden golden(model.file);
    ParamStore store(kDTypeOf<T>);
    const Gpt gpt(store, config_of(model));
    store.freeze();
    golden.load_weights<T>(store);
    GradStore gradients(store);
    Context context;
    Tape tape(context);
    tape.bind(gradients.binding());

    const Shape batch{3, 8};
    const std::vector<int32_t> all_ids = golden.ids("ids"), all_targets = golden.ids("targets");
    const Tensor ids = tape.constant<int32_t>(batch, std::span(all_ids).first(24)),
                 targets = tape.constant<int32_t>(batch, std::span(all_targets).first(24));
    check_golden<T>(golden, "logits", gpt(ids));
    const Tensor loss = gpt.loss(ids, targets);
    check_golden<T>(golden, "loss", loss);
    tape.backward(loss);
    for (const ParamInfo& param : store.params()) check_golden<T>(golden, "grad." + param.name, gradients.of(param));
  }
}

TEMPLATE_TEST_CASE("gpt: logits of a text shorter than the context equal those of PyTorch", "[golden]", float, double) {
  using T = TestType;
  for (const GoldenModel& model : kModels) {
    INFO(model.file);
    const Golden golden(model.file);
    ParamStore store(kDTypeOf<T>);
    const Gpt gpt(store, config_of(model));
    store.freeze();
    golden.load_weights<T>(store);
    Context context;
    Tape tape(context, Tape::Mode::evaluate);
    const std::vector<int32_t> ids = golden.ids("short.ids");
    check_golden<T>(golden, "short.logits", gpt(tape.constant<int32_t>(golden.shape("short.ids"), ids)));
  }
}

TEMPLATE_TEST_CASE("CrossAttention: output and every gradient equal those of PyTorch", "[golden]", float, double) {
  using T = TestType;
  struct Case {
    const char* name;
    bool causal, lengths, swapped;  // swapped: more queries than keys
  };
  const Case cases[] = {{"full", false, false, false},   {"causal", true, false, false},
                        {"lengths", false, true, false}, {"causal_lengths", true, true, false},
                        {"swapped", false, false, true}, {"swapped_causal", true, false, true}};
  const Golden golden("cross_attention.safetensors");
  for (const Case& c : cases) {
    INFO(c.name);
    ParamStore store(kDTypeOf<T>);
    const CrossAttention cross(Scope(store), {.width = 12, .attention = {.heads = 3, .causal = c.causal}});
    store.freeze();
    golden.load_weights<T>(store);
    GradStore gradients(store);
    Context context;
    Tape tape(context);
    tape.bind(gradients.binding());

    const Tensor x = golden.variable<T>(tape, "x"), memory = golden.variable<T>(tape, "memory");
    const std::vector<int32_t> lengths = golden.ids("lengths");
    const Tensor output = cross(c.swapped ? memory : x, c.swapped ? x : memory,
                                c.lengths ? tape.constant<int32_t>({2}, lengths) : Tensor{});
    const std::string prefix = std::string(c.name) + ".";
    check_golden<T>(golden, prefix + "output", output);
    tape.backward(output, golden.constant<T>(tape, c.swapped ? "cotangent.memory" : "cotangent.x"));
    check_golden<T>(golden, prefix + "grad.x", tape.gradient(x));
    check_golden<T>(golden, prefix + "grad.memory", tape.gradient(memory));
    for (const ParamInfo& param : store.params())
      check_golden<T>(golden, prefix + "grad." + param.name, gradients.of(param));
  }
}

}  // namespace tril::test
