/* What is asked of a kernel before it is launched: its attributes and how many of its blocks a processor holds. Registers, shared
 * memory and launch bounds are those of torch's own binaries where they were read (kernel_table.c); the calculation is NVIDIA's
 * (cuda_occupancy.h). */
#include "null.h"

#include <cuda_occupancy.h>
#include <string.h>

#include "kernel_table.h"

#define REGISTERS 32        /* per thread, of a kernel that we know nothing of */
#define PER_PROCESSOR 65536 /* registers, since Kepler */

static struct null_kernel_facts facts_of(const void *function) {
    const struct null_kernel_facts *known = null_facts_of(function);
    return known ? *known : (struct null_kernel_facts){.registers = REGISTERS, .threads = 1024};
}

/* Threads of a block by registers alone: a warp takes them in units of 256, warps come in fours. */
static int threads_by_registers(unsigned registers) {
    unsigned of_warp = (registers * 32 + 255) / 256 * 256;
    unsigned warps = PER_PROCESSOR / of_warp / 4 * 4;
    return warps >= 32 ? 1024 : (int)warps * 32;
}

EXPORT cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
    NULL_API(cudaFuncGetAttributes);
    const struct null_gpu *gpu = null_gpu();
    struct null_kernel_facts facts = facts_of(function);
    int bound = threads_by_registers(facts.registers);
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = facts.threads < bound ? facts.threads : bound;
    attributes->numRegs = facts.registers;
    attributes->sharedSizeBytes = facts.shared;
    attributes->localSizeBytes = facts.local;
    attributes->ptxVersion = attributes->binaryVersion = gpu->major * 10 + gpu->minor;
    attributes->maxDynamicSharedSizeBytes = facts.shared < (48 << 10) ? (48 << 10) - (int)facts.shared : 0;
    attributes->preferredShmemCarveout = -1;
    return cudaSuccess;
}

static cudaOccDeviceProp properties(void) {
    const struct null_gpu *gpu = null_gpu();
    return (cudaOccDeviceProp){
        .computeMajor = gpu->major,
        .computeMinor = gpu->minor,
        .maxThreadsPerBlock = 1024,
        .maxThreadsPerMultiprocessor = gpu->threads_processor,
        .regsPerBlock = PER_PROCESSOR,
        .regsPerMultiprocessor = PER_PROCESSOR,
        .warpSize = 32,
        .sharedMemPerBlock = 48 << 10,
        .sharedMemPerMultiprocessor = (size_t)gpu->shared_processor,
        .numSms = gpu->processors,
        .sharedMemPerBlockOptin = (size_t)gpu->shared_optin,
        .reservedSharedMemPerBlock = gpu->major >= 8 ? 1024 : 0,
    };
}

/* By threads and blocks alone, for a processor that the headers' calculation does not know yet. */
static int blocks_by_threads(int threads) {
    const struct null_gpu *gpu = null_gpu();
    int fit = gpu->threads_processor / 32 / ((threads + 31) / 32);
    return fit < gpu->blocks_processor ? fit : gpu->blocks_processor;
}

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads, size_t shared,
                                                                          unsigned flags) {
    NULL_API(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
    struct null_kernel_facts facts = facts_of(function);
    cudaOccDeviceProp device = properties();
    cudaOccDeviceState state = {0};
    cudaOccFuncAttributes attributes = {
        .maxThreadsPerBlock = facts.threads,
        .numRegs = facts.registers,
        .sharedSizeBytes = facts.shared,
        .partitionedGCConfig = PARTITIONED_GC_OFF,
        .shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN,
        .maxDynamicSharedSizeBytes = device.sharedMemPerBlockOptin,
    };
    cudaOccResult result;
    *blocks = 0;
    if (threads <= 0) return null_error(cudaErrorInvalidValue);
    if (threads > 1024) return cudaSuccess;
    cudaOccError error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &attributes, &state, threads, shared);
    if (error == CUDA_OCC_SUCCESS) *blocks = result.activeBlocksPerMultiprocessor;
    if (error == CUDA_OCC_ERROR_UNKNOWN_DEVICE) *blocks = blocks_by_threads(threads);
    return cudaSuccess;
}

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads, size_t shared) {
    NULL_API(cudaOccupancyMaxActiveBlocksPerMultiprocessor);
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}
