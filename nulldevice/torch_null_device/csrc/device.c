/* Devices: how many, what they are, and the names of errors. */
#include "null.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local cudaError_t last_error;

cudaError_t null_error(cudaError_t error) {
    if (error) last_error = error;
    return error;
}

EXPORT cudaError_t cudaGetLastError(void) {
    NULL_API(cudaGetLastError);
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

EXPORT cudaError_t cudaPeekAtLastError(void) {
    NULL_API(cudaPeekAtLastError);
    return last_error;
}

struct error_name { cudaError_t code; const char *name, *text; };
/* Those that the null device returns; texts as the runtime has them. */
static const struct error_name ERRORS[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorMissingConfiguration, "cudaErrorMissingConfiguration", "__global__ function call is not configured"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "capture was not initiated in this stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"},
};

static const struct error_name *error_of(cudaError_t code) {
    for (size_t i = 0; i < COUNT(ERRORS); i++)
        if (ERRORS[i].code == code) return &ERRORS[i];
    return NULL;
}

EXPORT const char *cudaGetErrorString(cudaError_t code) {
    const struct error_name *known = error_of(code);
    return known ? known->text : "unrecognized error code";
}

EXPORT const char *cudaGetErrorName(cudaError_t code) {
    NULL_API(cudaGetErrorName);
    const struct error_name *known = error_of(code);
    return known ? known->name : "unrecognized error code";
}

/* ---- devices ---- */

EXPORT cudaError_t cudaGetDeviceCount(int *count) {
    NULL_API(cudaGetDeviceCount);
    *count = 0;
    if (null_forked()) return null_error(cudaErrorInitializationError);
    *count = null_device_count();
    return *count ? cudaSuccess : null_error(cudaErrorNoDevice);
}

EXPORT cudaError_t cudaGetDevice(int *device) {
    NULL_API(cudaGetDevice);
    if (!null_device_count()) return null_error(cudaErrorNoDevice);
    *device = null_current_device;
    return cudaSuccess;
}

bool null_device_exists(int device) { return device >= 0 && device < null_device_count(); }

static atomic_bool touched[MAX_DEVICES];

void null_touch(int device) {
    if (device >= 0 && device < MAX_DEVICES) atomic_store_explicit(&touched[device], true, memory_order_relaxed);
}

static atomic_bool forked;

bool null_forked(void) { return atomic_load_explicit(&forked, memory_order_relaxed); }

static void after_fork(void) {
    for (int device = 0; device < MAX_DEVICES; device++)
        if (null_touched(device)) atomic_store(&forked, true);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, after_fork); }

bool null_touched(int device) { return device >= 0 && device < MAX_DEVICES && atomic_load(&touched[device]); }

EXPORT cudaError_t cudaSetDevice(int device) {
    NULL_API(cudaSetDevice);
    if (null_forked()) return null_error(cudaErrorInitializationError);
    if (!null_device_exists(device)) return null_error(null_device_count() ? cudaErrorInvalidDevice : cudaErrorNoDevice);
    null_current_device = device;
    null_touch(device); /* since CUDA 12 this makes the context */
    return cudaSuccess;
}

EXPORT cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    NULL_API(cudaInitDevice);
    return null_device_exists(device) ? cudaSuccess : null_error(cudaErrorInvalidDevice);
}

EXPORT cudaError_t cudaSetDeviceFlags(unsigned flags) {
    NULL_API(cudaSetDeviceFlags);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDeviceFlags(unsigned *flags) {
    NULL_API(cudaGetDeviceFlags);
    *flags = 0;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceReset(void) {
    NULL_API(cudaDeviceReset);
    return cudaSuccess;
}

EXPORT cudaError_t cudaRuntimeGetVersion(int *version) {
    NULL_API(cudaRuntimeGetVersion);
    *version = null_cuda_version();
    return cudaSuccess;
}

EXPORT cudaError_t cudaDriverGetVersion(int *version) {
    NULL_API(cudaDriverGetVersion);
    *version = null_cuda_version();
    return cudaSuccess;
}

static void fill(struct cudaDeviceProp *p, const struct null_gpu *gpu, int physical) {
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", gpu->name);
    null_uuid(physical, (unsigned char *)p->uuid.bytes);
    p->totalGlobalMem = gpu->memory;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = (size_t)gpu->shared_optin;
    p->sharedMemPerMultiprocessor = (size_t)gpu->shared_processor;
    p->reservedSharedMemPerBlock = 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->memPitch = 2147483647;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 65536;
    p->major = gpu->major;
    p->minor = gpu->minor;
    p->textureAlignment = p->surfaceAlignment = 512;
    p->texturePitchAlignment = 32;
    p->multiProcessorCount = gpu->processors;
    p->canMapHostMemory = p->unifiedAddressing = p->managedMemory = p->concurrentKernels = p->cooperativeLaunch = 1;
    p->asyncEngineCount = 3;
    p->memoryBusWidth = gpu->bus_width;
    p->l2CacheSize = gpu->l2;
    p->maxThreadsPerMultiProcessor = gpu->threads_processor;
    p->maxBlocksPerMultiProcessor = gpu->blocks_processor;
    p->streamPrioritiesSupported = p->globalL1CacheSupported = p->localL1CacheSupported = 1;
    p->memoryPoolsSupported = p->hostRegisterSupported = p->computePreemptionSupported = 1;
    p->concurrentManagedAccess = 1;
    p->ECCEnabled = 1;
    p->pciBusID = physical + 1;
    p->clusterLaunch = gpu->major >= 9;
#if NULL_CUDA_MAJOR < 13
    p->clockRate = gpu->clock;
    p->memoryClockRate = gpu->memory_clock;
#endif
}

static cudaError_t properties(struct cudaDeviceProp *found, int device) {
    if (!null_device_exists(device)) return null_error(null_device_count() ? cudaErrorInvalidDevice : cudaErrorNoDevice);
    fill(found, null_gpu(), null_physical(device));
    return cudaSuccess;
}

/* In CUDA 12 torch calls the one with _v2; the one without has an older layout, which nobody who is built now asks for. */
EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *found, int device) {
    NULL_API(cudaGetDeviceProperties);
    return properties(found, device);
}

EXPORT cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *found, int device) {
    NULL_API(cudaGetDeviceProperties);
    return properties(found, device);
}

