// oneDNN behind one door: f32 matrix products, each made ready once for its shape and then only executed. onednn.cpp is
// the only file that includes oneDNN; it serves 2.6 and 3.x. A MatmulCache belongs to a Context and so to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tril {

// C (batch, m, n) = A (batch, m, k) · B (batch, k, n) [+ bias (n)] [+ C]. Row-major; a transposed operand lies in
// memory as its transpose. lda, ldb, ldc are the lengths of the rows in memory; stride_* the distance between the
// matrices of a batch (0 for A or for B: the same one for all).
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false, bias = false;
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  friend bool operator==(const MatmulShape&, const MatmulShape&) = default;
};

class MatmulCache {
 public:
  MatmulCache();
  ~MatmulCache();
  MatmulCache(const MatmulCache&) = delete;
  MatmulCache& operator=(const MatmulCache&) = delete;

  void run(const MatmulShape& shape, const float* a, const float* b, float* c, const float* bias);
  [[nodiscard]] int64_t size() const;  // how many shapes were made ready

 private:
  struct Engine;
  std::unique_ptr<Engine> engine_;
};

// One product on the calling thread alone, inside a parallel region: C (m, n) = alpha · A · B + beta · C,
// row-major.
void onednn_sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                  int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

[[nodiscard]] std::string onednn_version();  // "3.7.2"
[[nodiscard]] std::string cpu_isa();         // the instruction set oneDNN uses here
[[nodiscard]] bool onednn_uses_amx();

}  // namespace tril
