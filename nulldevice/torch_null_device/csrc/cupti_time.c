/* The device's own time: its streams, events and waits.
 *
 * The device has no speed. Each piece of its work lasts PLACEHOLDER nanoseconds, in the order of its stream: it begins when it
 * is launched, or when the stream's work before it ends. The mark of such a record is its context (README.md). */
#include "cupti_time.h"

#include <cupti.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "activity.h"
#include "cupti_calls.h"
#include "cupti_records.h"
#include "cupti_table.h"

#define PLACEHOLDER 100.0     /* ns */
#define CONTEXT 0x6E756C00u   /* "nul" and the device's number: no driver numbers its contexts so */
#define DEVICES 64

struct stream {
    uint32_t id;
    uint64_t busy; /* ticks: when its last piece of work ends */
};
struct event {
    uint32_t id;
    uint64_t done; /* ticks: when what was recorded before it ends; 0: recorded while nobody watched */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream defaults[DEVICES];
static struct null_table streams, events;
static uint64_t busy[DEVICES]; /* the latest `busy` of a device's streams */
static uint32_t stream_ids, event_ids;
int null_event_times;

uint32_t null_context(int device) { return CONTEXT + (uint32_t)device; }

/* ---- streams and events; all with the lock held ---- */

/* CUPTI's numbers: 7 for a device's default stream, then 13, 17, 21 ... here in the order of first use. */
static struct stream *stream_of(void *handle, int device) {
    static struct stream lost = {.id = 7};
    if (device < 0 || device >= DEVICES) return &lost;
    struct stream *stream = (uintptr_t)handle > 2 ? null_table_get(&streams, handle) : &defaults[device];
    if (!stream && (stream = calloc(1, sizeof *stream))) {
        stream->id = 13 + 4 * stream_ids++;
        null_table_put(&streams, handle, stream);
    }
    if (!stream) return &lost;
    if (!stream->id) stream->id = 7;
    return stream;
}

static struct event *event_of(void *handle) {
    static struct event lost;
    struct event *event = handle ? null_table_get(&events, handle) : NULL;
    if (handle && !event && (event = calloc(1, sizeof *event))) {
        event->id = ++event_ids;
        null_table_put(&events, handle, event);
    }
    return event ? event : &lost;
}

static void forget(struct null_table *table, void *handle) {
    pthread_mutex_lock(&lock);
    void *known = handle ? null_table_get(table, handle) : NULL;
    if (known) null_table_put(table, handle, NULL);
    pthread_mutex_unlock(&lock);
    free(known);
}
void null_stream_gone(void *stream, int device) {
    (void)device;
    forget(&streams, stream);
}
void null_event_gone(void *event) { forget(&events, event); }

static void unset(struct null_table *table, size_t offset) {
    for (size_t i = 0; i < table->room; i++)
        if (table->entries[i].value) memset((char *)table->entries[i].value + offset, 0, sizeof(uint64_t));
}
void null_forget_times(void) {
    pthread_mutex_lock(&lock);
    memset(busy, 0, sizeof busy);
    for (int device = 0; device < DEVICES; device++) defaults[device].busy = 0;
    unset(&streams, offsetof(struct stream, busy));
    unset(&events, offsetof(struct event, done));
    pthread_mutex_unlock(&lock);
}

struct null_span null_work(void *handle, int device) {
    pthread_mutex_lock(&lock);
    struct stream *stream = stream_of(handle, device);
    uint64_t now = null_clock_now();
    struct null_span span = {.start = now > stream->busy ? now : stream->busy, .stream = stream->id};
    span.end = stream->busy = span.start + null_clock_ticks(PLACEHOLDER);
    if (device >= 0 && device < DEVICES && span.end > busy[device]) busy[device] = span.end;
    pthread_mutex_unlock(&lock);
    return span;
}

void null_pass(uint64_t when) {
    while (null_clock_now() < when) sched_yield();
}

/* ---- events and waits ---- */

/* CUDA 12.8 put the event's time behind the fields of before. */
#if CUPTI_API_VERSION >= 26
#define EVENT_RECORD CUpti_ActivityCudaEvent2
#define SET_TIME(record, device, ticks) ((record).deviceId = (uint32_t)(device), (record).deviceTimestamp = (ticks))
#else
#define EVENT_RECORD CUpti_ActivityCudaEvent
#define SET_TIME(record, device, ticks) ((void)(device), (void)(ticks))
#endif

void null_record_event(void *handle, void *stream_handle, int device) {
    EVENT_RECORD record = {0};
    uint64_t now = null_clock_now();
    pthread_mutex_lock(&lock);
    struct stream *stream = stream_of(stream_handle, device);
    struct event *event = event_of(handle);
    event->done = stream->busy > now ? stream->busy : now;
    now = event->done;
    record.eventId = event->id;
    record.streamId = stream->id;
    pthread_mutex_unlock(&lock);
    if (!null_asked(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION) && !null_asked(CUPTI_ACTIVITY_KIND_CUDA_EVENT)) return;
    record.kind = CUPTI_ACTIVITY_KIND_CUDA_EVENT;
    record.correlationId = null_correlation();
    record.contextId = null_context(device);
    SET_TIME(record, device, null_event_times ? now : 0);
    null_write(&record, sizeof record);
}

/* When what is waited for ends; the numbers of stream and event into `record`. */
static uint64_t awaited(enum null_wait kind, void *stream_handle, void *event_handle, int device,
                        CUpti_ActivitySynchronization *record) {
    uint64_t until = device >= 0 && device < DEVICES ? busy[device] : 0;
    record->streamId = record->cudaEventId = CUPTI_SYNCHRONIZATION_INVALID_VALUE;
    if (kind == NULL_WAITS_FOR_DEVICE) return until;
    if (kind == NULL_WAITS_FOR_STREAM || kind == NULL_STREAM_WAITS) {
        struct stream *stream = stream_of(stream_handle, device);
        record->streamId = stream->id;
        until = stream->busy;
    }
    if (kind == NULL_WAITS_FOR_EVENT || kind == NULL_STREAM_WAITS) {
        struct event *event = event_of(event_handle);
        record->cudaEventId = event->id;
        until = event->done;
    }
    return until;
}

void null_record_wait(enum null_wait kind, void *stream_handle, void *event_handle, int device) {
    CUpti_ActivitySynchronization record = {0};
    record.start = null_clock_now();
    pthread_mutex_lock(&lock);
    uint64_t until = awaited(kind, stream_handle, event_handle, device, &record);
    if (kind == NULL_STREAM_WAITS) {
        struct stream *stream = stream_of(stream_handle, device);
        if (until > stream->busy) stream->busy = until;
    }
    pthread_mutex_unlock(&lock);
    if (kind != NULL_STREAM_WAITS) null_pass(until);
    if (!null_asked(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION)) return;
    record.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
    record.type = (CUpti_ActivitySynchronizationType)kind;
    record.end = null_clock_now();
    record.correlationId = null_correlation();
    record.contextId = null_context(device);
    null_write(&record, sizeof record);
}
