/* Memory of the device: address space that nobody can touch, and an account of what is left.
 *
 * Device memory is mapped PROT_NONE: it costs no pages, and a host that follows a device pointer dies as it would with a GPU.
 * Pinned and managed memory is real. All ranges stand in one sorted array: a program has a few thousand at most.
 */
#include "null.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct null_range *ranges;
static size_t range_count, range_room;
static size_t used[MAX_DEVICES];
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

NEW_AFTER_FORK(ranges, pthread_rwlock_init, lock)

/* Index of the first range that begins after `pointer`. */
static size_t after(const void *pointer) {
    size_t low = 0, high = range_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((const char *)ranges[middle].base <= (const char *)pointer) low = middle + 1;
        else high = middle;
    }
    return low;
}

static bool insert(struct null_range range) {
    if (range_count == range_room) {
        size_t room = range_room ? range_room * 2 : 1024;
        struct null_range *grown = realloc(ranges, room * sizeof *grown);
        if (!grown) return false;
        ranges = grown;
        range_room = room;
    }
    size_t at = after(range.base);
    memmove(ranges + at + 1, ranges + at, (range_count - at) * sizeof *ranges);
    ranges[at] = range;
    range_count++;
    return true;
}

static void erase(size_t at) {
    range_count--;
    memmove(ranges + at, ranges + at + 1, (range_count - at) * sizeof *ranges);
}

bool null_range_of(const void *pointer, struct null_range *found) {
    pthread_rwlock_rdlock(&lock);
    size_t at = after(pointer);
    bool inside = at > 0 && (const char *)pointer < ranges[at - 1].base + ranges[at - 1].size;
    if (inside) *found = ranges[at - 1];
    pthread_rwlock_unlock(&lock);
    return inside;
}

enum null_place null_place_of(const void *pointer) {
    struct null_range range;
    return null_range_of(pointer, &range) ? range.place : PLACE_PAGEABLE;
}

/* ---- the account ---- */

static bool charge_locked(int device, size_t bytes) {
    const struct null_gpu *gpu = null_gpu();
    size_t room = gpu->memory > gpu->context ? gpu->memory - gpu->context : 0;
    if (used[device] + bytes > room) return false;
    used[device] += bytes;
    return true;
}

bool null_charge(int device, size_t bytes) {
    pthread_rwlock_wrlock(&lock);
    bool fits = charge_locked(device, bytes);
    pthread_rwlock_unlock(&lock);
    return fits;
}

void null_discharge(int device, size_t bytes) {
    pthread_rwlock_wrlock(&lock);
    used[device] -= bytes;
    pthread_rwlock_unlock(&lock);
}

void null_free_and_total(int device, size_t *free_bytes, size_t *total) {
    const struct null_gpu *gpu = null_gpu();
    size_t room = gpu->memory > gpu->context ? gpu->memory - gpu->context : 0;
    pthread_rwlock_rdlock(&lock);
    *free_bytes = room > used[device] ? room - used[device] : 0;
    pthread_rwlock_unlock(&lock);
    *total = gpu->memory;
}

EXPORT uint64_t nulldevice_used(int device) {
    if (device < 0 || device >= MAX_DEVICES) return 0;
    pthread_rwlock_rdlock(&lock);
    uint64_t bytes = used[device];
    pthread_rwlock_unlock(&lock);
    return bytes;
}

/* ---- taking and giving back ---- */

