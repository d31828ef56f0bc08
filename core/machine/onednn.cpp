#include "core/machine/onednn.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <dnnl.hpp>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/machine/arena.h"
#include "core/machine/parallel.h"

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

// The number of an instruction set has the bits of all sets that it includes. Off x86, oneDNN names a set that it does
// not use.
bool covers(unsigned number, dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (number & bits) == bits;
}

unsigned effective_number() { return static_cast<unsigned>(dnnl::get_effective_cpu_isa()); }

bool is_x86(const CompilerTarget& target) { return target.machine == "x86-64"; }

// The instruction set of each level, the richest first. If oneDNN uses another set, its level is the first one included
// in it.
struct LevelIsa {
  CpuLevel level;
  dnnl::cpu_isa isa;
};
constexpr LevelIsa kLevels[] = {{CpuLevel::amx, dnnl::cpu_isa::avx512_core_amx},
                                {CpuLevel::avx512_bf16, dnnl::cpu_isa::avx512_core_bf16},
                                {CpuLevel::avx512, dnnl::cpu_isa::avx512_core},
                                {CpuLevel::avx2, dnnl::cpu_isa::avx2},
                                {CpuLevel::baseline, dnnl::cpu_isa::sse41}};

// The level that oneDNN's own variable allows. It is read here because a limit set through the API would replace it.
// oneDNN knows both names, and values in upper or lower case.
CpuLevel allowed_by_environment() {
  const char* name = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (name == nullptr) name = std::getenv("DNNL_MAX_CPU_ISA");
  if (name == nullptr) return CpuLevel::amx;
  std::string asked(name);
  std::transform(asked.begin(), asked.end(), asked.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  if (asked == "SSE41" || asked == "AVX") return CpuLevel::baseline;
  if (asked.starts_with("AVX2")) return CpuLevel::avx2;
  if (asked == "AVX512_CORE" || asked == "AVX512_CORE_VNNI") return CpuLevel::avx512;
  if (asked == "AVX512_CORE_BF16" || asked == "AVX512_CORE_FP16") return CpuLevel::avx512_bf16;
  return CpuLevel::amx;
}

struct NamedIsa {
  dnnl::cpu_isa isa;
  std::string_view name;
};
// The richest first.
constexpr NamedIsa kIsas[] = {{dnnl::cpu_isa::avx512_core_amx, "AVX-512 AMX"},
#if DNNL_VERSION_MAJOR >= 3
                              {dnnl::cpu_isa::avx512_core_fp16, "AVX-512 FP16"},
#endif
                              {dnnl::cpu_isa::avx512_core_bf16, "AVX-512 BF16"},
                              {dnnl::cpu_isa::avx512_core_vnni, "AVX-512 VNNI"},
                              {dnnl::cpu_isa::avx512_core, "AVX-512"},
                              {dnnl::cpu_isa::avx2_vnni, "AVX2 VNNI"},
                              {dnnl::cpu_isa::avx2, "AVX2"},
                              {dnnl::cpu_isa::avx, "AVX"},
                              {dnnl::cpu_isa::sse41, "SSE4.1"}};

}  // namespace

void onednn_sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                  int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  const AloneScope alone;
  // With alpha = 0, oneDNN ignores NaN in A and B, and 2.6 without AVX2 reads C although beta is 0.
  if (alpha == 0.0f) return multiply_plainly(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  const dnnl_status_t status =
      dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  // oneDNN asks the system for memory and may be refused.
  if (status == dnnl_out_of_memory)
    return multiply_plainly(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  TRIL_CHECK(status == dnnl_success, "matmul", cat("oneDNN to multiply ", m, " x ", k, " by ", k, " x ", n),
             cat("its status ", static_cast<int>(status)));
}

void onednn_prepare() {
  constexpr int64_t kNeeded = int64_t{32} << 20, kSide = 64;
  static const bool ready = [] {
    (void)cpu();  // which may limit oneDNN
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

CpuLevel onednn_level(CpuLevel most, bool lower) {
  if (!is_x86(compiler_target())) return most;
  // oneDNN refuses this once it has multiplied; then only its own products keep the set that it chose.
  if (lower && most < allowed_by_environment())
    for (const auto& [level, isa] : kLevels)
      if (level == most) (void)dnnl::set_max_cpu_isa(isa);
  const unsigned number = effective_number();
  for (const auto& [level, isa] : kLevels)
    if (level <= most && covers(number, isa)) return level;
  return CpuLevel::baseline;
}

CompilerTarget compiler_target() {
#if defined(__x86_64__)
  return {"x86-64", ""};
#elif defined(__aarch64__) && defined(__ARM_FEATURE_SVE)
  return {"aarch64", "SVE"};
#elif defined(__aarch64__)
  return {"aarch64", "NEON"};
#elif defined(__powerpc64__) && defined(__VSX__)
  return {"ppc64", "VSX"};
#elif defined(__riscv) && defined(__riscv_vector)
  return {"riscv", "V"};
#elif defined(__riscv)
  return {"riscv", ""};
#elif defined(__s390x__) && defined(__VEC__)
  return {"s390x", "vector facility"};
#elif defined(__loongarch_sx)
  return {"loongarch", "LSX"};
#else
  return {"not x86-64", ""};
#endif
}

std::string isa_name(const CompilerTarget& target, unsigned onednn_number) {
  if (!is_x86(target)) return cat(target.machine, target.vectors.empty() ? "" : cat(" (", target.vectors, ")"));
  for (const auto& [isa, name] : kIsas)
    if (covers(onednn_number, isa)) return std::string(name);
  return "baseline";
}

std::string cpu_isa() {
  (void)cpu();  // which may limit oneDNN
  return isa_name(compiler_target(), effective_number());
}

}  // namespace tril
