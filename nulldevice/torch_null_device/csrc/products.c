/* Matrix products that torch asks of cuBLAS and cuBLASLt: a launch whose name tells the arithmetic, as real kernels' names do.
 * Those in one arithmetic only (cublasDgemm_v2) are generated (answers.py). */
#include "null.h"

#include <cublas_v2.h>
#include <cublasLt.h>
#include <stdio.h>

enum function { GEMM_EX, GEMM_BATCHED_EX, SGEMM_EX, SGEMM, SGEMM_BATCHED, LT_MATMUL, FUNCTIONS };
static const char *const FUNCTION[FUNCTIONS] = {
    "cublasGemmEx", "cublasGemmStridedBatchedEx", "cublasSgemmEx", "cublasSgemm_v2", "cublasSgemmStridedBatched", "cublasLtMatmul_gemm",
};
enum arithmetic { BF16, FP16, TF32, FP32, FP64, FP8, INT8, OTHER, ARITHMETICS };
static const char *const ARITHMETIC[ARITHMETICS] = {"bf16", "fp16", "tf32", "fp32", "fp64", "e4m3", "int8", "other"};

static enum arithmetic of(cudaDataType_t type, bool tf32) {
    switch ((int)type) {
        case CUDA_R_16BF: return BF16;
        case CUDA_R_16F: return FP16;
        case CUDA_R_32F: case CUDA_C_32F: return tf32 ? TF32 : FP32;
        case CUDA_R_64F: case CUDA_C_64F: return FP64;
        case CUDA_R_8F_E4M3: case CUDA_R_8F_E5M2: return FP8;
        case CUDA_R_8I: return INT8;
        default: return OTHER;
    }
}

/* Names stay valid for good: profilers keep them. */
static const char *name_of(enum function function, enum arithmetic arithmetic) {
    static char names[FUNCTIONS][ARITHMETICS][48];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char *name = names[function][arithmetic];
    pthread_mutex_lock(&lock);
    if (!*name) snprintf(name, sizeof names[0][0], "%s_%s", FUNCTION[function], ARITHMETIC[arithmetic]);
    pthread_mutex_unlock(&lock);
    return name;
}

static bool computes_tf32(cublasComputeType_t compute) { return compute == CUBLAS_COMPUTE_32F_FAST_TF32; }

static cublasStatus_t product(cublasHandle_t handle, enum function function, cudaDataType_t type, bool tf32) {
    cublasMath_t mode = CUBLAS_DEFAULT_MATH;
    if (cublasGetMathMode(handle, &mode) != CUBLAS_STATUS_SUCCESS) return CUBLAS_STATUS_NOT_INITIALIZED;
    bool allowed = tf32 || (mode & 0xF) == CUBLAS_TF32_TENSOR_OP_MATH;
    null_library_launch(name_of(function, of(type, allowed)), null_handle_stream(handle));
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
                                   const void *alpha, const void *a, cudaDataType_t a_type, int lda, const void *b,
                                   cudaDataType_t b_type, int ldb, const void *beta, void *c, cudaDataType_t c_type, int ldc,
                                   cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    return product(handle, GEMM_EX, a_type, computes_tf32(compute));
}

EXPORT cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                                                 int k, const void *alpha, const void *a, cudaDataType_t a_type, int lda,
                                                 long long stride_a, const void *b, cudaDataType_t b_type, int ldb, long long stride_b,
                                                 const void *beta, void *c, cudaDataType_t c_type, int ldc, long long stride_c, int many,
                                                 cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    return product(handle, GEMM_BATCHED_EX, a_type, computes_tf32(compute));
}

EXPORT cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
                                    const float *alpha, const void *a, cudaDataType_t a_type, int lda, const void *b,
                                    cudaDataType_t b_type, int ldb, const float *beta, void *c, cudaDataType_t c_type, int ldc) {
    return product(handle, SGEMM_EX, a_type, false);
}

EXPORT cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
                                     const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta, float *c,
                                     int ldc) {
    return product(handle, SGEMM, CUDA_R_32F, false);
}

EXPORT cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,
                                                int k, const float *alpha, const float *a, int lda, long long stride_a, const float *b,
                                                int ldb, long long stride_b, const float *beta, float *c, int ldc, long long stride_c,
                                                int many) {
    return product(handle, SGEMM_BATCHED, CUDA_R_32F, false);
}

/* ---- cuBLASLt: descriptors remember what they were made with in settings[0] ---- */

static cublasStatus_t described(void *out, int what) {
    struct null_handle *one = null_new_handle();
    if (!one) return CUBLAS_STATUS_ALLOC_FAILED;
    one->settings[0] = what;
    *(struct null_handle **)out = one;
    return CUBLAS_STATUS_SUCCESS;
}

static int setting(const void *descriptor, int otherwise) {
    const struct null_handle *one = null_handle_of(descriptor);
    return one ? one->settings[0] : otherwise;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows, uint64_t columns,
                                                 int64_t leading) {
    return described(layout, (int)type);
}

EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *operation, cublasComputeType_t compute, cudaDataType_t scale) {
    return described(operation, (int)compute);
}

EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha, const void *a,
                                     cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                                     const void *c, cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                                     const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes, cudaStream_t stream) {
    bool tf32 = computes_tf32((cublasComputeType_t)setting(operation, 0));
    null_library_launch(name_of(LT_MATMUL, of((cudaDataType_t)setting(a_layout, -1), tf32)), stream);
    return CUBLAS_STATUS_SUCCESS;
}