static void *map(size_t size, bool touchable) {
    int protection = touchable ? PROT_READ | PROT_WRITE : PROT_NONE;
    void *mapped = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static size_t rounded(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

cudaError_t null_take(void **pointer, size_t size, enum null_place place) {
    if (!pointer) return cudaErrorInvalidValue;
    *pointer = NULL;
    if (!size) return cudaSuccess;
    int device = null_current_device;
    if (null_forked()) return cudaErrorInitializationError;
    if (!null_device_exists(device)) return null_device_count() ? cudaErrorInvalidDevice : cudaErrorNoDevice;
    null_touch(device);
    if (size > (size_t)1 << 46) return cudaErrorMemoryAllocation;
    bool on_device = place == PLACE_DEVICE;
    size_t taken = rounded(size, on_device ? 2 * MIB : 4096); /* the driver hands out pages of 2 MiB */
    pthread_rwlock_wrlock(&lock);
    bool fits = !on_device || charge_locked(device, taken);
    void *mapped = fits ? map(taken, !on_device) : NULL;
    struct null_range range = {mapped, taken, on_device ? taken : 0, place, device, false};
    bool kept = mapped && insert(range);
    if (!kept) {
        if (mapped) munmap(mapped, taken);
        if (fits && on_device) used[device] -= taken;
    }
    pthread_rwlock_unlock(&lock);
    if (!kept) return cudaErrorMemoryAllocation;
    *pointer = mapped;
    if (on_device) null_count(COUNT_ALLOCATIONS, 1);
    return cudaSuccess;
}

cudaError_t null_drop(void *pointer, enum null_place place) {
    if (!pointer) return cudaSuccess;
    cudaError_t error = cudaErrorInvalidValue;
    pthread_rwlock_wrlock(&lock);
    size_t at = after(pointer);
    if (at > 0 && ranges[at - 1].base == (char *)pointer) {
        struct null_range range = ranges[at - 1];
        bool managed = range.place == PLACE_MANAGED && place == PLACE_DEVICE;
        if (range.place == place || managed) {
            erase(at - 1);
            if (range.charged) used[range.device] -= range.charged;
            if (!range.foreign || place == PLACE_DEVICE) munmap(range.base, range.size);
            error = cudaSuccess;
        }
    }
    pthread_rwlock_unlock(&lock);
    if (!error && place == PLACE_DEVICE) null_count(COUNT_FREES, 1);
    return error;
}

bool null_reserve(void **pointer, size_t size, size_t alignment, int device) {
    size_t unit = alignment > 2 * MIB ? alignment : 2 * MIB;
    char *mapped = map(size + unit, false);
    if (!mapped) return false;
    char *base = (char *)rounded((size_t)mapped, unit);
    if (base > mapped) munmap(mapped, (size_t)(base - mapped));
    if (mapped + size + unit > base + size) munmap(base + size, (size_t)(mapped + size + unit - (base + size)));
    pthread_rwlock_wrlock(&lock);
    bool kept = insert((struct null_range){base, size, 0, PLACE_DEVICE, device, true});
    pthread_rwlock_unlock(&lock);
    if (!kept) munmap(base, size);
    else *pointer = base;
    return kept;
}

cudaError_t null_unreserve(void *pointer) { return null_drop(pointer, PLACE_DEVICE); }

static cudaError_t enter_foreign(void *pointer, size_t size) {
    struct null_range known;
    if (!pointer || !size) return cudaErrorInvalidValue;
    if (null_range_of(pointer, &known)) return cudaErrorHostMemoryAlreadyRegistered;
    pthread_rwlock_wrlock(&lock);
    bool kept = insert((struct null_range){pointer, size, 0, PLACE_PINNED, null_current_device, true});
    pthread_rwlock_unlock(&lock);
    return kept ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* ---- the runtime's functions ---- */

EXPORT cudaError_t cudaMalloc(void **pointer, size_t size) {
    NULL_API(cudaMalloc);
    cudaError_t capturing = null_not_while_capturing(NULL, true);
    if (capturing) return null_error(capturing);
    return null_error(null_take(pointer, size, PLACE_DEVICE));
}

EXPORT cudaError_t cudaFree(void *pointer) {
    NULL_API(cudaFree);
    BLOCKING(cudaFree, NULL);
    if (!pointer) return cudaSuccess;
    cudaError_t capturing = null_not_while_capturing(NULL, true);
    if (capturing) return null_error(capturing);
    BLOCKS(NULL_WAITS); /* "cudaFree ... may implicitly synchronize": in effect it waits for the device */
    null_drain_host_functions();
    return null_error(null_drop(pointer, PLACE_DEVICE));
}

EXPORT cudaError_t cudaMallocManaged(void **pointer, size_t size, unsigned flags) {
    NULL_API(cudaMallocManaged);
    return null_error(null_take(pointer, size, PLACE_MANAGED));
}

EXPORT cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height) {
    NULL_API(cudaMallocPitch);
    *pitch = rounded(width, 512);
    return cudaMalloc(pointer, *pitch * height);
}

EXPORT cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags) {
    NULL_API(cudaHostAlloc);
    BLOCKING(cudaHostAlloc, NULL);
    BLOCKS(NULL_MAY_WAIT);
    blocking.record.bytes = size;
    return null_error(null_take(pointer, size, PLACE_PINNED));
}

EXPORT cudaError_t cudaMallocHost(void **pointer, size_t size) {
    NULL_API(cudaMallocHost);
    return null_error(null_take(pointer, size, PLACE_PINNED));
}

EXPORT cudaError_t cudaFreeHost(void *pointer) {
    NULL_API(cudaFreeHost);
    BLOCKING(cudaFreeHost, NULL);
    BLOCKS(NULL_MAY_WAIT);
    return null_error(null_drop(pointer, PLACE_PINNED));
}

EXPORT cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned flags) {
    NULL_API(cudaHostRegister);
    BLOCKING(cudaHostRegister, NULL);
    BLOCKS(NULL_MAY_WAIT);
    blocking.record.bytes = size;
    return null_error(enter_foreign(pointer, size));
}

