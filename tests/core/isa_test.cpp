// How the instruction set is named, for processors that this machine is not.
#include "core/machine/onednn.h"
#include "support/catch.h"

using namespace tril;
using namespace tril::test;

TEST_CASE("isa: off x86 it is what the compiler was told, whatever oneDNN answers") {
  for (const unsigned answer : {0x0u, 0x1u, 0x7u, 0x27u, 0xE7u, 0x3E7u, 0xFEFu, 0xFFFFFFFFu}) {
    CHECK(isa_name({"aarch64", "NEON"}, answer) == "aarch64 (NEON)");
    CHECK(isa_name({"riscv", ""}, answer) == "riscv");
  }
}

TEST_CASE("isa: on x86 it is the richest set that oneDNN's number covers, known to it or not") {
  const CompilerTarget x86{"x86-64", ""};
  CHECK(isa_name(x86, 0x0) == "baseline");
  CHECK(isa_name(x86, 0x1) == "SSE4.1");
  CHECK(isa_name(x86, 0x3) == "AVX");
  CHECK(isa_name(x86, 0x7) == "AVX2");
  CHECK(isa_name(x86, 0x27) == "AVX-512");
  CHECK(isa_name(x86, 0x67) == "AVX-512 VNNI");
  CHECK(isa_name(x86, 0xE7) == "AVX-512 BF16");
  CHECK(isa_name(x86, 0xFFFFFFFF) == "AVX-512 AMX");
  CHECK_THAT(isa_name(x86, 0x1F), contains("AVX2"));  // AVX2 VNNI 2, of which version 2.6 has not heard
}

TEST_CASE("isa: it is named after what runs here") {
  const std::string isa = cpu_isa();
#if defined(__x86_64__)
  CHECK(compiler_target().machine == "x86-64");
  // ONEDNN_MAX_CPU_ISA may ask for less than there is, never for more.
  if (isa.starts_with("AVX-512")) CHECK(__builtin_cpu_supports("avx512f"));
  if (isa.starts_with("AVX2")) CHECK(__builtin_cpu_supports("avx2"));
#else
  CHECK_THAT(isa, !contains("AVX") && !contains("SSE"));
  CHECK(cpu().level == CpuLevel::baseline);
#endif
}
