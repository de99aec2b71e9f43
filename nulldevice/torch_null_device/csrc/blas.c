/* cuBLAS and cuBLASLt: what is asked of handles and algorithms. The products themselves are generated (answers.py). */
#include "null.h"

#include <cublas_api.h>
#include <cublasLt.h>
#include <string.h>

enum setting { MATH_MODE, POINTER_MODE, ATOMICS_MODE, SM_TARGET };

static cublasStatus_t set(void *handle, enum setting which, int value) {
    struct null_handle *one = null_handle_of(handle);
    if (!one) return CUBLAS_STATUS_NOT_INITIALIZED;
    one->settings[which] = value;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get(void *handle, enum setting which, int *value) {
    struct null_handle *one = null_handle_of(handle);
    if (!one) return CUBLAS_STATUS_NOT_INITIALIZED;
    *value = one->settings[which];
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    struct null_handle *one = null_handle_of(handle);
    if (!one) return CUBLAS_STATUS_NOT_INITIALIZED;
    one->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream) {
    *stream = null_handle_stream(handle);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) { return set(handle, MATH_MODE, (int)mode); }

EXPORT cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode) { return get(handle, MATH_MODE, (int *)mode); }

EXPORT cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
    return set(handle, POINTER_MODE, (int)mode);
}

EXPORT cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode) {
    return get(handle, POINTER_MODE, (int *)mode);
}

EXPORT cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
    return set(handle, ATOMICS_MODE, (int)mode);
}

EXPORT cublasStatus_t cublasGetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t *mode) {
    return get(handle, ATOMICS_MODE, (int *)mode);
}

EXPORT cublasStatus_t cublasSetSmCountTarget(cublasHandle_t handle, int count) { return set(handle, SM_TARGET, count); }

EXPORT cublasStatus_t cublasGetSmCountTarget(cublasHandle_t handle, int *count) { return get(handle, SM_TARGET, count); }

EXPORT cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT size_t cublasGetCudartVersion(void) { return (size_t)null_cuda_version(); }

EXPORT const char *cublasGetStatusString(cublasStatus_t status) { return status ? "an error of the null device" : "success"; }

EXPORT const char *cublasGetStatusName(cublasStatus_t status) { return status ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_SUCCESS"; }

/* Batched factorizations tell the host by `info` that their arguments are right. */
#define BATCHED(T, type)                                                                                                             \
    EXPORT cublasStatus_t cublas##T##geqrfBatched(cublasHandle_t handle, int m, int n, type *const a[], int lda, type *const tau[],  \
                                                  int *info, int batch) {                                                            \
        *info = 0;                                                                                                                   \
        null_library_launch("cublas" #T "geqrfBatched", null_handle_stream(handle));                                                 \
        return CUBLAS_STATUS_SUCCESS;                                                                                                \
    }                                                                                                                                \
    EXPORT cublasStatus_t cublas##T##getrsBatched(cublasHandle_t handle, cublasOperation_t trans, int n, int columns,                \
                                                  const type *const a[], int lda, const int *pivots, type *const b[], int ldb,       \
                                                  int *info, int batch) {                                                            \
        *info = 0;                                                                                                                   \
        null_library_launch("cublas" #T "getrsBatched", null_handle_stream(handle));                                                 \
        return CUBLAS_STATUS_SUCCESS;                                                                                                \
    }                                                                                                                                \
    EXPORT cublasStatus_t cublas##T##gelsBatched(cublasHandle_t handle, cublasOperation_t trans, int m, int n, int columns,          \
                                                 type *const a[], int lda, type *const c[], int ldc, int *info, int *device_info,    \
                                                 int batch) {                                                                        \
        *info = 0;                                                                                                                   \
        null_library_launch("cublas" #T "gelsBatched", null_handle_stream(handle));                                                  \
        return CUBLAS_STATUS_SUCCESS;                                                                                                \
    }
BATCHED(S, float)
BATCHED(D, double)
BATCHED(C, cuComplex)
BATCHED(Z, cuDoubleComplex)

/* ---- cuBLASLt ---- */

EXPORT size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

EXPORT size_t cublasLtGetCudartVersion(void) { return (size_t)null_cuda_version(); }

EXPORT const char *cublasLtGetStatusString(cublasStatus_t status) { return cublasGetStatusString(status); }

EXPORT const char *cublasLtGetStatusName(cublasStatus_t status) { return cublasGetStatusName(status); }

/* One algorithm, which needs no workspace. torch has taken its own (CUBLASLT_WORKSPACE_SIZE) from its allocator before. */
EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                                     cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                     cublasLtMatmulPreference_t preference, int wanted,
                                                     cublasLtMatmulHeuristicResult_t results[], int *found) {
    *found = 0;
    if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    memset(results, 0, sizeof *results);
    results->wavesCount = 1;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale,
                                               cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d, int wanted,
                                               int ids[], int *found) {
    *found = wanted > 0;
    if (wanted > 0) ids[0] = 0;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t compute, cudaDataType_t scale, cudaDataType_t a,
                                             cudaDataType_t b, cudaDataType_t c, cudaDataType_t d, int id, cublasLtMatmulAlgo_t *algorithm) {
    memset(algorithm, 0, sizeof *algorithm);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulHeuristicResult_t *result) {
    memset(result, 0, sizeof *result);
    result->algo = *algorithm;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t nothing_of(void *buffer, size_t size, size_t *written) {
    if (buffer) memset(buffer, 0, size);
    if (written) *written = size;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulAlgoConfigAttributes_t which,
                                                           void *buffer, size_t size, size_t *written) {
    return nothing_of(buffer, size, written);
}

EXPORT cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algorithm, cublasLtMatmulAlgoCapAttributes_t which,
                                                        void *buffer, size_t size, size_t *written) {
    return nothing_of(buffer, size, written);
}
