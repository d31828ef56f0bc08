#include "core/onednn.h"

#include <dnnl.hpp>
#include <unordered_map>

#include "core/check.h"

namespace tril {
namespace {

using Dims = dnnl::memory::dims;

struct HashShape {
  size_t operator()(const MatmulShape& shape) const {
    size_t hash = 0;
    const auto mix = [&](int64_t value) {
      hash = (hash ^ static_cast<size_t>(value)) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
    };
    for (const int64_t value : {shape.m, shape.n, shape.k, shape.lda, shape.ldb, shape.ldc, shape.batch, shape.stride_a,
                                shape.stride_b, shape.stride_c})
      mix(value);
    mix(shape.transpose_a + 2 * shape.transpose_b + 4 * shape.accumulate + 8 * shape.bias);
    return hash;
  }
};

// Rows × columns as the product sees them; a stride of 0 over the batch becomes a dimension of 1, which oneDNN
// broadcasts.
dnnl::memory::desc describe(const MatmulShape& shape, int64_t rows, int64_t columns, int64_t row_length,
                            bool transposed, int64_t stride) {
  const Dims strides = transposed ? Dims{1, row_length} : Dims{row_length, 1};
  if (shape.batch == 1) return {{rows, columns}, dnnl::memory::data_type::f32, strides};
  const bool shared = stride == 0;
  return {{shared ? 1 : shape.batch, rows, columns},
          dnnl::memory::data_type::f32,
          {shared ? rows * columns : stride, strides[0], strides[1]}};
}

dnnl::matmul::primitive_desc plan(const dnnl::engine& engine, const MatmulShape& shape) {
  const auto a = describe(shape, shape.m, shape.k, shape.lda, shape.transpose_a, shape.stride_a);
  const auto b = describe(shape, shape.k, shape.n, shape.ldb, shape.transpose_b, shape.stride_b);
  const auto c = describe(shape, shape.m, shape.n, shape.ldc, false, shape.stride_c);
  const auto bias = shape.batch == 1
                        ? dnnl::memory::desc({1, shape.n}, dnnl::memory::data_type::f32, Dims{shape.n, 1})
                        : dnnl::memory::desc({1, 1, shape.n}, dnnl::memory::data_type::f32, Dims{shape.n, shape.n, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  return shape.bias ? dnnl::matmul::primitive_desc(engine, a, b, bias, c, attributes)
                    : dnnl::matmul::primitive_desc(engine, a, b, c, attributes);
#else
  return shape.bias ? dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, bias, c), attributes, engine)
                    : dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, engine);
#endif
}

}  // namespace

struct MatmulCache::Engine {
  struct Ready {
    dnnl::matmul primitive;
    dnnl::memory a, b, c, bias, scratchpad;
  };

  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::unordered_map<MatmulShape, Ready, HashShape> ready;
  std::vector<std::byte> scratchpad;  // one for all: products run one after the other

  Ready& find(const MatmulShape& shape) {
    if (const auto found = ready.find(shape); found != ready.end()) return found->second;
    const auto planned = plan(engine, shape);
    const auto empty = [&](const dnnl::memory::desc& desc) { return dnnl::memory(desc, engine, DNNL_MEMORY_NONE); };
    Ready made{dnnl::matmul(planned),
               empty(planned.src_desc()),
               empty(planned.weights_desc()),
               empty(planned.dst_desc()),
               shape.bias ? empty(planned.bias_desc()) : dnnl::memory(),
               empty(planned.scratchpad_desc())};
    if (const size_t bytes = planned.scratchpad_desc().get_size() + 64; bytes > scratchpad.size())
      scratchpad.resize(bytes);
    return ready.emplace(shape, std::move(made)).first->second;
  }
};

MatmulCache::MatmulCache() : engine_(std::make_unique<Engine>()) {}
MatmulCache::~MatmulCache() = default;

int64_t MatmulCache::size() const { return static_cast<int64_t>(engine_->ready.size()); }

void MatmulCache::run(const MatmulShape& shape, const float* a, const float* b, float* c, const float* bias) {
  // For Aᵀ B, the gradients of weights, oneDNN's sgemm is up to 15 % ahead of its matmul, and has nothing to make
  // ready.
  if (shape.transpose_a && !shape.transpose_b && !shape.bias && shape.batch == 1)
    return onednn_sgemm(true, false, shape.m, shape.n, shape.k, 1.0f, a, shape.lda, b, shape.ldb,
                        shape.accumulate ? 1.0f : 0.0f, c, shape.ldc);
  try {
    Engine::Ready& ready = engine_->find(shape);
    ready.a.set_data_handle(const_cast<float*>(a));
    ready.b.set_data_handle(const_cast<float*>(b));
    ready.c.set_data_handle(c);
    const auto aligned = (reinterpret_cast<uintptr_t>(engine_->scratchpad.data()) + 63) / 64 * 64;
    ready.scratchpad.set_data_handle(reinterpret_cast<void*>(aligned));
    dnnl_exec_arg_t arguments[5] = {{DNNL_ARG_SRC, ready.a.get()},
                                    {DNNL_ARG_WEIGHTS, ready.b.get()},
                                    {DNNL_ARG_DST, ready.c.get()},
                                    {DNNL_ARG_SCRATCHPAD, ready.scratchpad.get()},
                                    {DNNL_ARG_BIAS, nullptr}};
    if (shape.bias) {
      ready.bias.set_data_handle(const_cast<float*>(bias));
      arguments[4].memory = ready.bias.get();
    }
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(ready.primitive.get(), engine_->stream.get(), shape.bias ? 5 : 4, arguments), "execute");
  } catch (const dnnl::error& error) {
    fail("matmul", "oneDNN to run the product",
         cat(error.what(), " for ", shape.m, " x ", shape.k, " times ", shape.k, " x ", shape.n));
  }
}

void onednn_sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                  int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  (void)dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

std::string onednn_version() {
  const dnnl_version_t* const version = dnnl_version();
  return cat(version->major, ".", version->minor, ".", version->patch);
}

bool onednn_uses_amx() { return dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_amx; }

std::string cpu_isa() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41: return "SSE4.1";
    case dnnl::cpu_isa::avx: return "AVX";
    case dnnl::cpu_isa::avx2: return "AVX2";
    case dnnl::cpu_isa::avx2_vnni: return "AVX2 VNNI";
    case dnnl::cpu_isa::avx512_core: return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni: return "AVX-512 VNNI";
    case dnnl::cpu_isa::avx512_core_bf16: return "AVX-512 BF16";
    default: break;
  }
#if DNNL_VERSION_MAJOR >= 3
  if (dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_amx) return "AVX-512 AMX";
  if (dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_fp16) return "AVX-512 FP16";
#else
  if (dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_amx) return "AVX-512 AMX";
#endif
  return "baseline";
}

}  // namespace tril
