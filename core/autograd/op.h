// What an op must have: a shape rule (`infer`), `forward`, `backward` and `samples`, all in one struct in one file:
//
//   struct Silu {
//     struct Attrs {};                                         // plain data, at most kMaxAttrs bytes
//     static void infer(Infer& op, const Attrs&);              // checks operands; declares results, what is read
//     static void forward(const Forward& op, const Attrs&);    // writes outputs and saved
//     static void backward(const Backward& op, const Attrs&);  // writes, or adds to, the gradients that are wanted
//     static std::vector<Sample> samples();                    // what the checks run it on
//   };
//   TRIL_REGISTER_OP(silu, Silu)
//
// An op allocates nothing: the engine owns outputs, saved tensors and gradients; working memory is a Scratch of the
// context. examples/04_add_an_op.cpp is the guide.
#pragma once

#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/autograd/op_list.h"
#include "core/autograd/tensor.h"
#include "core/base/random.h"
#include "core/machine/context.h"

namespace tril {

struct OpInfo;

// What a shape rule declares.
struct OpPlan {
  struct Result {
    Shape shape;
    DType dtype = DType::f32;
  };
  static constexpr int kMaxResults = 4;
  std::array<Result, kMaxResults> outputs, saved;
  int output_count = 0, saved_count = 0;
  double flops = 0;                                                  // of forward
  bool aliases_input = false;                                        // output 0 is input 0's memory
  uint64_t reads_input = 0, reads_output = 0, without_gradient = 0;  // bit i: operand or output i
  [[nodiscard]] static constexpr bool has_bit(uint64_t bits, int64_t i) { return i < 64 && (bits >> i & 1u) != 0; }
};

class Infer {
 public:
  Infer(const char* op, std::span<const Tensor> inputs, OpPlan& plan) : op_(op), inputs_(inputs), plan_(plan) {}

  [[nodiscard]] int count() const { return static_cast<int>(inputs_.size()); }
  [[nodiscard]] const Tensor& in(int i) const { return inputs_[static_cast<size_t>(i)]; }
  [[nodiscard]] const Shape& shape(int i) const { return in(i).shape; }
  [[nodiscard]] const char* name() const { return op_; }

  void output(const Shape& shape, DType dtype) {
    add_result("outputs", plan_.outputs, plan_.output_count, shape, dtype);
  }
  void output_is_view_of_input(const Shape& shape) {
    output(shape, in(0).dtype);
    plan_.aliases_input = true;
  }
  // A tensor that forward makes for backward alone.
  void save(const Shape& shape, DType dtype) {
    add_result("saved tensors", plan_.saved, plan_.saved_count, shape, dtype);
  }
  // Declares that backward reads the numbers of operand i, or of output i.
  void backward_reads_input(int i) { plan_.reads_input |= bit(i); }
  void backward_reads_output(int i) { plan_.reads_output |= bit(i); }
  // This operand never gets a gradient (token ids, masks).
  void no_gradient(int i) { plan_.without_gradient |= bit(i); }

  // How many floating-point operations a matrix product takes forward, for profiles; backward counts twice as many.
  void flops(double count) { plan_.flops = count; }

  // Checks that many ops need.
  void expect_floating(int i, const char* operand) const;          // f32 or f64
  void expect_floating_or_bf16(int i, const char* operand) const;  // f32, f64 or bf16
  void expect_same_dtype(int i, const char* operand) const;        // the same type as operand 0
  void expect_rank_at_least(int i, const char* operand, int rank) const;
  // The numbers of an i32 operand, so that infer can check them. Empty in a pass that is only planned.
  [[nodiscard]] std::span<const int32_t> numbers(int i) const;
  // Takes an axis of operand i, counted from 0 or, if negative, from the end. Returns it counted from 0; throws if
  // there is no such axis.
  [[nodiscard]] int checked_axis(int i, int64_t axis) const;

 private:
  using Results = std::array<OpPlan::Result, OpPlan::kMaxResults>;
  void add_result(const char* what, Results& results, int& count, const Shape& shape, DType dtype) const;
  [[nodiscard]] uint64_t bit(int i) const;

