#include "core/gradcheck/pass.h"

#include <algorithm>
#include <cstring>

namespace tril::gradchecks {
namespace {

// The op that builds a check's loss: the loss so far plus the inner product of y with constant numbers r. Its backward
// gives y the cotangent r. If it is applied to an input, after the function, its backward runs first: then r is in the
// input's gradient before the function's own arrives.
struct Projection {
  struct Attrs {};
  static void infer(Infer& op, const Attrs&) {
    op.expect_floating_or_bf16(0, "the function's output");
    op.output({}, compute_dtype(op.in(0).dtype));
    op.backward_reads_input(1);
    op.no_gradient(1);
  }
  static void forward(const Forward& op, const Attrs&) {
    dispatch_with_bf16(op.name(), op.in(0).dtype, [&](auto type) {
      using S = decltype(type);
      using T = Compute<S>;
      const S* const y = op.in(0).ptr<S>();
      const T* const r = op.in(1).ptr<T>();
      T total = op.count() == 3 ? *op.in(2).ptr<T>() : T{0};
      for (int64_t i = 0; i < op.in(0).count(); ++i) total += static_cast<T>(y[i]) * r[i];
      *op.out(0).ptr<T>() = total;
    });
  }
  static void backward(const Backward& op, const Attrs&) {
    dispatch(op.name(), op.dout(0).dtype, [&](auto type) {
      using T = decltype(type);
      const T loss = *op.dout(0).ptr<T>();
      const T* const r = op.in(1).ptr<T>();
      const auto give = [&](auto* dy) {
        using S = std::remove_pointer_t<decltype(dy)>;
        for (int64_t i = 0; i < op.shape(0).count(); ++i)
          dy[i] = static_cast<S>(
              static_cast<Compute<S>>((op.din(0).accumulate ? static_cast<T>(dy[i]) : T{0}) + loss * r[i]));
      };
      if (op.din(0)) op.din(0).tensor.dtype == DType::bf16 ? give(op.din(0).ptr<bf16>()) : give(op.din(0).ptr<T>());
      if (op.count() == 3 && op.din(2)) {
        T& before = *op.din(2).ptr<T>();
        before = op.din(2).accumulate ? before + loss : loss;
      }
    });
  }
  static std::vector<Sample> samples() { return {}; }
};

constexpr OpInfo kProjection = make_op<Projection>("gradcheck");

constexpr uint32_t kCotangentStream = 1000, kOffsetStream = 2000;

template <class T>
std::vector<T> converted(const Numbers& numbers) {
  std::vector<T> values(numbers.size());
  std::transform(numbers.begin(), numbers.end(), values.begin(), [](double x) { return static_cast<T>(x); });
  return values;
}

Tensor bring_in(Tape& tape, const Shape& shape, DType dtype, const Numbers& numbers, bool wants_gradient) {
  if (dtype == DType::i32) return tape.constant<int32_t>(shape, converted<int32_t>(numbers));
  if (dtype == DType::f64)
    return wants_gradient ? tape.variable<double>(shape, numbers) : tape.constant<double>(shape, numbers);
  if (dtype == DType::bf16) {
    std::vector<bf16> values;
    for (const double x : numbers) values.emplace_back(static_cast<float>(x));
    return wants_gradient ? tape.variable<bf16>(shape, values) : tape.constant<bf16>(shape, values);
  }
  const std::vector<float> values = converted<float>(numbers);
  return wants_gradient ? tape.variable<float>(shape, values) : tape.constant<float>(shape, values);
}

Numbers numbers_of(const Tensor& tensor) {
  Numbers numbers(static_cast<size_t>(tensor.count()));
  if (numbers.empty()) return numbers;
  if (tensor.dtype == DType::bf16)
    std::transform(tensor.ptr<bf16>(), tensor.ptr<bf16>() + numbers.size(), numbers.begin(),
                   [](bf16 x) { return static_cast<double>(x); });
  else if (tensor.dtype == DType::f64)
    std::memcpy(numbers.data(), tensor.data, numbers.size() * sizeof(double));  // keeps the bits of a NaN
  else
    std::copy_n(tensor.ptr<float>(), numbers.size(), numbers.begin());
  return numbers;
}

DType operand_dtype(const Input& input, DType dtype) {
  if (!input.floating) return DType::i32;
  return dtype == DType::f32 && input.bf16 ? DType::bf16 : dtype;
}

// The bytes of some tensors at one moment.
class Snapshot {
 public:
  explicit Snapshot(std::span<const Tensor> tensors) : tensors_(tensors.begin(), tensors.end()) {
    for (const Tensor& tensor : tensors_) {
      const auto* const data = static_cast<const std::byte*>(tensor.data);
      bytes_.emplace_back(data, data + tensor.bytes());
    }
  }
  // The first tensor whose bytes have changed, as "input 1"; empty if none has.
  [[nodiscard]] std::string changed(const char* what) const {
    for (size_t i = 0; i < tensors_.size(); ++i)
      if (!bytes_[i].empty() && std::memcmp(bytes_[i].data(), tensors_[i].data, bytes_[i].size()) != 0)
        return cat(what, " ", i);
    return {};
  }

