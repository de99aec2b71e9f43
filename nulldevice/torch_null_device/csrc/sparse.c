/* cuSPARSE: descriptors of matrices, and the number of entries of products, which depends on values: none. */
#include "null.h"

#include <cusparse.h>

struct matrix { int64_t rows, columns, entries; };

static cusparseStatus_t new_matrix(void **descriptor, int64_t rows, int64_t columns, int64_t entries) {
    struct null_handle *one = null_new_handle();
    if (!one) return CUSPARSE_STATUS_ALLOC_FAILED;
    *(struct matrix *)one->payload = (struct matrix){rows, columns, entries};
    *descriptor = one;
    return CUSPARSE_STATUS_SUCCESS;
}

EXPORT cusparseStatus_t cusparseCreateCsr(cusparseSpMatDescr_t *descriptor, int64_t rows, int64_t columns, int64_t entries, void *offsets,
                                          void *indices, void *values, cusparseIndexType_t offset_type, cusparseIndexType_t index_type,
                                          cusparseIndexBase_t base, cudaDataType type) {
    return new_matrix((void **)descriptor, rows, columns, entries);
}

EXPORT cusparseStatus_t cusparseCreateCoo(cusparseSpMatDescr_t *descriptor, int64_t rows, int64_t columns, int64_t entries, void *row_indices,
                                          void *column_indices, void *values, cusparseIndexType_t index_type, cusparseIndexBase_t base,
                                          cudaDataType type) {
    return new_matrix((void **)descriptor, rows, columns, entries);
}

EXPORT cusparseStatus_t cusparseSpMatGetSize(cusparseConstSpMatDescr_t descriptor, int64_t *rows, int64_t *columns, int64_t *entries) {
    struct null_handle *one = null_handle_of(descriptor);
    if (!one) return CUSPARSE_STATUS_INVALID_VALUE;
    const struct matrix *matrix = (const struct matrix *)one->payload;
    *rows = matrix->rows;
    *columns = matrix->columns;
    *entries = matrix->entries;
    return CUSPARSE_STATUS_SUCCESS;
}

EXPORT cusparseStatus_t cusparseSetStream(cusparseHandle_t handle, cudaStream_t stream) {
    struct null_handle *one = null_handle_of(handle);
    if (!one) return CUSPARSE_STATUS_NOT_INITIALIZED;
    one->stream = stream;
    return CUSPARSE_STATUS_SUCCESS;
}

EXPORT cusparseStatus_t cusparseGetStream(cusparseHandle_t handle, cudaStream_t *stream) {
    *stream = null_handle_stream(handle);
    return CUSPARSE_STATUS_SUCCESS;
}

EXPORT const char *cusparseGetErrorString(cusparseStatus_t status) { return status ? "an error of the null device" : "success"; }

EXPORT const char *cusparseGetErrorName(cusparseStatus_t status) {
    return status ? "CUSPARSE_STATUS_NOT_SUPPORTED" : "CUSPARSE_STATUS_SUCCESS";
}

EXPORT cusparseStatus_t cusparseXcsrgeam2Nnz(cusparseHandle_t handle, int m, int n, const cusparseMatDescr_t a, int entries_a,
                                             const int *offsets_a, const int *indices_a, const cusparseMatDescr_t b, int entries_b,
                                             const int *offsets_b, const int *indices_b, const cusparseMatDescr_t c, int *offsets_c,
                                             int *entries, void *workspace) {
    null_library_launch("cusparseXcsrgeam2Nnz", null_handle_stream(handle));
    if (null_place_of(entries) != PLACE_DEVICE) *entries = 0;
    return CUSPARSE_STATUS_SUCCESS;
}