  const char* op_;
  std::span<const Tensor> inputs_;
  OpPlan& plan_;
};

// Where an op's random numbers start: the context's step and first sample when the op was recorded, and the op's place
// in the pass (`stream`).
struct Draws {
  uint32_t step = 0, first_sample = 0, stream = 0;
};

class Forward {
 public:
  Forward(const char* op, Context& context, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
          std::span<const Tensor> saved, const Draws& draws)
      : op_(op), context_(context), inputs_(inputs), outputs_(outputs), saved_(saved), draws_(draws) {}

  [[nodiscard]] int count() const { return static_cast<int>(inputs_.size()); }
  [[nodiscard]] const Tensor& in(int i) const { return inputs_[static_cast<size_t>(i)]; }
  [[nodiscard]] const Tensor& out(int i) const { return outputs_[static_cast<size_t>(i)]; }
  [[nodiscard]] const Tensor& saved(int i) const { return saved_[static_cast<size_t>(i)]; }
  [[nodiscard]] Context& context() const { return context_; }
  [[nodiscard]] int threads() const { return context_.threads(); }
  [[nodiscard]] const char* name() const { return op_; }
  // The op's own random numbers: the same in forward and backward, others for every op and step.
  [[nodiscard]] RandomKey key() const { return {context_.seed(), draws_.step, draws_.stream}; }
  // The index of row 0 of axis 0 in the step's whole batch. Throws if the index of any row needs more than 32 bits.
  [[nodiscard]] uint32_t first_sample() const;

 protected:
  const char* op_;
  Context& context_;
  std::span<const Tensor> inputs_, outputs_, saved_;
  Draws draws_;
};

// Where backward writes an operand's gradient. Converts to false if nobody wants that gradient.
struct Gradient {
  Tensor tensor;
  bool accumulate = false;  // add to what is there, else overwrite it
  [[nodiscard]] explicit operator bool() const { return tensor.data != nullptr; }
  template <class T>
  [[nodiscard]] T* ptr() const {
    return tensor.data == nullptr ? nullptr : tensor.ptr<T>();
  }
};

class Backward : public Forward {
 public:
  Backward(const Forward& forward, const OpPlan& plan, std::span<const Tensor> output_gradients,
           std::span<const Gradient> gradients)
      : Forward(forward), plan_(plan), output_gradients_(output_gradients), gradients_(gradients) {}

  [[nodiscard]] const Shape& shape(int i) const { return inputs_[static_cast<size_t>(i)].shape; }
  // These throw unless the shape rule declared that backward reads them.
  [[nodiscard]] const Tensor& in(int i) const;
  [[nodiscard]] const Tensor& out(int i) const;
  // The gradient of output i; its data is null where nothing depends on that output.
  [[nodiscard]] const Tensor& dout(int i) const { return output_gradients_[static_cast<size_t>(i)]; }
  [[nodiscard]] const Gradient& din(int i) const { return gradients_[static_cast<size_t>(i)]; }

 private:
  const OpPlan& plan_;
  std::span<const Tensor> output_gradients_;
  std::span<const Gradient> gradients_;
};

// One operand of a Sample: its shape, and which numbers it holds.
struct SampleInput {
  enum class Values : uint8_t {
    normal,    // standard normal, times `spread`
    positive,  // uniform in [0.5, 2]
    spaced,    // distinct, at least 0.1 from one another and from 0: for ops with kinks
    tokens,    // i32, uniform in [0, high)
  };
  Shape shape{};
  Values values = Values::normal;
  double spread = 1.0;
  int32_t high = 0;
  std::vector<double> given{};  // if not empty: these numbers, not random ones (i32 operands too)
  std::string not_varied{};     // why this operand needs no gradient check; empty: it is checked
  bool bf16 = false;            // f32 runs store it as bf16; its numbers are ones that bf16 holds exactly

