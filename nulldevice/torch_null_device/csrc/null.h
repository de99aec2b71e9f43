/* The null device: what its sources share.
 *
 * The library stands in the place of libcudart, libcuda, NVML, cuBLAS, cuDNN, cuSOLVER, cuSPARSE, cuFFT and NCCL. All that
 * CUDA does on the host's side is answered: devices, memory as address space, streams, events, captures, descriptors,
 * workspace sizes. Kernels do nothing, and whatever is read from the device is zero.
 *
 * Names: `null_` is ours and hidden, `nulldevice_` is what Python asks by ctypes, all else is NVIDIA's.
 * We define NVIDIA's functions with prototypes of our own: its headers rename functions by macros, and only the layouts of
 * the structs (driver_types.h) must be theirs.
 */
#ifndef NULL_DEVICE_H
#define NULL_DEVICE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <driver_types.h>
#include <vector_types.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "activity.h"

#ifndef NULL_CUDA_MAJOR
#error "the builder passes -DNULL_CUDA_MAJOR=12 or 13: of the libraries that torch was built against"
#endif

#define EXPORT __attribute__((visibility("default")))
#define MAX_DEVICES 64
#define MIB ((size_t)1 << 20)
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- settings.c: which GPU is played ---- */

struct null_gpu {
    char name[128];
    size_t memory;         /* bytes, as torch reports total_memory */
    size_t context;        /* bytes that a process's context takes before torch asks for any */
    int major, minor;      /* compute capability */
    int processors;        /* streaming multiprocessors */
    int l2;                /* bytes */
    int bus_width;         /* bits */
    int memory_clock;      /* kHz */
    int clock;             /* kHz */
    /* by capability, from the CUDA programming guide's table of technical specifications */
    int shared_processor, shared_optin; /* bytes */
    int threads_processor, blocks_processor;
};
/* Read from the environment at the first call. */
const struct null_gpu *null_gpu(void);
int null_device_count(void);       /* those that CUDA_VISIBLE_DEVICES leaves */
int null_physical_count(void);
int null_physical(int device);     /* the machine's number of a visible device */
int null_cuda_version(void);       /* as cudaRuntimeGetVersion tells it: 13000 */
void null_uuid(int physical, unsigned char uuid[16]);
extern _Thread_local int null_current_device;
bool null_device_exists(int device);
int null_attribute(int which, int device); /* numbered alike by the runtime and the driver */
void null_touch(int device);              /* the device has its primary context from now on */
bool null_touched(int device);
bool null_forked(void);                  /* in a child of a process that had used a device: there CUDA does not work */
/* A child process gets our locks as they stood when it was forked, maybe held by a thread that it has not. */
#define NEW_AFTER_FORK(name, init, lock)                                   \
    static void name##_after_fork(void) { init(&lock, NULL); }              \
    __attribute__((constructor)) static void name##_watches_forks(void) { pthread_atfork(NULL, NULL, name##_after_fork); }

/* ---- log.c: what was asked of the device ---- */

uint64_t null_now(void);           /* ns of CLOCK_MONOTONIC: Python's time.monotonic_ns() */

