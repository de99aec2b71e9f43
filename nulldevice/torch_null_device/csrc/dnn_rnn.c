/* cuDNN's recurrent networks: the layout of their weights, and the sizes that torch allocates by. */
#include "null.h"

#include <cudnn.h>
#include <string.h>

struct rnn {
    int gates;      /* matrices that take the input: 1, 4 (LSTM), 3 (GRU) */
    int layers, directions, input, hidden, projected;
    int biases;     /* vectors a gate has: 0, 1 or 2 */
    int element;    /* bytes */
    int type;
};
struct rnn_data { int element, steps, batch, width; };

static struct rnn *rnn_of(const void *descriptor) {
    struct null_handle *one = null_handle_of(descriptor);
    return one ? (struct rnn *)one->payload : NULL;
}

static int bytes_of(cudnnDataType_t type) {
    return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
}

EXPORT cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t descriptor, cudnnRNNAlgo_t algorithm, cudnnRNNMode_t cell,
                                              cudnnRNNBiasMode_t biases, cudnnDirectionMode_t direction, cudnnRNNInputMode_t input_mode,
                                              cudnnDataType_t type, cudnnDataType_t precision, cudnnMathType_t math, int32_t input,
                                              int32_t hidden, int32_t projected, int32_t layers, cudnnDropoutDescriptor_t dropout,
                                              uint32_t flags) {
    struct rnn *rnn = rnn_of(descriptor);
    if (!rnn) return CUDNN_STATUS_BAD_PARAM;
    rnn->gates = cell == CUDNN_LSTM ? 4 : cell == CUDNN_GRU ? 3 : 1;
    rnn->layers = layers;
    rnn->directions = direction == CUDNN_BIDIRECTIONAL ? 2 : 1;
    rnn->input = input;
    rnn->hidden = hidden;
    rnn->projected = projected;
    rnn->biases = biases == CUDNN_RNN_NO_BIAS ? 0 : biases == CUDNN_RNN_DOUBLE_BIAS ? 2 : 1;
    rnn->element = bytes_of(type);
    rnn->type = (int)type;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t descriptor, cudnnDataType_t type, cudnnRNNDataLayout_t layout,
                                               int steps, int batch, int width, const int lengths[], void *padding) {
    struct null_handle *one = null_handle_of(descriptor);
    if (!one) return CUDNN_STATUS_BAD_PARAM;
    *(struct rnn_data *)one->payload = (struct rnn_data){bytes_of(type), steps, batch, width};
    return CUDNN_STATUS_SUCCESS;
}

/* ---- weights: the matrices of all layers, then the biases of all layers, as cuDNN packs them ---- */

static int output_of(const struct rnn *rnn) { return rnn->projected != rnn->hidden && rnn->projected > 0 ? rnn->projected : rnn->hidden; }

static bool projects(const struct rnn *rnn) { return output_of(rnn) != rnn->hidden; }

static size_t input_of(const struct rnn *rnn, int layer) {
    return (size_t)(layer < rnn->directions ? rnn->input : output_of(rnn) * rnn->directions);
}

/* Elements of the matrices of one layer of one direction. */
static size_t layer_elements(const struct rnn *rnn, int layer) {
    size_t hidden = (size_t)rnn->hidden, output = (size_t)output_of(rnn);
    size_t projection = projects(rnn) ? hidden * output : 0;
    return (size_t)rnn->gates * hidden * (input_of(rnn, layer) + output) + projection;
}

static size_t all_matrices(const struct rnn *rnn, int until) {
    size_t elements = 0;
    for (int layer = 0; layer < until; layer++) elements += layer_elements(rnn, layer);
    return elements;
}

static size_t layer_biases(const struct rnn *rnn) { return (size_t)(rnn->gates * rnn->biases) * (size_t)rnn->hidden; }

