/* Copies and fills: which memory they go between, and whether the host waits. */
#include "null.h"

#include <stdlib.h>
#include <string.h>

/* Another source of what is read from the device: fills `bytes` at `to`, or returns 0 where it has no answer (kept.c has). */
typedef int (*null_reader)(void *to, const void *from, size_t bytes, void *stream);
static _Atomic(null_reader) reader;

EXPORT void nulldevice_read_by(null_reader function) { atomic_store(&reader, function); }

static bool on_host(enum null_place place) { return place != PLACE_DEVICE; }

static void move(void *to, enum null_place to_place, const void *from, enum null_place from_place, size_t bytes, void *stream) {
    null_reader function = atomic_load(&reader);
    if (on_host(to_place) && on_host(from_place)) memmove(to, from, bytes);
    else if (on_host(from_place)) null_host_wrote(to, from, bytes);
    else if (!on_host(to_place)) null_device_copied(to, from, bytes);
    else if (!function || !function(to, from, bytes, stream)) null_host_reads(to, from, bytes);
}

static void count_copy(enum null_place to, enum null_place from, size_t bytes) {
    null_count(COUNT_COPIES, 1);
    if (!on_host(to)) null_count(on_host(from) ? COUNT_TO_DEVICE : COUNT_ON_DEVICE, bytes);
    else if (!on_host(from)) null_count(COUNT_FROM_DEVICE, bytes);
}

struct sides { struct null_range to, from; };

static struct sides sides_of(const void *to, const void *from) {
    struct sides found = {{.place = PLACE_PAGEABLE, .device = null_current_device}, {.place = PLACE_PAGEABLE, .device = null_current_device}};
    null_range_of(to, &found.to);
    null_range_of(from, &found.from);
    return found;
}

static void tell(const struct sides *sides, size_t bytes, void *stream, bool waits) {
    static const enum null_memory MEMORY[] = {NULL_PAGEABLE, NULL_PINNED, NULL_DEVICE, NULL_MANAGED};
    null_memcpy(&(struct null_copy){.from = MEMORY[sides->from.place], .to = MEMORY[sides->to.place], .bytes = bytes,
                                    .stream = stream, .device = null_stream_device(stream), .from_device = sides->from.device,
                                    .to_device = sides->to.device, .blocking = waits});
    count_copy(sides->to.place, sides->from.place, bytes);
}

/* How the host waits, by "API synchronization behavior" of the runtime's manual. 0: not at all. */
static int how_async(const struct sides *sides) {
    bool from_host = on_host(sides->from.place), to_host = on_host(sides->to.place);
    if (from_host && to_host) return NULL_WAITS;
    if (to_host && sides->to.place == PLACE_PAGEABLE) return NULL_WAITS;
    if (from_host && sides->from.place == PLACE_PAGEABLE) return NULL_MAY_WAIT; /* staged through pinned memory */
    return 0;
}

static int how_sync(const struct sides *sides) {
    bool within = !on_host(sides->from.place) && !on_host(sides->to.place);
    return within ? 0 : NULL_WAITS; /* between device memory "no host-side synchronization is performed" */
}

static cudaError_t copy_async(struct null_blocked *blocked, void *to, const void *from, size_t bytes, void *stream) {
    if (null_forked()) return null_error(cudaErrorInitializationError);
    if (bytes && (!to || !from)) return null_error(cudaErrorInvalidValue);
    struct sides sides = sides_of(to, from);
    int how = how_async(&sides);
    if (null_captured(stream, NODE_COPY, "memcpy", NULL, NULL)) return cudaSuccess;
    blocked->record.how = (int16_t)how;
    blocked->record.bytes = bytes;
    if (how == NULL_WAITS) null_drain_host_functions();
    tell(&sides, bytes, stream, how == NULL_WAITS);
    move(to, sides.to.place, from, sides.from.place, bytes, stream);
    return cudaSuccess;
}

static cudaError_t copy_sync(struct null_blocked *blocked, void *to, const void *from, size_t bytes) {
    if (null_forked()) return null_error(cudaErrorInitializationError);
    if (bytes && (!to || !from)) return null_error(cudaErrorInvalidValue);
    cudaError_t capturing = null_not_while_capturing(NULL, true);
    if (capturing) return null_error(capturing);
    struct sides sides = sides_of(to, from);
    int how = how_sync(&sides);
    blocked->record.how = (int16_t)how;
    blocked->record.bytes = bytes;
    if (how) null_drain_host_functions();
    tell(&sides, bytes, NULL, how != 0);
    move(to, sides.to.place, from, sides.from.place, bytes, NULL);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    NULL_API(cudaMemcpy);
    BLOCKING(cudaMemcpy, NULL);
    return copy_sync(&blocking, to, from, bytes);
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    NULL_API(cudaMemcpyAsync);
    BLOCKING(cudaMemcpyAsync, stream);
    return copy_async(&blocking, to, from, bytes, stream);
}

EXPORT cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes) {
    NULL_API(cudaMemcpyPeer);
    BLOCKING(cudaMemcpyPeer, NULL);
    return copy_sync(&blocking, to, from, bytes);
}