enum null_how {
    NULL_WAITS = 1,       /* the host waits until the stream, the event or the device is done */
    NULL_MAY_WAIT = 2,    /* documented as "may": pageable host memory is staged, memory is pinned */
};
struct null_blocking {    /* 96 bytes; torch_null_device/watching.py reads them by ctypes */
    uint64_t number;      /* of the call, from 0 on */
    uint64_t begin, end;  /* ns */
    uint64_t bytes;
    uint64_t stream;
    int32_t thread;       /* the kernel's number of the calling thread */
    int16_t device;
    int16_t how;          /* enum null_how */
    char call[48];
};
/* First line of a function that may block; the call is logged when `blocking.how` is set before it returns. */
struct null_blocked { struct null_blocking record; const char *call; };
void null_blocking_begin(struct null_blocked *one, const char *call, void *stream);
void null_blocking_end(struct null_blocked *one);
#define BLOCKING(name, its_stream) \
    __attribute__((cleanup(null_blocking_end))) struct null_blocked blocking; \
    null_blocking_begin(&blocking, #name, its_stream)
#define BLOCKS(kind) (blocking.record.how = (kind))

/* Says once, in one sentence, that nobody wrote this function; returns `code`. */
int null_unanswered(const char *function, int code, atomic_int *said);

enum null_counter {
    COUNT_LAUNCHES, COUNT_LIBRARY_LAUNCHES, COUNT_COPIES, COUNT_TO_DEVICE, COUNT_FROM_DEVICE, COUNT_ON_DEVICE, COUNT_FILLS,
    COUNT_ALLOCATIONS, COUNT_FREES, COUNT_GRAPH_LAUNCHES, COUNT_COLLECTIVES, COUNTERS
};
void null_count(enum null_counter counter, uint64_t amount);

/* ---- memory.c: address space ---- */

enum null_place { PLACE_PAGEABLE, PLACE_PINNED, PLACE_DEVICE, PLACE_MANAGED };
struct null_range {
    char *base;
    size_t size;          /* bytes of address space */
    size_t charged;       /* bytes taken from the device's memory */
    enum null_place place;
    int device;
    bool foreign;         /* the program's own memory (cudaHostRegister), or opened from another process: not charged */
};
cudaError_t null_take(void **pointer, size_t size, enum null_place place);
cudaError_t null_drop(void *pointer, enum null_place place);
bool null_range_of(const void *pointer, struct null_range *found);
enum null_place null_place_of(const void *pointer);
bool null_reserve(void **pointer, size_t size, size_t alignment, int device);
cudaError_t null_unreserve(void *pointer);
bool null_charge(int device, size_t bytes); /* false where the device has not that much left */
void null_discharge(int device, size_t bytes);
void null_free_and_total(int device, size_t *free_bytes, size_t *total);

/* ---- kept.c: what the host wrote and may read again ---- */

void null_kernel_ran(void);
void null_host_wrote(void *to, const void *from, size_t size);
void null_host_reads(void *to, const void *from, size_t size);
void null_device_copied(void *to, const void *from, size_t size);
void null_device_forgot(void *to, size_t size);

/* ---- streams.c, capture.c ---- */

struct null_stream {
    uint64_t magic;
    uint64_t id;
    int device, priority;
    unsigned flags;
    struct null_capture *capture; /* guarded by null_capture_lock */
};
struct null_stream *null_stream_of(void *stream); /* NULL for the default streams and what is none */
int null_stream_device(void *stream);
void null_run_host_function(void (*function)(void *), void *data);
void null_drain_host_functions(void);

enum null_node_kind { NODE_KERNEL, NODE_COPY, NODE_FILL, NODE_HOST, NODE_EVENT, NODE_OTHER };
/* True where the stream is being captured: the work became a node of its graph and must not be done. */
bool null_captured(void *stream, enum null_node_kind kind, const char *name, void (*host)(void *), void *data);
/* Error of a call that waits for this stream (or, with `any`, for the device) while something is captured; else success. */
cudaError_t null_not_while_capturing(void *stream, bool any);
int null_event_captures(void *stream, struct null_capture **capture);
void null_capture_joins(void *stream, struct null_capture *capture);

/* ---- launch.c ---- */

cudaError_t null_launch(const void *function, const char *name, dim3 grid, dim3 block, size_t shared, void *stream);
/* Work that a library puts on a stream by itself. */
void null_library_launch(const char *name, void *stream);

/* ---- handles.c: what libraries' Create functions hand out ---- */

#define NULL_HANDLE_MAGIC 0x6e756c6c68616e64ull
struct null_handle {      /* of a library or of one of its descriptors: each has an address of its own */
    uint64_t magic;
    void *stream;
    int device;
    int settings[8];      /* modes that are set and asked for again */
    char payload[512];    /* what a descriptor keeps */
};
void *null_new_handle(void);
void null_free_handle(const void *handle);
struct null_handle *null_handle_of(const void *handle); /* NULL for what is none of ours */
void *null_handle_stream(const void *handle);
#endif
