#include "core/onednn.h"

#include <dnnl.hpp>
#include <utility>
#include <vector>

#include "core/arena.h"
#include "core/check.h"
#include "core/parallel.h"

namespace tril {
namespace {

void multiply_plainly(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                      int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += (transpose_a ? a[p * lda + i] : a[i * lda + p]) * (transpose_b ? b[j * ldb + p] : b[p * ldb + j]);
      float& out = c[i * ldc + j];
      out = alpha * sum + (beta == 0.0f ? 0.0f : beta * out);
    }
}

// A set's number has the bits of all that it includes.
bool covers(dnnl::cpu_isa wanted) {
  const auto has = static_cast<unsigned>(dnnl::get_effective_cpu_isa()), bits = static_cast<unsigned>(wanted);
  return (has & bits) == bits;
}

}  // namespace

void onednn_sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                  int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  const AloneScope alone;
  const dnnl_status_t status =
      dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  // It asks the system for memory and may get none.
  if (status == dnnl_out_of_memory)
    return multiply_plainly(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  TRIL_CHECK(status == dnnl_success, "matmul", cat("oneDNN to multiply ", m, " x ", k, " by ", k, " x ", n),
             cat("its status ", static_cast<int>(status)));
}

void onednn_prepare() {
  constexpr int64_t kNeeded = int64_t{32} << 20, kSide = 64;
  static const bool ready = [] {
    { const MemoryBlock enough(kNeeded); }
    const std::vector<float> a(kSide * kSide, 1.0f);
    std::vector<float> c(kSide * kSide);
    for (const auto& [transpose_a, transpose_b] : {std::pair{false, false}, {false, true}, {true, false}})
      onednn_sgemm(transpose_a, transpose_b, kSide, kSide, kSide, 1.0f, a.data(), kSide, a.data(), kSide, 0.0f,
                   c.data(), kSide);
    return true;
  }();
  (void)ready;
}

std::string onednn_version() {
  const dnnl_version_t* const version = dnnl_version();
  return cat(version->major, ".", version->minor, ".", version->patch);
}

bool onednn_uses_amx() { return covers(dnnl::cpu_isa::avx512_core_amx); }
bool onednn_uses_avx512_bf16() { return covers(dnnl::cpu_isa::avx512_core_bf16); }

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
