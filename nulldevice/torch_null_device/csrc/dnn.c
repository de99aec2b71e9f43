/* cuDNN's handles, descriptors and convolutions. What has no answer to give is generated (answers.py); the graph API is in
 * dnn_graph.c, recurrent networks are in dnn_rnn.c. */
#include "null.h"

#include <cudnn.h>
#include <stdio.h>
#include <string.h>

EXPORT size_t cudnnGetVersion(void) { return CUDNN_VERSION; }

EXPORT size_t cudnnGetCudartVersion(void) { return (size_t)null_cuda_version(); }

EXPORT size_t cudnnGetMaxDeviceVersion(void) { return (size_t)(null_gpu()->major * 100 + null_gpu()->minor * 10); }

EXPORT const char *cudnnGetErrorString(cudnnStatus_t status) {
    return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS"
           : status == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : "an error of the null device";
}

EXPORT void cudnnGetLastErrorString(char *message, size_t size) {
    if (size) snprintf(message, size, "the null device does not answer this");
}

EXPORT cudnnStatus_t cudnnGetProperty(libraryPropertyType which, int *value) {
    *value = which == MAJOR_VERSION ? CUDNN_MAJOR : which == MINOR_VERSION ? CUDNN_MINOR : CUDNN_PATCHLEVEL;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    struct null_handle *one = null_handle_of(handle);
    if (!one) return CUDNN_STATUS_NOT_INITIALIZED;
    one->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
    *stream = null_handle_stream(handle);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors of tensors and filters: kept, since they are asked for again ---- */

struct shape {
    int type, format, dimensions;
    int sizes[CUDNN_DIM_MAX], strides[CUDNN_DIM_MAX];
};
_Static_assert(sizeof(struct shape) <= sizeof(((struct null_handle *)0)->payload), "a handle keeps a shape");

static struct shape *shape_of(const void *descriptor) {
    struct null_handle *one = null_handle_of(descriptor);
    return one ? (struct shape *)one->payload : NULL;
}

static cudnnStatus_t keep(const void *descriptor, int type, int format, int dimensions, const int *sizes, const int *strides) {
    struct shape *shape = shape_of(descriptor);
    if (!shape || dimensions < 0 || dimensions > CUDNN_DIM_MAX) return CUDNN_STATUS_BAD_PARAM;
    shape->type = type;
    shape->format = format;
    shape->dimensions = dimensions;
    memcpy(shape->sizes, sizes, sizeof *sizes * (size_t)dimensions);
    if (strides) memcpy(shape->strides, strides, sizeof *strides * (size_t)dimensions);
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int dimensions, const int sizes[],
                                                const int strides[]) {
    return keep(tensor, (int)type, 0, dimensions, sizes, strides);
}

EXPORT cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t tensor, int wanted, cudnnDataType_t *type, int *dimensions,
                                                int sizes[], int strides[]) {
    struct shape *shape = shape_of(tensor);
    if (!shape) return CUDNN_STATUS_BAD_PARAM;
    if (type) *type = (cudnnDataType_t)shape->type;
    if (dimensions) *dimensions = shape->dimensions;
    for (int i = 0; i < wanted && i < shape->dimensions; i++) sizes[i] = shape->sizes[i], strides[i] = shape->strides[i];
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type, cudnnTensorFormat_t format,
                                                int dimensions, const int sizes[]) {
    return keep(filter, (int)type, (int)format, dimensions, sizes, NULL);
}

EXPORT cudnnStatus_t cudnnGetFilterNdDescriptor(const cudnnFilterDescriptor_t filter, int wanted, cudnnDataType_t *type,
                                                cudnnTensorFormat_t *format, int *dimensions, int sizes[]) {
    struct shape *shape = shape_of(filter);
    if (!shape) return CUDNN_STATUS_BAD_PARAM;
    *type = (cudnnDataType_t)shape->type;
    *format = (cudnnTensorFormat_t)shape->format;
    *dimensions = shape->dimensions;
    for (int i = 0; i < wanted && i < shape->dimensions; i++) sizes[i] = shape->sizes[i];
    return CUDNN_STATUS_SUCCESS;
}

/* ---- the older way of convolutions: one algorithm, without workspace ---- */

#define FIRST_ALGORITHM(results, wanted, found)                   \
    do {                                                          \
        *(found) = 0;                                             \
        if ((wanted) < 1) return CUDNN_STATUS_BAD_PARAM;          \
        memset((results), 0, sizeof *(results));                  \
        (results)->algo = 1;                                      \
        (results)->time = 1;                                      \
        (results)->determinism = CUDNN_DETERMINISTIC;             \
        *(found) = 1;                                             \
        return CUDNN_STATUS_SUCCESS;                              \
    } while (0)

EXPORT cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                            const cudnnFilterDescriptor_t w, const cudnnConvolutionDescriptor_t convolution,
                                                            const cudnnTensorDescriptor_t y, const int wanted, int *found,
                                                            cudnnConvolutionFwdAlgoPerf_t *results) {
    FIRST_ALGORITHM(results, wanted, found);
}

EXPORT cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                                 const cudnnTensorDescriptor_t dy,
                                                                 const cudnnConvolutionDescriptor_t convolution,
                                                                 const cudnnTensorDescriptor_t dx, const int wanted, int *found,
                                                                 cudnnConvolutionBwdDataAlgoPerf_t *results) {
    FIRST_ALGORITHM(results, wanted, found);
}

EXPORT cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                                   const cudnnTensorDescriptor_t dy,
                                                                   const cudnnConvolutionDescriptor_t convolution,
                                                                   const cudnnFilterDescriptor_t dw, const int wanted, int *found,
                                                                   cudnnConvolutionBwdFilterAlgoPerf_t *results) {
    FIRST_ALGORITHM(results, wanted, found);
}

EXPORT cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t handle, const cudnnTensorDescriptor_t x_shape, const void *x,
                                                            const cudnnFilterDescriptor_t w_shape, const void *w,
                                                            const cudnnConvolutionDescriptor_t convolution,
                                                            const cudnnTensorDescriptor_t y_shape, void *y, const int wanted, int *found,
                                                            cudnnConvolutionFwdAlgoPerf_t *results, void *workspace, size_t size) {
    FIRST_ALGORITHM(results, wanted, found);
}

EXPORT cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(cudnnHandle_t handle, const cudnnFilterDescriptor_t w_shape,
                                                                 const void *w, const cudnnTensorDescriptor_t dy_shape, const void *dy,
                                                                 const cudnnConvolutionDescriptor_t convolution,
                                                                 const cudnnTensorDescriptor_t dx_shape, void *dx, const int wanted,
                                                                 int *found, cudnnConvolutionBwdDataAlgoPerf_t *results, void *workspace,
                                                                 size_t size) {
    FIRST_ALGORITHM(results, wanted, found);
}

EXPORT cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(cudnnHandle_t handle, const cudnnTensorDescriptor_t x_shape,
                                                                   const void *x, const cudnnTensorDescriptor_t dy_shape, const void *dy,
                                                                   const cudnnConvolutionDescriptor_t convolution,
                                                                   const cudnnFilterDescriptor_t dw_shape, void *dw, const int wanted,
                                                                   int *found, cudnnConvolutionBwdFilterAlgoPerf_t *results,
                                                                   void *workspace, size_t size) {
    FIRST_ALGORITHM(results, wanted, found);
}
