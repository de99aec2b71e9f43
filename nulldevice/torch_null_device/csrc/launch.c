/* Kernels: what programs register, and launches that are checked and counted but not done. */
#include "null.h"

#include <stdlib.h>
#include <string.h>

/* ---- what a program's initializers register ---- */

EXPORT void **__cudaRegisterFatBinary(void *binary) {
    static void *handle;
    return &handle;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **handle) {}

EXPORT void __cudaUnregisterFatBinary(void **handle) {}

EXPORT char __cudaInitModule(void **handle) { return 1; }

EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int threads, void *thread_id,
                                   void *block_id, void *block, void *grid, int *warp) {
    null_register_kernel(host, name);
}

EXPORT void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t size, int constant,
                              int global) {}

EXPORT void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int external, size_t size,
                                     int constant, int global) {
    null_take(host, size, PLACE_MANAGED);
}

/* ---- <<<grid, block, shared, stream>>> ---- */

struct configuration { dim3 grid, block; size_t shared; void *stream; };
static _Thread_local struct configuration configurations[8];
static _Thread_local unsigned depth;

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    configurations[depth++ % COUNT(configurations)] = (struct configuration){grid, block, shared, stream};
    return 0;
}

EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (!depth) return null_error(cudaErrorMissingConfiguration);
    struct configuration *last = &configurations[--depth % COUNT(configurations)];
    *grid = last->grid;
    *block = last->block;
    *shared = last->shared;
    *(void **)stream = last->stream;
    return cudaSuccess;
}

/* ---- launches ---- */

static bool launchable(dim3 grid, dim3 block) {
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    bool within = grid.x <= 2147483647u && grid.y <= 65535 && grid.z <= 65535 && block.z <= 64;
    return grid.x && grid.y && grid.z && threads && threads <= 1024 && within;
}

cudaError_t null_launch(const void *function, const char *name, dim3 grid, dim3 block, size_t shared, void *stream) {
    if (null_forked()) return null_error(cudaErrorInitializationError);
    if (!launchable(grid, block)) return null_error(cudaErrorInvalidConfiguration);
    if (shared > (size_t)null_gpu()->shared_optin) return null_error(cudaErrorInvalidValue);
    null_touch(null_current_device);
    if (null_captured(stream, NODE_KERNEL, name ? name : null_kernel_name(function), NULL, NULL)) return cudaSuccess;
    null_count(COUNT_LAUNCHES, 1);
    null_kernel_ran();
    null_kernel(&(struct null_launch){.function = function, .name = name, .grid = {grid.x, grid.y, grid.z},
                                      .block = {block.x, block.y, block.z}, .shared = shared, .stream = stream,
                                      .device = null_stream_device(stream)});
    return cudaSuccess;
}

void null_library_launch(const char *name, void *stream) {
    if (null_captured(stream, NODE_KERNEL, name, NULL, NULL)) return;
    null_count(COUNT_LIBRARY_LAUNCHES, 1);
    null_kernel_ran();
    null_library_kernel(&(struct null_launch){.name = name, .grid = {1, 1, 1}, .block = {1, 1, 1}, .stream = stream,
                                              .device = null_stream_device(stream)});
}

EXPORT cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    NULL_API(cudaLaunchKernel);
    return null_launch(function, NULL, grid, block, shared, stream);
}

EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    NULL_API(cudaLaunchKernel);
    return null_launch((const void *)kernel, NULL, grid, block, shared, stream);
}

EXPORT cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                                               cudaStream_t stream) {
    NULL_API(cudaLaunchCooperativeKernel);
    return null_launch(function, NULL, grid, block, shared, stream);
}

EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *function, void **arguments) {
    NULL_API(cudaLaunchKernelExC);
    return null_launch(function, NULL, how->gridDim, how->blockDim, how->dynamicSmemBytes, how->stream);
}

/* ---- what is asked of a kernel ---- */

EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) {
    *kernel = (cudaKernel_t)function; /* a kernel's handle is its host function, so that its name is found by either */
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetKernel(cudaKernel_t *kernel, const void *function) { return __cudaGetKernel(kernel, function); }

EXPORT cudaError_t cudaGetFuncBySymbol(cudaFunction_t *found, const void *function) {
    NULL_API(cudaGetFuncBySymbol);
    *found = (cudaFunction_t)function;
    return cudaSuccess;
}

EXPORT cudaError_t cudaFuncGetName(const char **name, const void *function) {
    NULL_API(cudaFuncGetName);
    *name = null_kernel_name(function);
    return *name ? cudaSuccess : null_error(cudaErrorInvalidDeviceFunction);
}

EXPORT cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute which, int value) {
    NULL_API(cudaFuncSetAttribute);
    bool too_much = which == cudaFuncAttributeMaxDynamicSharedMemorySize && value > null_gpu()->shared_optin;
    return null_error(too_much ? cudaErrorInvalidValue : cudaSuccess);
}

EXPORT cudaError_t cudaFuncSetCacheConfig(const void *function, enum cudaFuncCache how) {
    NULL_API(cudaFuncSetCacheConfig);
    return cudaSuccess;
}

EXPORT cudaError_t cudaFuncSetSharedMemConfig(const void *function, int how) {
    NULL_API(cudaFuncSetSharedMemConfig);
    return cudaSuccess;
}

EXPORT cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, enum cudaFuncAttribute which, int value, int device) {
    NULL_API(cudaKernelSetAttributeForDevice);
    return cudaSuccess;
}

EXPORT cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *function, const cudaLaunchConfig_t *how) {
    NULL_API(cudaOccupancyMaxActiveClusters);
    *clusters = null_gpu()->major >= 9 ? null_gpu()->processors / 2 : 0;
    return cudaSuccess;
}

EXPORT cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *function, int blocks, int threads) {
    NULL_API(cudaOccupancyAvailableDynamicSMemPerBlock);
    *bytes = blocks > 0 ? (size_t)null_gpu()->shared_processor / (size_t)blocks : 0;
    return cudaSuccess;
}

/* ---- kernels loaded by name ---- */

struct library { void *unused; };

EXPORT cudaError_t cudaLibraryLoadData(void **library, const void *code, void *options, void **values, unsigned count,
                                       void *library_options, void **library_values, unsigned library_count) {
    NULL_API(cudaLibraryLoadData);
    *library = calloc(1, sizeof(struct library));
    return *library ? cudaSuccess : null_error(cudaErrorMemoryAllocation);
}

EXPORT cudaError_t cudaLibraryUnload(void *library) {
    NULL_API(cudaLibraryUnload);
    free(library);
    return cudaSuccess;
}

EXPORT cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, void *library, const char *name) {
    NULL_API(cudaLibraryGetKernel);
    char *kept = strdup(name); /* kernels stay known for good: profilers may name them later */
    if (!kept) return null_error(cudaErrorMemoryAllocation);
    null_register_kernel(kept, kept);
    *kernel = (cudaKernel_t)kept;
    return cudaSuccess;
}
