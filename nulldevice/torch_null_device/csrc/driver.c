/* The driver's API, as far as torch, Triton and programs that compile kernels at run time ask for it. Its error numbers are
 * the runtime's; contexts are one a device. */
#include "null.h"
#include "runtime.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AS_DRIVER(error) ((CUresult)(error))

static struct context { int device; } contexts[MAX_DEVICES];
static _Thread_local int stack[16], stacked; /* devices whose contexts were pushed */

EXPORT CUresult cuInit(unsigned flags) { return null_device_count() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }

EXPORT CUresult cuDriverGetVersion(int *version) {
    *version = null_cuda_version();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = cudaGetErrorString((cudaError_t)error);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = cudaGetErrorName((cudaError_t)error);
    return CUDA_SUCCESS;
}

/* Private tables, by a number that no header has (NVRTC asks for one, and goes on without). There are none. */
EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *which) {
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

/* ---- devices ---- */

EXPORT CUresult cuDeviceGetCount(int *count) {
    *count = null_device_count();
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return null_device_exists(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    snprintf(name, (size_t)length, "%s", null_gpu()->name);
    return CUDA_SUCCESS;
}

#undef cuDeviceGetUuid
EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    null_uuid(null_physical(device), (unsigned char *)uuid->bytes);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

EXPORT CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    *bytes = null_gpu()->memory;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
    if (!null_device_exists(device)) return CUDA_ERROR_INVALID_DEVICE;
    *value = null_attribute((int)which, device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    if (!null_device_exists(device)) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(text, (size_t)length, "0000:%02x:00.0", null_physical(device) + 1);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    *can = null_device_exists(device) && null_device_exists(peer) && device != peer;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    *major = null_gpu()->major;
    *minor = null_gpu()->minor;
    return CUDA_SUCCESS;
}

/* ---- contexts ---- */

static CUcontext context_of(int device) {
    contexts[device].device = device;
    return (CUcontext)&contexts[device];
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    if (!null_device_exists(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (flags) *flags = 0;
    *active = null_touched(device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    if (!null_device_exists(device)) return CUDA_ERROR_INVALID_DEVICE;
    null_touch(device);
    *context = context_of(device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return CUDA_SUCCESS; }

EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) { return CUDA_SUCCESS; }

EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = null_touched(null_current_device) ? context_of(null_current_device) : NULL;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    if (context) null_current_device = ((struct context *)context)->device;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent(CUcontext context) {
    if (!context || stacked == (int)COUNT(stack)) return CUDA_ERROR_INVALID_CONTEXT;
    stack[stacked++] = null_current_device;
    return cuCtxSetCurrent(context);
}

EXPORT CUresult cuCtxPopCurrent(CUcontext *context) {
    if (!stacked) return CUDA_ERROR_INVALID_CONTEXT;
    if (context) *context = context_of(null_current_device);
    null_current_device = stack[--stacked];
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
    *device = null_current_device;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void) { return AS_DRIVER(cudaDeviceSynchronize()); }

EXPORT CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
    *version = (unsigned)null_cuda_version();
    return CUDA_SUCCESS;
}

/* ---- functions by name ---- */

static void *found(const char *name) {
    char newer[160];
    snprintf(newer, sizeof newer, "%s_v2", name);
    void *function = dlsym(RTLD_DEFAULT, newer);
    return function ? function : dlsym(RTLD_DEFAULT, name);
}

EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
    *function = found(name);
    if (status) *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags,
                                                    enum cudaDriverEntryPointQueryResult *status) {
    NULL_API(cudaGetDriverEntryPointByVersion);
    *function = found(name);
    if (status) *status = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                           enum cudaDriverEntryPointQueryResult *status) {
    NULL_API(cudaGetDriverEntryPoint);
    return cudaGetDriverEntryPointByVersion(name, function, 0, flags, status);
}

/* ---- modules, and the kernels in them: a handle is the kernel's name ---- */

static CUresult new_module(void **module) {
    *module = malloc(1);
    return *module ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path) {
    NULL_DRIVER_API(cuModuleLoad);
    return new_module((void **)module);
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    NULL_DRIVER_API(cuModuleLoadData);
    return new_module((void **)module);
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values) {
    NULL_DRIVER_API(cuModuleLoadDataEx);
    return new_module((void **)module);
}

EXPORT CUresult cuModuleUnload(CUmodule module) {
    free(module);
    return CUDA_SUCCESS;
}

static CUresult named(void **function, const char *name) {
    char *kept = strdup(name); /* a kernel stays known for good: profilers may name it later */
    if (!kept) return CUDA_ERROR_OUT_OF_MEMORY;
    null_register_kernel(kept, kept);
    *function = kept;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    return named((void **)function, name);
}

EXPORT CUresult cuModuleGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUmodule module, const char *name) {
    if (bytes) *bytes = 2 * MIB;
    return AS_DRIVER(cudaGetSymbolAddress((void **)pointer, name));
}

EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values, unsigned count,
                                  CUlibraryOption *library_options, void **library_values, unsigned library_count) {
    return new_module((void **)library);
}

EXPORT CUresult cuLibraryUnload(CUlibrary library) {
    free(library);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) { return named((void **)kernel, name); }

EXPORT CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
    *module = (CUmodule)library;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function) {
    struct cudaFuncAttributes known;
    cudaFuncGetAttributes(&known, function);
    switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = known.maxThreadsPerBlock; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = known.numRegs; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = known.ptxVersion; break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = known.binaryVersion; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = known.maxDynamicSharedSizeBytes; break;
    default: *value = 0;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) { return CUDA_SUCCESS; }