EXPORT cudaError_t cudaHostUnregister(void *pointer) {
    NULL_API(cudaHostUnregister);
    cudaError_t error = null_drop(pointer, PLACE_PINNED);
    return null_error(error ? cudaErrorHostMemoryNotRegistered : cudaSuccess);
}

EXPORT cudaError_t cudaHostGetDevicePointer(void **device_pointer, void *pointer, unsigned flags) {
    NULL_API(cudaHostGetDevicePointer);
    *device_pointer = pointer;
    return null_place_of(pointer) == PLACE_PAGEABLE ? null_error(cudaErrorInvalidValue) : cudaSuccess;
}

EXPORT cudaError_t cudaHostGetFlags(unsigned *flags, void *pointer) {
    NULL_API(cudaHostGetFlags);
    *flags = 0;
    return null_place_of(pointer) == PLACE_PINNED ? cudaSuccess : null_error(cudaErrorInvalidValue);
}

EXPORT cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    NULL_API(cudaMemGetInfo);
    if (null_current_device >= null_device_count()) return null_error(cudaErrorNoDevice);
    null_free_and_total(null_current_device, free_bytes, total);
    return cudaSuccess;
}

EXPORT cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer) {
    NULL_API(cudaPointerGetAttributes);
    static const enum cudaMemoryType TYPES[] = {cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice,
                                                cudaMemoryTypeManaged};
    struct null_range range = {.place = PLACE_PAGEABLE, .device = -1};
    if (!attributes) return null_error(cudaErrorInvalidValue);
    memset(attributes, 0, sizeof *attributes);
    null_range_of(pointer, &range);
    attributes->type = TYPES[range.place];
    attributes->device = range.place == PLACE_PAGEABLE ? -2 : range.device; /* cudaInvalidDeviceId */
    attributes->devicePointer = range.place == PLACE_PAGEABLE ? NULL : (void *)pointer;
    attributes->hostPointer = range.place == PLACE_DEVICE || range.place == PLACE_PAGEABLE ? NULL : (void *)pointer;
    return cudaSuccess;
}

/* ---- pools: the backend cudaMallocAsync ---- */

struct pool { int device; uint64_t threshold, reserved_high, used_high, current; };
static struct pool pools[MAX_DEVICES];

EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    NULL_API(cudaDeviceGetDefaultMemPool);
    if (device < 0 || device >= null_device_count()) return null_error(cudaErrorInvalidDevice);
    pools[device].device = device;
    *pool = (cudaMemPool_t)&pools[device];
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
    NULL_API(cudaDeviceGetMemPool);
    return cudaDeviceGetDefaultMemPool(pool, device);
}