  [[nodiscard]] static SampleInput of_tokens(const Shape& shape, int32_t high) {
    return {.shape = shape, .values = Values::tokens, .high = high, .not_varied = "token ids"};
  }
};

using SampleFunction = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

// One case that the checks run an op on.
struct Sample {
  std::string label{};  // what is special about it
  std::vector<SampleInput> inputs{};
  SampleFunction run{};      // calls the op's public function
  SampleFunction compose{};  // the same from simpler ops, an oracle; may be empty
  std::string error{};       // not empty: `run` must throw an Error that holds this text
  bool bf16 = false;         // f32 runs store something as bf16, so they agree with f64 only to bf16's precision
};

// The same sample for mixed precision, where these operands are bf16.
[[nodiscard]] inline Sample in_bf16(Sample sample, std::initializer_list<size_t> operands) {
  sample.label += ", bf16";
  sample.compose = nullptr;
  sample.bf16 = true;
  for (const size_t i : operands) sample.inputs[i].bf16 = true;
  return sample;
}

struct OpInfo {
  const char* name = nullptr;
  int attrs_bytes = 0;
  void (*infer)(Infer&, const void*) = nullptr;
  void (*forward)(const Forward&, const void*) = nullptr;
  void (*backward)(const Backward&, const void*) = nullptr;
  std::vector<Sample> (*samples)() = nullptr;
};

inline constexpr int kMaxAttrs = 96;

template <class Op>
concept DefinesOp = std::is_trivially_copyable_v<typename Op::Attrs> &&
                    sizeof(typename Op::Attrs) <= kMaxAttrs&& requires(Infer& infer, const Forward& forward,
                                                                       const Backward& backward,
                                                                       const typename Op::Attrs& attrs) {
  Op::infer(infer, attrs);
  Op::forward(forward, attrs);
  Op::backward(backward, attrs);
  { Op::samples() } -> std::same_as<std::vector<Sample>>;
};

template <DefinesOp Op>
[[nodiscard]] constexpr OpInfo make_op(const char* name) {
  using Attrs = typename Op::Attrs;
  return {name,
          static_cast<int>(sizeof(Attrs)),
          [](Infer& op, const void* attrs) { Op::infer(op, *static_cast<const Attrs*>(attrs)); },
          [](const Forward& op, const void* attrs) { Op::forward(op, *static_cast<const Attrs*>(attrs)); },
          [](const Backward& op, const void* attrs) { Op::backward(op, *static_cast<const Attrs*>(attrs)); },
          &Op::samples};
}

// Runs an op on its operands and records it on their tape. The second form is for ops with several outputs.
Tensor apply(const OpInfo& op, std::span<const Tensor> inputs, const void* attrs);
std::array<Tensor, OpPlan::kMaxResults> apply_all(const OpInfo& op, std::span<const Tensor> inputs, const void* attrs);

// Whether ops that act only in training, such as dropout, do so: false only if the operands' tape is in evaluate mode.
[[nodiscard]] bool is_training(std::span<const Tensor> operands);

template <class Attrs>
[[nodiscard]] Tensor apply(const OpInfo& op, std::initializer_list<Tensor> inputs, const Attrs& attrs) {
  return apply(op, std::span<const Tensor>(inputs.begin(), inputs.size()), &attrs);
}

// Calls body with a value of the element type, float or double: kernels are templates, dispatched once a call.
template <class Body>
void dispatch(const char* op, DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32: return body(float{});
    case DType::f64: return body(double{});
    default: fail(op, "f32 or f64", name_of(dtype));
  }
}

// The same for ops that also take bf16: Compute<T> is what they calculate with.
template <class Body>
void dispatch_with_bf16(const char* op, DType dtype, Body&& body) {
  dtype == DType::bf16 ? body(bf16{}) : dispatch(op, dtype, body);
}

[[nodiscard]] std::span<const OpInfo* const> all_ops();
[[nodiscard]] const OpInfo* find_op(std::string_view name);

}  // namespace tril

// Registers an op under its name, which must be listed in op_list.h, so that no op escapes the checks.
#define TRIL_REGISTER_OP(name, Type)                                                                    \
  static_assert(::tril::is_listed_op(#name), "add `" #name "` to the list in core/autograd/op_list.h"); \
  namespace registered {                                                                                \
  extern const ::tril::OpInfo name;                                                                     \
  const ::tril::OpInfo name = ::tril::make_op<Type>(#name);                                             \
  }