EXPORT CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache how) { return CUDA_SUCCESS; }

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                               unsigned shared, CUstream stream, void **arguments, void **extra) {
    NULL_DRIVER_API(cuLaunchKernel);
    return AS_DRIVER(null_launch(function, (const char *)function, (dim3){gx, gy, gz}, (dim3){bx, by, bz}, shared, stream));
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *how, CUfunction function, void **arguments, void **extra) {
    NULL_DRIVER_API(cuLaunchKernelEx);
    dim3 grid = {how->gridDimX, how->gridDimY, how->gridDimZ}, block = {how->blockDimX, how->blockDimY, how->blockDimZ};
    return AS_DRIVER(null_launch(function, (const char *)function, grid, block, how->sharedMemBytes, how->hStream));
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                          unsigned bz, unsigned shared, CUstream stream, void **arguments) {
    NULL_DRIVER_API(cuLaunchCooperativeKernel);
    return AS_DRIVER(null_launch(function, (const char *)function, (dim3){gx, gy, gz}, (dim3){bx, by, bz}, shared, stream));
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared) {
    return AS_DRIVER(cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared));
}

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int threads, size_t shared,
                                                                     unsigned flags) {
    return AS_DRIVER(cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared));
}

EXPORT CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function, const CUlaunchConfig *how) {
    *clusters = null_gpu()->major >= 9 ? null_gpu()->processors / 2 : 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                       const cuuint64_t *dimensions, const cuuint64_t *strides, const cuuint32_t *box,
                                       const cuuint32_t *element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                       CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
    memset(map, 0, sizeof *map);
    return CUDA_SUCCESS;
}

/* ---- linking: the result is a text that cuModuleLoadData takes ---- */

static char linked[] = "null device";

EXPORT CUresult cuLinkCreate(unsigned count, CUjit_option *options, void **values, CUlinkState *state) {
    return new_module((void **)state);
}

EXPORT CUresult cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name, unsigned count,
                              CUjit_option *options, void **values) {
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkComplete(CUlinkState state, void **image, size_t *size) {
    *image = linked;
    *size = sizeof linked;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkDestroy(CUlinkState state) {
    free(state);
    return CUDA_SUCCESS;
}

/* ---- the driver's log: nothing is ever written to it ---- */

#if CUDA_VERSION >= 12090
EXPORT CUresult cuLogsRegisterCallback(CUlogsCallback function, void *data, CUlogsCallbackHandle *handle) {
    if (handle) *handle = (CUlogsCallbackHandle)linked;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle handle) { return CUDA_SUCCESS; }
#endif