EXPORT cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream) {
    NULL_API(cudaMemcpyPeerAsync);
    BLOCKING(cudaMemcpyPeerAsync, stream);
    return copy_async(&blocking, to, from, bytes, stream);
}

/* Rows of `width` bytes: one record for all of them. */
static cudaError_t copy_rows(struct null_blocked *blocked, char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width,
                             size_t height, void *stream, bool synchronous) {
    struct sides sides = sides_of(to, from);
    cudaError_t capturing = synchronous ? null_not_while_capturing(NULL, true) : cudaSuccess;
    if (capturing) return null_error(capturing);
    if (!synchronous && null_captured(stream, NODE_COPY, "memcpy", NULL, NULL)) return cudaSuccess;
    blocked->record.how = (int16_t)(synchronous ? how_sync(&sides) : how_async(&sides));
    blocked->record.bytes = width * height;
    tell(&sides, width * height, stream, blocked->record.how == NULL_WAITS);
    for (size_t row = 0; row < height; row++)
        move(to + row * to_pitch, sides.to.place, from + row * from_pitch, sides.from.place, width, stream);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                                enum cudaMemcpyKind kind) {
    NULL_API(cudaMemcpy2D);
    BLOCKING(cudaMemcpy2D, NULL);
    return copy_rows(&blocking, to, to_pitch, from, from_pitch, width, height, NULL, true);
}

EXPORT cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                                     enum cudaMemcpyKind kind, cudaStream_t stream) {
    NULL_API(cudaMemcpy2DAsync);
    BLOCKING(cudaMemcpy2DAsync, stream);
    return copy_rows(&blocking, to, to_pitch, from, from_pitch, width, height, stream, false);
}

/* ---- variables of kernels: `symbol` is a host address that stands for one ---- */

static void tell_symbol(size_t bytes, bool to_device, void *stream) {
    struct sides sides = {{.place = to_device ? PLACE_DEVICE : PLACE_PAGEABLE}, {.place = to_device ? PLACE_PAGEABLE : PLACE_DEVICE}};
    tell(&sides, bytes, stream, true);
}

EXPORT cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind) {
    NULL_API(cudaMemcpyToSymbol);
    BLOCKING(cudaMemcpyToSymbol, NULL);
    BLOCKS(NULL_WAITS);
    blocking.record.bytes = bytes;
    tell_symbol(bytes, true, NULL);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind,
                                           cudaStream_t stream) {
    NULL_API(cudaMemcpyToSymbolAsync);
    tell_symbol(bytes, true, stream);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, enum cudaMemcpyKind kind) {
    NULL_API(cudaMemcpyFromSymbol);
    BLOCKING(cudaMemcpyFromSymbol, NULL);
    BLOCKS(NULL_WAITS);
    blocking.record.bytes = bytes;
    tell_symbol(bytes, false, NULL);
    memset(to, 0, bytes);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol) {
    NULL_API(cudaGetSymbolAddress);
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static void *variables; /* one address for all: kernels do not read them */
    pthread_mutex_lock(&lock);
    if (!variables) null_reserve(&variables, 2 * MIB, 0, null_current_device);
    *pointer = variables;
    pthread_mutex_unlock(&lock);
    return variables ? cudaSuccess : null_error(cudaErrorMemoryAllocation);
}

EXPORT cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol) {
    NULL_API(cudaGetSymbolSize);
    *size = 2 * MIB;
    return cudaSuccess;
}

/* ---- fills ---- */

static void fill_small(void *pointer, int value, size_t bytes) {
    char *filled = malloc(bytes);
    if (!filled) return;
    memset(filled, value, bytes);
    null_host_wrote(pointer, filled, bytes);
    free(filled);
}

static void fill(void *pointer, int value, size_t bytes, void *stream) {
    static const enum null_memory MEMORY[] = {NULL_PAGEABLE, NULL_PINNED, NULL_DEVICE, NULL_MANAGED};
    struct null_range range = {.place = PLACE_PAGEABLE, .device = null_current_device};
    null_range_of(pointer, &range);
    null_memset(bytes, (unsigned)value, MEMORY[range.place], stream, null_stream_device(stream));
    null_count(COUNT_FILLS, 1);
    if (range.place == PLACE_DEVICE) {
        if (value && bytes <= MIB) fill_small(pointer, value, bytes);
        else null_device_forgot(pointer, bytes); /* zeros are what is read of memory that nobody wrote */
    } else if (range.place != PLACE_PAGEABLE) {
        memset(pointer, value, bytes);
    }
}

EXPORT cudaError_t cudaMemset(void *pointer, int value, size_t bytes) {
    NULL_API(cudaMemset);
    cudaError_t capturing = null_not_while_capturing(NULL, true);
    if (capturing) return null_error(capturing);
    fill(pointer, value, bytes, NULL);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemsetAsync(void *pointer, int value, size_t bytes, cudaStream_t stream) {
    NULL_API(cudaMemsetAsync);
    if (!null_captured(stream, NODE_FILL, "memset", NULL, NULL)) fill(pointer, value, bytes, stream);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemset2DAsync(void *pointer, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
    NULL_API(cudaMemset2DAsync);
    if (!null_captured(stream, NODE_FILL, "memset", NULL, NULL)) fill(pointer, value, width * height, stream);
    return cudaSuccess;
}