/* The runtime's and the driver's numbers of attributes are the same. */
static int attribute(int which, const struct null_gpu *gpu, int physical) {
    switch (which) {
    case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: return 1024;
    case cudaDevAttrMaxBlockDimZ: return 64;
    case cudaDevAttrMaxGridDimX: case cudaDevAttrMaxPitch: return 2147483647;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 48 << 10;
    case cudaDevAttrTotalConstantMemory: case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrClockRate: return gpu->clock;
    case cudaDevAttrMemoryClockRate: return gpu->memory_clock;
    case cudaDevAttrTextureAlignment: case cudaDevAttrSurfaceAlignment: return 512;
    case cudaDevAttrMultiProcessorCount: return gpu->processors;
    case cudaDevAttrPciBusId: return physical + 1;
    case cudaDevAttrGlobalMemoryBusWidth: return gpu->bus_width;
    case cudaDevAttrL2CacheSize: return gpu->l2;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return gpu->threads_processor;
    case cudaDevAttrAsyncEngineCount: return 3;
    case cudaDevAttrComputeCapabilityMajor: return gpu->major;
    case cudaDevAttrComputeCapabilityMinor: return gpu->minor;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return gpu->shared_processor;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return gpu->shared_optin;
    case cudaDevAttrSingleToDoublePrecisionPerfRatio: return 2;
    case cudaDevAttrMaxBlocksPerMultiprocessor: return gpu->blocks_processor;
    case cudaDevAttrReservedSharedMemoryPerBlock: return 1024;
    case cudaDevAttrClusterLaunch: return gpu->major >= 9;
    case cudaDevAttrGpuOverlap: case cudaDevAttrCanMapHostMemory: case cudaDevAttrConcurrentKernels: case cudaDevAttrEccEnabled:
    case cudaDevAttrUnifiedAddressing: case cudaDevAttrStreamPrioritiesSupported: case cudaDevAttrGlobalL1CacheSupported:
    case cudaDevAttrLocalL1CacheSupported: case cudaDevAttrManagedMemory: case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrComputePreemptionSupported: case cudaDevAttrCooperativeLaunch: case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrMemoryPoolsSupported: case 102: /* CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
    case 103: /* CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED */ return 1;
    default: return 0;
    }
}

int null_attribute(int which, int device) { return attribute(which, null_gpu(), null_physical(device)); }

EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device) {
    NULL_API(cudaDeviceGetAttribute);
    if (!null_device_exists(device)) return null_error(cudaErrorInvalidDevice);
    *value = attribute((int)which, null_gpu(), null_physical(device));
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
    NULL_API(cudaDeviceGetPCIBusId);
    if (!null_device_exists(device)) return null_error(cudaErrorInvalidDevice);
    snprintf(text, (size_t)length, "0000:%02x:00.0", null_physical(device) + 1);
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text) {
    NULL_API(cudaDeviceGetByPCIBusId);
    unsigned domain, bus;
    if (sscanf(text, "%x:%x", &domain, &bus) != 2) return null_error(cudaErrorInvalidValue);
    for (*device = 0; *device < null_device_count(); ++*device)
        if (null_physical(*device) + 1 == (int)bus) return cudaSuccess;
    return null_error(cudaErrorInvalidDevice);
}

EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    NULL_API(cudaDeviceCanAccessPeer);
    *can = null_device_exists(device) && null_device_exists(peer) && device != peer;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    NULL_API(cudaDeviceEnablePeerAccess);
    static atomic_bool enabled[MAX_DEVICES][MAX_DEVICES];
    if (!null_device_exists(peer)) return null_error(cudaErrorInvalidDevice);
    bool before = atomic_exchange(&enabled[null_current_device][peer], true);
    return null_error(before ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess);
}

EXPORT cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    NULL_API(cudaDeviceDisablePeerAccess);
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr which, int device, int peer) {
    NULL_API(cudaDeviceGetP2PAttribute);
    *value = which == cudaDevP2PAttrAccessSupported;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit which) {
    NULL_API(cudaDeviceGetLimit);
    *value = which == cudaLimitStackSize ? 1024 : which == cudaLimitPrintfFifoSize ? MIB : 8 * MIB;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceSetLimit(enum cudaLimit which, size_t value) {
    NULL_API(cudaDeviceSetLimit);
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *how) {
    NULL_API(cudaDeviceGetCacheConfig);
    *how = cudaFuncCachePreferNone;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache how) {
    NULL_API(cudaDeviceSetCacheConfig);
    return cudaSuccess;
}

EXPORT cudaError_t cudaCtxResetPersistingL2Cache(void) {
    NULL_API(cudaCtxResetPersistingL2Cache);
    return cudaSuccess;
}

EXPORT cudaError_t cudaProfilerStart(void) {
    NULL_API(cudaProfilerStart);
    return cudaSuccess;
}

EXPORT cudaError_t cudaProfilerStop(void) {
    NULL_API(cudaProfilerStop);
    return cudaSuccess;
}