EXPORT cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t descriptor, size_t *size) {
    struct rnn *rnn = rnn_of(descriptor);
    if (!rnn) return CUDNN_STATUS_BAD_PARAM;
    int layers = rnn->layers * rnn->directions;
    *size = (all_matrices(rnn, layers) + (size_t)layers * layer_biases(rnn)) * (size_t)rnn->element;
    return CUDNN_STATUS_SUCCESS;
}

static void describe(cudnnTensorDescriptor_t descriptor, const struct rnn *rnn, size_t rows, size_t columns) {
    int sizes[3] = {1, (int)rows, (int)columns}, strides[3] = {(int)(rows * columns), (int)columns, 1};
    if (descriptor) cudnnSetTensorNdDescriptor(descriptor, (cudnnDataType_t)rnn->type, 3, sizes, strides);
}

/* `which`: 0 .. gates - 1 take the input, gates .. 2 * gates - 1 the hidden state, 2 * gates (LSTM) projects. */
EXPORT cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t descriptor, int32_t layer, size_t size,
                                             const void *space, int32_t which, cudnnTensorDescriptor_t matrix, void **matrix_at,
                                             cudnnTensorDescriptor_t bias, void **bias_at) {
    struct rnn *rnn = rnn_of(descriptor);
    if (!rnn) return CUDNN_STATUS_BAD_PARAM;
    size_t hidden = (size_t)rnn->hidden, input = input_of(rnn, layer), output = (size_t)output_of(rnn), gates = (size_t)rnn->gates;
    size_t at = all_matrices(rnn, layer), number = (size_t)which;
    bool projection = number == 2 * gates;
    if (matrix_at) *matrix_at = NULL;
    if (bias_at) *bias_at = NULL;
    if (number > 2 * gates || (projection && !projects(rnn))) return CUDNN_STATUS_SUCCESS;
    if (number < gates) at += number * hidden * input;
    else at += gates * hidden * input + (number - gates) * hidden * output;
    if (projection) describe(matrix, rnn, output, hidden);
    else describe(matrix, rnn, hidden, number < gates ? input : output);
    if (matrix_at) *matrix_at = (char *)space + at * (size_t)rnn->element;
    bool has_bias = !projection && (rnn->biases == 2 || (rnn->biases == 1 && number < gates));
    if (has_bias && bias_at) {
        size_t biases = all_matrices(rnn, rnn->layers * rnn->directions) + (size_t)layer * layer_biases(rnn) + number * hidden;
        describe(bias, rnn, hidden, 1);
        *bias_at = (char *)space + biases * (size_t)rnn->element;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* cuDNN does not say how it comes to its sizes. What training must keep for the backward of each step of each layer are the
 * gates' activations and the states: that is what is reserved here, and no workspace. */
EXPORT cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t descriptor, cudnnForwardMode_t mode,
                                               cudnnRNNDataDescriptor_t x, size_t *workspace, size_t *reserve) {
    struct rnn *rnn = rnn_of(descriptor);
    struct null_handle *data = null_handle_of(x);
    if (!rnn || !data) return CUDNN_STATUS_BAD_PARAM;
    const struct rnn_data *shape = (const struct rnn_data *)data->payload;
    size_t states = (size_t)rnn->gates + (rnn->gates == 4 ? 2 : 1);
    size_t each = (size_t)rnn->hidden * states * (size_t)rnn->element;
    if (workspace) *workspace = 0;
    if (reserve) *reserve = mode == CUDNN_FWD_MODE_TRAINING
        ? each * (size_t)(rnn->layers * rnn->directions) * (size_t)shape->steps * (size_t)shape->batch : 0;
    return CUDNN_STATUS_SUCCESS;
}

/* A generator's state for each thread that is resident: 48 bytes (curandStateXORWOW_t). */
EXPORT cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *size) {
    *size = (size_t)null_gpu()->processors * (size_t)null_gpu()->threads_processor * 48;
    return CUDNN_STATUS_SUCCESS;
}