 private:
  std::vector<Tensor> tensors_;
  std::vector<std::vector<std::byte>> bytes_;
};

double random_value(const SampleInput& input, const RandomKey& key, uint32_t index) {
  switch (input.values) {
    case SampleInput::Values::normal: return input.spread * random_normal(key, 0, index);
    case SampleInput::Values::positive: return 0.5 + 1.5 * random_uniform(key, 0, index);
    case SampleInput::Values::tokens: return std::floor(random_uniform(key, 0, index) * input.high);
    // Signs alternate and sizes grow by 0.15, give or take 0.02.
    case SampleInput::Values::spaced:
      return (index % 2 == 0 ? 1.0 : -1.0) * (0.15 * (index + 1.0) + 0.04 * (random_uniform(key, 0, index) - 0.5));
  }
  return 0;
}

Numbers sample_values(const SampleInput& input, const RandomKey& key) {
  const auto count = static_cast<size_t>(input.shape.count());
  if (!input.given.empty()) {
    TRIL_CHECK(input.given.size() == count, "gradcheck", cat(count, " given values for shape ", input.shape),
               cat(input.given.size()));
    return input.given;
  }
  Numbers values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<double>(static_cast<float>(random_value(input, key, static_cast<uint32_t>(i))));
  if (input.bf16)
    for (double& value : values) value = static_cast<double>(bf16(static_cast<float>(value)));
  if (input.values == SampleInput::Values::spaced)
    for (size_t i = count; i > 1; --i) {
      const double at = random_uniform(key, 1, static_cast<uint32_t>(i)) * static_cast<double>(i);
      std::swap(values[i - 1], values[static_cast<size_t>(at)]);
    }
  return values;
}

}  // namespace

Numbers normal_numbers(uint64_t seed, uint32_t stream, int64_t count) {
  Numbers numbers(static_cast<size_t>(count));
  const RandomKey key{.seed = seed, .step = 0, .stream = stream};
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<double>(static_cast<float>(random_normal(key, 0, static_cast<uint32_t>(i))));
  return numbers;
}

Numbers cotangent_of(const Subject& subject, size_t output, int64_t count) {
  if (subject.of_parameters()) return Numbers(static_cast<size_t>(count), 1.0);
  return normal_numbers(subject.seed, kCotangentStream + static_cast<uint32_t>(output), count);
}

Numbers offset_of(const Subject& subject, size_t input) {
  return normal_numbers(subject.seed, kOffsetStream + static_cast<uint32_t>(input), subject.count(input));
}

Subject subject_of(const Sample& sample, uint64_t seed) {
  Subject subject{.run = sample.run, .compose = sample.compose, .seed = seed, .bf16 = sample.bf16};
  for (const SampleInput& input : sample.inputs) {
    const auto index = static_cast<uint32_t>(subject.inputs.size());
    subject.inputs.push_back({.name = cat("input ", index),
                              .shape = input.shape,
                              .floating = input.values != SampleInput::Values::tokens,
                              .values = sample_values(input, {.seed = seed, .step = 0, .stream = index}),
                              .bf16 = input.bf16,
                              .not_varied = input.not_varied});
  }
  return subject;
}

Runner::Runner(Subject& subject, int threads)
    : subject_(subject),
      one_({.threads = 1, .seed = subject.seed}),
      several_({.threads = std::max(1, threads), .seed = subject.seed}) {}

double Runner::get(size_t input, int64_t element) const {
  const Input& of = subject_.inputs[input];
  return subject_.of_parameters() ? of.parameter.ptr<double>()[element] : of.values[static_cast<size_t>(element)];
}

void Runner::set(size_t input, int64_t element, double value) {
  Input& of = subject_.inputs[input];
  (subject_.of_parameters() ? of.parameter.ptr<double>()[element] : of.values[static_cast<size_t>(element)]) = value;
}

std::vector<Tensor> Runner::place(Tape& tape, DType dtype, bool gradients, int only_input) {
  std::vector<Tensor> tensors;
  if (subject_.of_parameters() && gradients) {
    std::fill(subject_.binding.received.begin(), subject_.binding.received.end(), uint8_t{0});
    tape.bind(subject_.binding);
  }
  for (size_t i = 0; i < subject_.inputs.size(); ++i) {
    const Input& input = subject_.inputs[i];
    const bool wanted = gradients && subject_.varied(i) && (only_input < 0 || only_input == static_cast<int>(i));
    tensors.push_back(subject_.of_parameters()
                          ? input.parameter
                          : bring_in(tape, input.shape, operand_dtype(input, dtype), input.values, wanted));
  }
  return tensors;
}

std::vector<Tensor> Runner::call(Tape& tape, std::span<const Tensor> inputs, bool compose) const {
  if (subject_.of_parameters()) return {subject_.loss(tape)};
  return compose ? subject_.compose(inputs) : subject_.run(inputs);
}

Tensor Runner::loss_of(Tape& tape, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                       const PassOptions& options) const {
  Tensor loss;
  const auto add = [&](const Tensor& y, Numbers r) {
    for (double& value : r) value *= options.cotangent_factor;
    const std::array<Tensor, 3> operands = {y, bring_in(tape, y.shape, compute_dtype(y.dtype), r, false), loss};
    const Projection::Attrs attrs;
    loss = apply(kProjection, std::span<const Tensor>(operands.data(), loss.data == nullptr ? 2 : 3), &attrs);
  };
  for (size_t i = 0; i < outputs.size(); ++i)
    if (options.only_output < 0 || options.only_output == static_cast<int>(i))
      add(outputs[i], cotangent_of(subject_, i, outputs[i].count()));
  for (size_t i = 0; options.offsets && i < inputs.size(); ++i)
    if (subject_.varied(i)) add(inputs[i], offset_of(subject_, i));
  return loss;
}

Pass Runner::run(const PassOptions& options) {
  Context& context = options.several_threads ? several_ : one_;
  context.poison = options.poison;
  Pass pass;
  Tape tape(context);
  const std::vector<Tensor> inputs = place(tape, options.dtype, true, options.only_input);
  const Snapshot operands(inputs);
  const std::vector<Tensor> outputs = call(tape, inputs, options.compose);
  if (const std::string changed = operands.changed("input"); !changed.empty())
    pass.changed = cat(changed, " by forward");
  const Snapshot results(outputs);
  for (const Tensor& output : outputs) pass.outputs.push_back(numbers_of(output));

  const Tensor loss = loss_of(tape, inputs, outputs, options);
  for (int i = 0; i < options.backwards; ++i) tape.backward(loss, {.allow_unused = true});
  for (const std::string& changed : {operands.changed("input"), results.changed("output")})
    if (pass.changed.empty() && !changed.empty()) pass.changed = cat(changed, " by backward");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool wanted = subject_.varied(i) && (options.only_input < 0 || options.only_input == static_cast<int>(i));
    const bool reached = wanted && tape.has_gradient(inputs[i]);
    pass.reached.push_back(reached);
    pass.gradients.push_back(reached ? numbers_of(tape.gradient(inputs[i])) : Numbers{});
  }
  return pass;
}

void Runner::evaluate(Numbers& outputs) {
  one_.poison = false;
  Tape tape(one_);
  const std::vector<Tensor> inputs = place(tape, DType::f64, false, -1);
  outputs.clear();
  for (const Tensor& output : call(tape, inputs, false)) {
    const Numbers numbers = numbers_of(output);
    outputs.insert(outputs.end(), numbers.begin(), numbers.end());
  }
}

}  // namespace tril::gradchecks
