/* The driver's memory: what torch's expandable segments are made of, and plain allocations, copies, streams and events. */
#include "null.h"
#include "runtime.h"

#include <cuda.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AS_DRIVER(error) ((CUresult)(error))
#define POINTER(address) ((void *)(uintptr_t)(address))

/* ---- address space and physical memory apart (expandable segments) ---- */

struct physical { uint64_t magic; size_t size; int device; atomic_int owners; };
#define PHYSICAL_MAGIC 0x6e756c6c70687973ull

static struct physical *physical_of(CUmemGenericAllocationHandle handle) {
    struct physical *one = POINTER(handle);
    return one && one->magic == PHYSICAL_MAGIC ? one : NULL;
}

static void let_go(struct physical *one) {
    if (atomic_fetch_sub(&one->owners, 1) > 1) return;
    null_discharge(one->device, one->size);
    one->magic = 0;
    free(one);
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *properties,
                                              CUmemAllocationGranularity_flags which) {
    NULL_DRIVER_API(cuMemGetAllocationGranularity);
    *bytes = 2 * MIB;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags) {
    NULL_DRIVER_API(cuMemAddressReserve);
    void *base = NULL;
    if (!null_reserve(&base, size, alignment, null_current_device)) return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = (CUdeviceptr)(uintptr_t)base;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size) {
    NULL_DRIVER_API(cuMemAddressFree);
    return AS_DRIVER(null_unreserve(POINTER(pointer)));
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
                            unsigned long long flags) {
    NULL_DRIVER_API(cuMemCreate);
    int device = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? properties->location.id : null_current_device;
    if (!null_device_exists(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (size % (2 * MIB)) return CUDA_ERROR_INVALID_VALUE;
    if (!null_charge(device, size)) return CUDA_ERROR_OUT_OF_MEMORY;
    struct physical *one = calloc(1, sizeof *one);
    if (!one) return CUDA_ERROR_OUT_OF_MEMORY;
    *one = (struct physical){.magic = PHYSICAL_MAGIC, .size = size, .device = device, .owners = 1};
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)one;
    null_count(COUNT_ALLOCATIONS, 1);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    NULL_DRIVER_API(cuMemRelease);
    struct physical *one = physical_of(handle);
    if (!one) return CUDA_ERROR_INVALID_VALUE;
    let_go(one);
    return CUDA_SUCCESS;
}

/* Mapped memory stays taken until it is unmapped and released: torch keeps its handle until it has unmapped, so that the
 * handle alone is the account. */
EXPORT CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags) {
    NULL_DRIVER_API(cuMemMap);
    struct null_range range;
    struct physical *one = physical_of(handle);
    if (!one || !null_range_of(POINTER(pointer), &range)) return CUDA_ERROR_INVALID_VALUE;
    return offset + size <= one->size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr pointer, size_t size) {
    NULL_DRIVER_API(cuMemUnmap);
    struct null_range range;
    return null_range_of(POINTER(pointer), &range) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc *list, size_t count) {
    NULL_DRIVER_API(cuMemSetAccess);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                             unsigned long long flags) {
    struct physical *one = physical_of(handle);
    if (!one || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    int file = (int)syscall(SYS_memfd_create, "nulldevice", 1u);
    uint64_t told[2] = {one->size, (uint64_t)one->device};
    if (file < 0 || pwrite(file, told, sizeof told, 0) != (ssize_t)sizeof told) return CUDA_ERROR_OPERATING_SYSTEM;
    *(int *)shared = file;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared, CUmemAllocationHandleType type) {
    uint64_t told[2];
    if (pread((int)(intptr_t)shared, told, sizeof told, 0) != (ssize_t)sizeof told) return CUDA_ERROR_INVALID_VALUE;
    struct physical *one = calloc(1, sizeof *one);
    if (!one) return CUDA_ERROR_OUT_OF_MEMORY;
    *one = (struct physical){.magic = PHYSICAL_MAGIC, .device = (int)told[1], .owners = 1}; /* its owner is charged */
    one->size = told[0];
    null_charge(one->device, one->size);
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)one;
    return CUDA_SUCCESS;
}

/* ---- allocations ---- */

EXPORT CUresult cuMemAlloc(CUdeviceptr *pointer, size_t size) { return AS_DRIVER(cudaMalloc((void **)pointer, size)); }

EXPORT CUresult cuMemFree(CUdeviceptr pointer) { return AS_DRIVER(cudaFree(POINTER(pointer))); }

EXPORT CUresult cuMemAllocHost(void **pointer, size_t size) { return AS_DRIVER(cudaHostAlloc(pointer, size, 0)); }

