/* What the null device tells a profiler about itself: the seam between the device (cudart.c, driver.c, cublas.c ...)
 * and CUPTI (cupti.c, cupti_*.c).
 *
 * A function of the runtime that torch calls begins with NULL_API(itsName) and, inside of it, says what the device was asked
 * for. All of this costs one load and one branch while nobody records.
 *
 *     cudaError_t cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s) {
 *         NULL_API(cudaLaunchKernel);
 *         null_kernel(&(struct null_launch){.function = f, .grid = {g.x, g.y, g.z}, .block = {b.x, b.y, b.z},
 *                                           .shared = shared, .stream = s, .device = current_device()});
 *         return cudaSuccess;
 *     }
 *
 * A stub may begin with NULL_API as well: names that CUPTI does not know are not recorded.
 */
#ifndef NULL_ACTIVITY_H
#define NULL_ACTIVITY_H
#include <stddef.h>
#include <stdint.h>

/* Not 0 while somebody records: set by cupti.c, read by the inline functions below. */
extern volatile int null_recording;

/* ---- calls of the runtime and of the driver ---- */

struct null_function {
    const char *name; /* as the headers spell it, without a version: "cudaMemcpyAsync" */
    int driver;       /* 1: a function of the driver (cuLaunchKernel), 0: of the runtime */
    int cbid;         /* CUPTI's number for it; 0: not looked up yet, -1: CUPTI has none */
};

struct null_call {
    struct null_function *function; /* NULL: this call is not recorded */
    struct null_call *outer;        /* the recorded call that this one was made in, of the same thread */
    uint64_t start;                 /* ticks of the profiler's clock */
    uint32_t correlation;
};

void null_api_enter(struct null_call *call, struct null_function *function);
void null_api_exit(struct null_call *call);

#define NULL_CALL_(api, is_driver)                                                                                            \
    static struct null_function null_function_ = {#api, is_driver, 0};                                                       \
    __attribute__((cleanup(null_api_exit))) struct null_call null_call_ = {0};                                               \
    if (null_recording) null_api_enter(&null_call_, &null_function_)
/* First line of a function: records the call from here to the function's end. `name` may be a macro: spell it as exported. */
#define NULL_API(name) NULL_CALL_(name, 0)
#define NULL_DRIVER_API(name) NULL_CALL_(name, 1)

/* ---- kernels ---- */

/* __cudaRegisterFunction's host function (or the handle that the device gives for it) and its mangled device name. Both must
 * stay valid; registering is cheap (a push) and happens whether somebody records or not. */
void null_register_kernel(const void *function, const char *mangled);
/* The mangled name of a registered kernel, or NULL. */
const char *null_kernel_name(const void *function);

struct null_launch {
    const void *function;  /* as registered; or NULL with a name */
    const char *name;      /* mangled or plain; must stay valid. NULL: looked up by function */
    unsigned grid[3];      /* blocks */
    unsigned block[3];     /* threads */
    unsigned cluster[3];   /* blocks; 0 where not set */
    size_t shared;         /* dynamic shared memory, bytes */
    size_t static_shared;  /* bytes; 0 where not known */
    unsigned registers;    /* per thread; 0 where not known */
    void *stream;
    int device;
    unsigned graph;        /* id of the CUDA graph that launched it, else 0 */
    uint64_t node;         /* its node */
};
void null_record_kernel(const struct null_launch *launch);
static inline void null_kernel(const struct null_launch *launch) {
    if (null_recording) null_record_kernel(launch);
}

/* A kernel that a library (cuBLAS, cuDNN) launches by itself: a call of cudaLaunchKernelExC with one kernel of that name. */
void null_record_library_kernel(const struct null_launch *launch);
static inline void null_library_kernel(const struct null_launch *launch) {
    if (null_recording) null_record_library_kernel(launch);
}

/* ---- copies and fills ---- */

enum null_memory { /* values of CUpti_ActivityMemoryKind */
    NULL_PAGEABLE = 1,
    NULL_PINNED = 2,
    NULL_DEVICE = 3,
    NULL_MANAGED = 5,
};
struct null_copy {
    enum null_memory from, to;
    size_t bytes;
    void *stream;
    int device;          /* whose stream it is */
    int from_device, to_device; /* looked at where both sides are device memory; equal: a copy within one device */
    int blocking;        /* not 0: the call returns when the copy is done (cudaMemcpy) */
    unsigned graph;
    uint64_t node;
};
void null_record_copy(const struct null_copy *copy);
static inline void null_memcpy(const struct null_copy *copy) {
    if (null_recording) null_record_copy(copy);
}

void null_record_fill(size_t bytes, unsigned value, enum null_memory where, void *stream, int device);
static inline void null_memset(size_t bytes, unsigned value, enum null_memory where, void *stream, int device) {
    if (null_recording) null_record_fill(bytes, value, where, stream, device);
}

/* ---- streams, events, waits ---- */

enum null_wait { /* values of CUpti_ActivitySynchronizationType */
    NULL_WAITS_FOR_EVENT = 1,   /* cudaEventSynchronize */
    NULL_STREAM_WAITS = 2,      /* cudaStreamWaitEvent: the stream waits, not the host */
    NULL_WAITS_FOR_STREAM = 3,  /* cudaStreamSynchronize */
    NULL_WAITS_FOR_DEVICE = 4,  /* cudaDeviceSynchronize */
};
/* `stream` and `event` are NULL where the kind has none. Returns when the device's clock has passed what is waited for. */
void null_record_wait(enum null_wait kind, void *stream, void *event, int device);
static inline void null_sync(enum null_wait kind, void *stream, void *event, int device) {
    if (null_recording) null_record_wait(kind, stream, event, device);
}

/* cudaEventRecord. */
void null_record_event(void *event, void *stream, int device);
static inline void null_event(void *event, void *stream, int device) {
    if (null_recording) null_record_event(event, stream, device);
}

/* cudaStreamDestroy, cudaEventDestroy: a later object may get the same address. Cheap; call it whether or not somebody records. */
void null_stream_gone(void *stream, int device);
void null_event_gone(void *event);

#endif