EXPORT cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    NULL_API(cudaDeviceSetMemPool);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr which, void *value) {
    NULL_API(cudaMemPoolSetAttribute);
    struct pool *one = (struct pool *)pool;
    if (which == cudaMemPoolAttrReleaseThreshold) one->threshold = *(uint64_t *)value;
    if (which == cudaMemPoolAttrUsedMemHigh) one->used_high = one->current;
    if (which == cudaMemPoolAttrReservedMemHigh) one->reserved_high = one->current;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr which, void *value) {
    NULL_API(cudaMemPoolGetAttribute);
    struct pool *one = (struct pool *)pool;
    if (which <= cudaMemPoolReuseAllowInternalDependencies) {
        *(int *)value = 1;
        return cudaSuccess;
    }
    uint64_t *number = value;
    switch (which) {
    case cudaMemPoolAttrReleaseThreshold: *number = one->threshold; break;
    case cudaMemPoolAttrUsedMemHigh: *number = one->used_high; break;
    case cudaMemPoolAttrReservedMemHigh: *number = one->reserved_high; break;
    default: *number = one->current; break;
    }
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list, size_t count) {
    NULL_API(cudaMemPoolSetAccess);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
    NULL_API(cudaMemPoolTrimTo);
    return cudaSuccess;
}

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;

static void pool_grows(int device, int64_t bytes) {
    struct pool *one = &pools[device];
    pthread_mutex_lock(&pool_lock);
    one->current += (uint64_t)bytes;
    if (one->current > one->used_high) one->used_high = one->current;
    if (one->current > one->reserved_high) one->reserved_high = one->current;
    pthread_mutex_unlock(&pool_lock);
}

EXPORT cudaError_t cudaMallocAsync(void **pointer, size_t size, cudaStream_t stream) {
    NULL_API(cudaMallocAsync);
    struct null_range range;
    cudaError_t error = null_take(pointer, size, PLACE_DEVICE);
    if (!error && null_range_of(*pointer, &range)) pool_grows(range.device, (int64_t)range.charged);
    return null_error(error);
}

EXPORT cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
    NULL_API(cudaMallocFromPoolAsync);
    return cudaMallocAsync(pointer, size, stream);
}

EXPORT cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) {
    NULL_API(cudaFreeAsync);
    struct null_range range;
    if (pointer && null_range_of(pointer, &range)) pool_grows(range.device, -(int64_t)range.charged);
    return null_error(null_drop(pointer, PLACE_DEVICE));
}

EXPORT cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType which, void *value) {
    NULL_API(cudaDeviceGetGraphMemAttribute);
    *(uint64_t *)value = 0; /* no node of a graph allocates */
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceSetGraphMemAttribute(int device, enum cudaGraphMemAttributeType which, void *value) {
    NULL_API(cudaDeviceSetGraphMemAttribute);
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGraphMemTrim(int device) {
    NULL_API(cudaDeviceGraphMemTrim);
    return cudaSuccess;
}

/* ---- memory of other processes ---- */

struct ipc { uint64_t magic, size; int32_t device, process; uint64_t base; };
#define IPC_MAGIC 0x6e756c6c69706331ull

EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *pointer) {
    NULL_API(cudaIpcGetMemHandle);
    struct null_range range;
    if (!null_range_of(pointer, &range) || range.place != PLACE_DEVICE) return null_error(cudaErrorInvalidValue);
    struct ipc told = {IPC_MAGIC, range.size, range.device, (int32_t)getpid(), (uint64_t)(uintptr_t)range.base};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &told, sizeof told);
    return cudaSuccess;
}

EXPORT cudaError_t cudaIpcOpenMemHandle(void **pointer, cudaIpcMemHandle_t handle, unsigned flags) {
    NULL_API(cudaIpcOpenMemHandle);
    struct ipc told;
    memcpy(&told, &handle, sizeof told);
    if (told.magic != IPC_MAGIC) return null_error(cudaErrorInvalidResourceHandle);
    return null_reserve(pointer, told.size, 0, told.device) ? cudaSuccess : null_error(cudaErrorMemoryAllocation);
}

EXPORT cudaError_t cudaIpcCloseMemHandle(void *pointer) {
    NULL_API(cudaIpcCloseMemHandle);
    return null_error(null_unreserve(pointer));
}
