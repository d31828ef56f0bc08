#include "core/kernels/dropout.h"

#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

template <class T>
TRIL_INLINE void drop(const DropoutMask& mask, uint32_t sample, int64_t begin, int64_t n, const T* x, T* y,
                      bool accumulate) {
  for (int64_t at = 0; at < n; at += kRandomBlock) {
    T factors[kRandomBlock];
    const int64_t part = std::min(kRandomBlock, n - at);
    dropout_factors(mask, sample, begin + at, part, factors);
    for (int64_t i = 0; i < part; ++i)
      y[at + i] = accumulate ? y[at + i] + factors[i] * x[at + i] : factors[i] * x[at + i];
  }
}

struct Dropout {
  struct Attrs {
    double p;
  };

  static void infer(Infer& op, const Attrs& attrs) {
    op.expect_floating(0, "x");
    TRIL_CHECK(attrs.p >= 0.0 && attrs.p < 1.0, op.name(), "0 <= p < 1", cat(attrs.p));
    op.output(op.shape(0), op.in(0).dtype);
  }

  static void forward(const Forward& op, const Attrs& attrs) { run(op, attrs, op.in(0), op.out(0), false); }
  static void backward(const Backward& op, const Attrs& attrs) {
    run(op, attrs, op.dout(0), op.din(0).tensor, op.din(0).accumulate);
  }

  static std::vector<Sample> samples() {
    const auto sample = [](const Shape& shape, double p, const char* error = "") {
      return Sample{.label = cat(shape, " p ", p),
                    .inputs = {{.shape = shape}},
                    .run = [=](auto in) { return std::vector{dropout(in[0], p)}; },
                    .error = error};
    };
    return {sample({7}, 0.5),
            sample({2, 65}, 0.2),
            sample({3, 130}, 0.9),
            sample({2, 3}, 0.0),
            sample({3, 6000}, 0.2),
            sample({}, 0.3),
            sample({2}, 1.0, "dropout: expected 0 <= p < 1, got 1"),
            sample({2}, -0.1, "dropout: expected 0 <= p < 1, got -0.1")};
  }

 private:
  static void run(const Forward& op, const Attrs& attrs, const Tensor& x, const Tensor& y, bool accumulate) {
    const DropoutMask mask(op.key(), attrs.p);
    const int64_t samples = x.shape.rank() == 0 ? 1 : x.shape[0], length = samples == 0 ? 0 : x.count() / samples;
    const int64_t blocks = (length + kRandomBlock - 1) / kRandomBlock;
    dispatch(op.name(), x.dtype, [&](auto type) {
      using T = decltype(type);
      const T* const from = x.ptr<T>();
      T* const to = y.ptr<T>();
      parallel_for(op.threads(), samples * blocks, kElementGrain / kRandomBlock, [&](int64_t begin, int64_t end, int) {
        for (int64_t at = begin; at < end;) {
          const int64_t sample = at / blocks, block = at % blocks, count = std::min(blocks - block, end - at);
          const int64_t first = block * kRandomBlock, n = std::min(count * kRandomBlock, length - first),
                        offset = sample * length + first;
          cloned<drop<T>>(mask, op.first_sample() + static_cast<uint32_t>(sample), first, n, from + offset, to + offset,
                          accumulate);
          at += count;
        }
      });
    });
  }
};

}  // namespace

TRIL_REGISTER_OP(dropout, Dropout)

Tensor dropout(const Tensor& x, double p) {
  if (!is_training({&x, 1})) return x;
  return apply(registered::dropout, {x}, Dropout::Attrs{p});
}

}  // namespace tril
