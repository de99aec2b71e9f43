/* Streams and events. All work is done as soon as it is asked for, so that no wait lasts; events take the host's clock. */
#include "null.h"

#include <stdlib.h>
#include <string.h>

#define STREAM_MAGIC 0x6e756c6c7374726dull
#define EVENT_MAGIC 0x6e756c6c65766e74ull

static atomic_ullong next_stream = 16; /* ids below are the default streams' */

struct null_stream *null_stream_of(void *stream) {
    struct null_stream *one = stream;
    if ((uintptr_t)stream < 4096) return NULL; /* 0: default, 1: legacy, 2: per thread */
    return one->magic == STREAM_MAGIC ? one : NULL;
}

int null_stream_device(void *stream) {
    struct null_stream *one = null_stream_of(stream);
    return one ? one->device : null_current_device;
}

static cudaError_t new_stream(cudaStream_t *stream, unsigned flags, int priority) {
    struct null_stream *one = stream ? calloc(1, sizeof *one) : NULL;
    if (!one) return null_error(stream ? cudaErrorMemoryAllocation : cudaErrorInvalidValue);
    *one = (struct null_stream){.magic = STREAM_MAGIC, .id = atomic_fetch_add(&next_stream, 1), .device = null_current_device,
                                .priority = priority, .flags = flags};
    *stream = (cudaStream_t)one;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    NULL_API(cudaStreamCreate);
    return new_stream(stream, 0, 0);
}

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    NULL_API(cudaStreamCreateWithFlags);
    return new_stream(stream, flags, 0);
}

EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    NULL_API(cudaStreamCreateWithPriority);
    return new_stream(stream, flags, priority);
}

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    NULL_API(cudaStreamDestroy);
    struct null_stream *one = null_stream_of(stream);
    if (!one) return null_error(cudaErrorInvalidResourceHandle);
    null_stream_gone(stream, one->device);
    one->magic = 0;
    free(one);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    NULL_API(cudaStreamGetPriority);
    struct null_stream *one = null_stream_of(stream);
    *priority = one ? one->priority : 0;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
    NULL_API(cudaStreamGetFlags);
    struct null_stream *one = null_stream_of(stream);
    *flags = one ? one->flags : 0;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
    NULL_API(cudaStreamGetId);
    struct null_stream *one = null_stream_of(stream);
    *id = one ? one->id : (unsigned long long)(uintptr_t)stream;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device) {
    NULL_API(cudaStreamGetDevice);
    *device = null_stream_device(stream);
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    NULL_API(cudaDeviceGetStreamPriorityRange);
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    NULL_API(cudaStreamSynchronize);
    BLOCKING(cudaStreamSynchronize, stream);
    cudaError_t capturing = null_not_while_capturing(stream, false);
    if (capturing) return null_error(capturing);
    BLOCKS(NULL_WAITS);
    null_drain_host_functions();
    null_sync(NULL_WAITS_FOR_STREAM, stream, NULL, null_stream_device(stream));
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) {
    NULL_API(cudaStreamQuery);
    return null_error(null_not_while_capturing(stream, false));
}

EXPORT cudaError_t cudaDeviceSynchronize(void) {
    NULL_API(cudaDeviceSynchronize);
    BLOCKING(cudaDeviceSynchronize, NULL);
    cudaError_t capturing = null_not_while_capturing(NULL, true);
    if (capturing) return null_error(capturing);
    BLOCKS(NULL_WAITS);
    null_drain_host_functions();
    null_sync(NULL_WAITS_FOR_DEVICE, NULL, NULL, null_current_device);
    return cudaSuccess;
}

EXPORT cudaError_t cudaThreadSynchronize(void) {
    NULL_API(cudaThreadSynchronize);
    return cudaDeviceSynchronize();
}

/* ---- events ---- */

struct event {
    uint64_t magic;
    unsigned flags;
    int device;
    atomic_ullong recorded;        /* ns; 0: never */
    struct null_capture *capture;  /* that it was recorded in, else NULL */
};

static struct event *event_of(void *event) {
    struct event *one = event;
    return one && one->magic == EVENT_MAGIC ? one : NULL;
}

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    NULL_API(cudaEventCreateWithFlags);
    struct event *one = event ? calloc(1, sizeof *one) : NULL;
    if (!one) return null_error(event ? cudaErrorMemoryAllocation : cudaErrorInvalidValue);
    one->magic = EVENT_MAGIC;
    one->flags = flags;
    one->device = null_current_device;
    *event = (cudaEvent_t)one;
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event) {
    NULL_API(cudaEventCreate);
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
    NULL_API(cudaEventDestroy);
    struct event *one = event_of(event);
    if (!one) return null_error(cudaErrorInvalidResourceHandle);
    null_event_gone(event);
    one->magic = 0;
    free(one);
    return cudaSuccess;
}

static cudaError_t record(cudaEvent_t event, cudaStream_t stream) {
    struct event *one = event_of(event);
    if (!one) return null_error(cudaErrorInvalidResourceHandle);
    struct null_capture *capture = NULL;
    null_event_captures(stream, &capture);
    one->capture = capture;
    if (capture) return cudaSuccess;
    null_event(event, stream, null_stream_device(stream));
    atomic_store(&one->recorded, null_now());
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    NULL_API(cudaEventRecord);
    return record(event, stream);
}

EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    NULL_API(cudaEventRecordWithFlags);
    return record(event, stream);
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
    NULL_API(cudaEventQuery);
    struct event *one = event_of(event);
    if (!one) return null_error(cudaErrorInvalidResourceHandle);
    return null_error(one->capture ? cudaErrorCapturedEvent : cudaSuccess);
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    NULL_API(cudaEventSynchronize);
    BLOCKING(cudaEventSynchronize, NULL);
    struct event *one = event_of(event);
    if (!one) return null_error(cudaErrorInvalidResourceHandle);
    if (one->capture) return null_error(cudaErrorCapturedEvent);
    BLOCKS(NULL_WAITS);
    null_drain_host_functions();
    null_sync(NULL_WAITS_FOR_EVENT, NULL, event, one->device);
    return cudaSuccess;
}

static cudaError_t elapsed(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    struct event *first = event_of(from), *second = event_of(to);
    if (!first || !second || (first->flags | second->flags) & cudaEventDisableTiming) return null_error(cudaErrorInvalidResourceHandle);
    uint64_t begin = atomic_load(&first->recorded), end = atomic_load(&second->recorded);
    if (!begin || !end) return null_error(cudaErrorInvalidResourceHandle);
    *milliseconds = (float)((double)(int64_t)(end - begin) * 1e-6);
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    NULL_API(cudaEventElapsedTime);
    return elapsed(milliseconds, from, to);
}

EXPORT cudaError_t cudaEventElapsedTime_v2(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    NULL_API(cudaEventElapsedTime);
    return elapsed(milliseconds, from, to);
}

EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    NULL_API(cudaStreamWaitEvent);
    struct event *one = event_of(event);
    if (!one) return null_error(cudaErrorInvalidResourceHandle);
    if (one->capture) null_capture_joins(stream, one->capture);
    else null_sync(NULL_STREAM_WAITS, stream, event, null_stream_device(stream));
    return cudaSuccess;
}

/* Events of other processes are never recorded here: they count as done. */
EXPORT cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event) {
    NULL_API(cudaIpcGetEventHandle);
    memset(handle, 0, sizeof *handle);
    return event_of(event) ? cudaSuccess : null_error(cudaErrorInvalidResourceHandle);
}

EXPORT cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle) {
    NULL_API(cudaIpcOpenEventHandle);
    return cudaEventCreateWithFlags(event, cudaEventDisableTiming | cudaEventInterprocess);
}

/* ---- host functions in a stream: one thread of ours runs them in order, as the driver's does ---- */

struct work { void (*function)(void *); void *data; struct work *next; };
static struct work *first_work, **last_work = &first_work;
static pthread_mutex_t work_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_comes = PTHREAD_COND_INITIALIZER, work_done = PTHREAD_COND_INITIALIZER;
static uint64_t work_asked, work_finished;
static bool worker_runs;
static _Thread_local bool is_worker;

static void *run_work(void *nothing) {
    is_worker = true;
    pthread_mutex_lock(&work_lock);
    for (;;) {
        while (!first_work) pthread_cond_wait(&work_comes, &work_lock);
        struct work *one = first_work;
        first_work = one->next;
        if (!first_work) last_work = &first_work;
        pthread_mutex_unlock(&work_lock);
        one->function(one->data);
        free(one);
        pthread_mutex_lock(&work_lock);
        work_finished++;
        pthread_cond_broadcast(&work_done);
    }
    return NULL;
}

void null_run_host_function(void (*function)(void *), void *data) {
    struct work *one = malloc(sizeof *one);
    if (!one) return;
    *one = (struct work){function, data, NULL};
    pthread_mutex_lock(&work_lock);
    *last_work = one;
    last_work = &one->next;
    work_asked++;
    pthread_t thread;
    if (!worker_runs && !pthread_create(&thread, NULL, run_work, NULL)) {
        pthread_detach(thread);
        worker_runs = true;
    }
    pthread_cond_signal(&work_comes);
    pthread_mutex_unlock(&work_lock);
}

void null_drain_host_functions(void) {
    if (is_worker) return;
    pthread_mutex_lock(&work_lock);
    uint64_t until = work_asked;
    while (worker_runs && work_finished < until) pthread_cond_wait(&work_done, &work_lock);
    pthread_mutex_unlock(&work_lock);
}

/* A forked child has none of our threads. */
static void after_fork(void) {
    worker_runs = false;
    work_asked = work_finished = 0;
    first_work = NULL;
    last_work = &first_work;
    pthread_mutex_init(&work_lock, NULL);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, after_fork); }

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    NULL_API(cudaLaunchHostFunc);
    if (!function) return null_error(cudaErrorInvalidValue);
    if (!null_captured(stream, NODE_HOST, "host function", function, data)) null_run_host_function(function, data);
    return cudaSuccess;
}

typedef void (*stream_callback)(cudaStream_t, cudaError_t, void *);
struct callback { stream_callback function; cudaStream_t stream; void *data; };

static void run_callback(void *data) {
    struct callback *one = data;
    one->function(one->stream, cudaSuccess, one->data);
    free(one);
}

EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t stream, stream_callback function, void *data, unsigned flags) {
    NULL_API(cudaStreamAddCallback);
    struct callback *one = malloc(sizeof *one);
    if (!one) return null_error(cudaErrorMemoryAllocation);
    *one = (struct callback){function, stream, data};
    null_run_host_function(run_callback, one);
    return cudaSuccess;
}