EXPORT CUresult cuMemHostAlloc(void **pointer, size_t size, unsigned flags) { return AS_DRIVER(cudaHostAlloc(pointer, size, flags)); }

EXPORT CUresult cuMemFreeHost(void *pointer) { return AS_DRIVER(cudaFreeHost(pointer)); }

EXPORT CUresult cuMemGetInfo(size_t *free_bytes, size_t *total) {
    null_free_and_total(null_current_device, free_bytes, total);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr pointer) {
    struct null_range range;
    if (!null_range_of(POINTER(pointer), &range)) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = (CUdeviceptr)(uintptr_t)range.base;
    if (size) *size = range.size;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuPointerGetAttribute(void *value, CUpointer_attribute which, CUdeviceptr pointer) {
    struct null_range range;
    if (!null_range_of(POINTER(pointer), &range)) return CUDA_ERROR_INVALID_VALUE;
    switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: {
        CUcontext context;
        cuDevicePrimaryCtxRetain(&context, range.device);
        *(CUcontext *)value = context;
        break;
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = range.place == PLACE_PINNED ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: case CU_POINTER_ATTRIBUTE_HOST_POINTER: *(CUdeviceptr *)value = pointer; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)value = range.place == PLACE_MANAGED; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = range.device; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)value = (CUdeviceptr)(uintptr_t)range.base; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)value = range.size; break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)value = (uintptr_t)range.base; break;
    default: *(unsigned *)value = 0;
    }
    return CUDA_SUCCESS;
}

/* ---- copies and fills ---- */

EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return AS_DRIVER(cudaMemcpy(POINTER(to), POINTER(from), bytes, cudaMemcpyDefault));
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return AS_DRIVER(cudaMemcpyAsync(POINTER(to), POINTER(from), bytes, cudaMemcpyDefault, stream));
}

EXPORT CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    return AS_DRIVER(cudaMemcpy(POINTER(to), from, bytes, cudaMemcpyHostToDevice));
}

EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return AS_DRIVER(cudaMemcpyAsync(POINTER(to), from, bytes, cudaMemcpyHostToDevice, stream));
}

EXPORT CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    return AS_DRIVER(cudaMemcpy(to, POINTER(from), bytes, cudaMemcpyDeviceToHost));
}

EXPORT CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return AS_DRIVER(cudaMemcpyAsync(to, POINTER(from), bytes, cudaMemcpyDeviceToHost, stream));
}

EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return AS_DRIVER(cudaMemcpyAsync(POINTER(to), POINTER(from), bytes, cudaMemcpyDeviceToDevice, stream));
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    return AS_DRIVER(cudaMemsetAsync(POINTER(to), value, count, stream));
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    return AS_DRIVER(cudaMemsetAsync(POINTER(to), (int)value, count * 4, stream));
}

EXPORT CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
    return AS_DRIVER(cudaMemset(POINTER(to), value, count));
}

/* ---- streams and events: the runtime's own ---- */

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    return AS_DRIVER(cudaStreamCreateWithPriority((cudaStream_t *)stream, flags, 0));
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    return AS_DRIVER(cudaStreamCreateWithPriority((cudaStream_t *)stream, flags, priority));
}

EXPORT CUresult cuStreamDestroy(CUstream stream) { return AS_DRIVER(cudaStreamDestroy(stream)); }

EXPORT CUresult cuStreamSynchronize(CUstream stream) { return AS_DRIVER(cudaStreamSynchronize(stream)); }

EXPORT CUresult cuStreamQuery(CUstream stream) { return AS_DRIVER(cudaStreamQuery(stream)); }

EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    return AS_DRIVER(cudaStreamWaitEvent(stream, event, flags));
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    return AS_DRIVER(cudaStreamIsCapturing(stream, (enum cudaStreamCaptureStatus *)status));
}

EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    return cuDevicePrimaryCtxRetain(context, null_stream_device(stream));
}

EXPORT CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) { return CUDA_SUCCESS; }

EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
    return AS_DRIVER(cudaEventCreateWithFlags((cudaEvent_t *)event, flags));
}

EXPORT CUresult cuEventDestroy(CUevent event) { return AS_DRIVER(cudaEventDestroy(event)); }

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) { return AS_DRIVER(cudaEventRecord(event, stream)); }

EXPORT CUresult cuEventQuery(CUevent event) { return AS_DRIVER(cudaEventQuery(event)); }

EXPORT CUresult cuEventSynchronize(CUevent event) { return AS_DRIVER(cudaEventSynchronize(event)); }

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to) {
    return AS_DRIVER(cudaEventElapsedTime(milliseconds, from, to));
}
