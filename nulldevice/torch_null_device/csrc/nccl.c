/* NCCL: communicators know their rank and size, and no other process is asked. Every other rank is taken to have sent what this
 * one did, as far as that is known (kept.c); reductions that would add such data up give zeros. */
#include "null.h"

#include <nccl.h>
#include <string.h>

struct communicator { int ranks, rank; };

static ncclResult_t new_communicator(ncclComm_t *made, int ranks, int rank) {
    struct null_handle *one = null_new_handle();
    if (!one) return ncclSystemError;
    *(struct communicator *)one->payload = (struct communicator){ranks, rank};
    *made = (ncclComm_t)one;
    return ncclSuccess;
}

static struct communicator *communicator_of(ncclComm_t handle) {
    struct null_handle *one = null_handle_of(handle);
    return one ? (struct communicator *)one->payload : NULL;
}

EXPORT ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static atomic_uint next;
    memset(id, 0, sizeof *id);
    unsigned number = atomic_fetch_add(&next, 1);
    memcpy(id, &number, sizeof number);
    return ncclSuccess;
}

EXPORT const char *ncclGetErrorString(ncclResult_t result) { return result ? "an error of the null device" : "no error"; }

EXPORT const char *ncclGetLastError(ncclComm_t communicator) { return ""; }

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *made, int ranks, ncclUniqueId id, int rank) { return new_communicator(made, ranks, rank); }

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *made, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
    return new_communicator(made, ranks, rank);
}

EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *made, int ranks, int rank, int ids, ncclUniqueId *id, ncclConfig_t *config) {
    return new_communicator(made, ranks, rank);
}

EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *made, int count, const int *devices) {
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < count && !result; i++) result = new_communicator(&made[i], count, i);
    return result;
}

EXPORT ncclResult_t ncclCommSplit(ncclComm_t from, int color, int key, ncclComm_t *made, ncclConfig_t *config) {
    struct communicator *one = communicator_of(from);
    if (!one) return ncclInvalidArgument;
    return new_communicator(made, one->ranks, one->rank);
}

EXPORT ncclResult_t ncclCommCount(const ncclComm_t communicator, int *count) {
    struct communicator *one = communicator_of(communicator);
    if (!one) return ncclInvalidArgument;
    *count = one->ranks;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t communicator, int *rank) {
    struct communicator *one = communicator_of(communicator);
    if (!one) return ncclInvalidArgument;
    *rank = one->rank;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t communicator, int *device) {
    struct null_handle *one = null_handle_of(communicator);
    *device = one ? one->device : 0;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *error) {
    *error = ncclSuccess;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
    null_free_handle(communicator);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t communicator) { return ncclCommDestroy(communicator); }

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t communicator) { return ncclSuccess; }

EXPORT ncclResult_t ncclCommRegister(const ncclComm_t communicator, void *buffer, size_t size, void **handle) {
    *handle = buffer;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommDeregister(const ncclComm_t communicator, void *handle) { return ncclSuccess; }

EXPORT ncclResult_t ncclMemAlloc(void **pointer, size_t size) {
    return null_take(pointer, size, PLACE_DEVICE) ? ncclUnhandledCudaError : ncclSuccess;
}

EXPORT ncclResult_t ncclMemFree(void *pointer) { return null_drop(pointer, PLACE_DEVICE) ? ncclUnhandledCudaError : ncclSuccess; }

EXPORT ncclResult_t ncclGroupStart(void) { return ncclSuccess; }

EXPORT ncclResult_t ncclGroupEnd(void) { return ncclSuccess; }

EXPORT ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t where, ncclComm_t c) {
    *op = ncclNumOps;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t communicator) { return ncclSuccess; }

/* ---- collectives ---- */

static size_t bytes_of(size_t count, ncclDataType_t type) {
    switch (type) {
    case ncclInt8: case ncclUint8: return count;
    case ncclFloat16: case 9: return 2 * count; /* ncclBfloat16, which older headers hide */
    case ncclInt32: case ncclUint32: case ncclFloat32: return 4 * count;
    case ncclInt64: case ncclUint64: case ncclFloat64: return 8 * count;
    default: return count; /* the types of 8 bits that newer versions have */
    }
}

/* True where the call became a node of a graph. */
static bool asked(const char *name, ncclComm_t communicator, void *stream) {
    if (null_captured(stream, NODE_KERNEL, name, NULL, NULL)) return true;
    null_count(COUNT_COLLECTIVES, 1);
    null_library_kernel(&(struct null_launch){.name = name, .grid = {1, 1, 1}, .block = {1, 1, 1}, .stream = stream,
                                              .device = null_stream_device(stream)});
    return false;
}

static int ranks_of(ncclComm_t communicator) {
    struct communicator *one = communicator_of(communicator);
    return one ? one->ranks : 1;
}

EXPORT ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t communicator,
                                  cudaStream_t stream) {
    if (!asked("ncclBroadcast", communicator, stream)) null_device_copied(to, from, bytes_of(count, type));
    return ncclSuccess;
}

EXPORT ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t communicator, cudaStream_t stream) {
    asked("ncclBcast", communicator, stream);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t communicator,
                                  cudaStream_t stream) {
    size_t bytes = bytes_of(count, type);
    if (asked("ncclAllGather", communicator, stream)) return ncclSuccess;
    for (int rank = 0; rank < ranks_of(communicator); rank++) null_device_copied((char *)to + (size_t)rank * bytes, from, bytes);
    return ncclSuccess;
}

static void reduced(const void *from, void *to, size_t bytes, ncclRedOp_t op, ncclComm_t communicator) {
    bool same = ranks_of(communicator) == 1 || op == ncclMax || op == ncclMin || op == ncclAvg;
    if (same) null_device_copied(to, from, bytes);
    else null_device_forgot(to, bytes);
}

EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t communicator,
                                  cudaStream_t stream) {
    if (!asked("ncclAllReduce", communicator, stream)) reduced(from, to, bytes_of(count, type), op, communicator);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                               ncclComm_t communicator, cudaStream_t stream) {
    if (!asked("ncclReduce", communicator, stream)) reduced(from, to, bytes_of(count, type), op, communicator);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                      ncclComm_t communicator, cudaStream_t stream) {
    if (!asked("ncclReduceScatter", communicator, stream)) reduced(from, to, bytes_of(count, type), op, communicator);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator, cudaStream_t stream) {
    if (!asked("ncclRecv", communicator, stream)) null_device_forgot(to, bytes_of(count, type));
    return ncclSuccess;
}

EXPORT ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator, cudaStream_t stream) {
    asked("ncclSend", communicator, stream);
    return ncclSuccess;
}
