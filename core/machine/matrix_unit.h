// Prepares the processor's matrix unit (Intel's AMX with bf16) for the calling thread. It has eight tiles, each of 16
// rows of 64 bytes. Only on a Cpu of CpuLevel::amx.
#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__linux__)
#define TRIL_TILES __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")))
#define TRIL_TILES_INLINE \
  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma"), always_inline)) inline
#endif

namespace tril {

// While it lives, this thread may use the tiles. `rows` (1 to 16) is the number of rows of tiles 0 to 5, which hold
// sums and left operands: fewer are faster to load and multiply.
class MatrixUnit {
 public:
  explicit MatrixUnit(int64_t rows = 16);
  ~MatrixUnit();
  MatrixUnit(const MatrixUnit&) = delete;
  MatrixUnit& operator=(const MatrixUnit&) = delete;
};

}  // namespace tril
