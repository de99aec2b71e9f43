/* The profiler's buffers and clock. Every record lies at a multiple of 8 bytes behind a word with its length, so that
 * cuptiActivityGetNextRecord need not know the versions of CUPTI's structs; behind the newest struct that kineto reads come
 * SLACK bytes of zeros, for a build whose struct is longer than that of the headers that we were compiled with. */
#include "cupti_records.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "activity.h"

#define KINDS 128
#define SLACK 32
#define HEAD sizeof(uint64_t)

volatile int null_recording;
static unsigned char asked[KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static uint8_t *buffer;
static size_t room, filled, most, held;
static atomic_size_t lost;

void null_ask(CUpti_ActivityKind kind, int yes) {
    if ((unsigned)kind >= KINDS) return;
    pthread_mutex_lock(&lock);
    asked[kind] = yes != 0;
    null_recording = memchr(asked, 1, KINDS) != NULL;
    pthread_mutex_unlock(&lock);
}

int null_asked(CUpti_ActivityKind kind) { return (unsigned)kind < KINDS && asked[kind]; }

/* ---- clock ---- */

static uint64_t nanoseconds(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static uint64_t since_1970(void) { return nanoseconds(CLOCK_REALTIME); }

static CUpti_TimestampCallbackFunc clock_now = since_1970;
static double ticks_per_ns = 1.0;

uint64_t null_clock_now(void) { return clock_now(); }
uint64_t null_clock_ticks(double ns) { return (uint64_t)(ns * ticks_per_ns); }

/* kineto's clock counts cycles of the processor: its rate is measured over a millisecond, once. */
static double rate_of(CUpti_TimestampCallbackFunc clock) {
    uint64_t begun = nanoseconds(CLOCK_MONOTONIC), first = clock(), now, last;
    do now = nanoseconds(CLOCK_MONOTONIC), last = clock();
    while (now - begun < 1000000u);
    return last > first ? (double)(last - first) / (double)(now - begun) : 1.0;
}

int null_set_clock(CUpti_TimestampCallbackFunc clock) {
    if (!clock) clock = since_1970;
    if (clock == clock_now) return 0;
    ticks_per_ns = clock == since_1970 ? 1.0 : rate_of(clock);
    clock_now = clock;
    return 1;
}

/* ---- buffers ---- */

void null_set_buffers(CUpti_BuffersCallbackRequestFunc ask, CUpti_BuffersCallbackCompleteFunc done) {
    pthread_mutex_lock(&lock);
    request = ask;
    complete = done;
    pthread_mutex_unlock(&lock);
}

static uint8_t *taken(size_t *valid) {
    uint8_t *full = buffer;
    *valid = filled;
    buffer = NULL;
    room = filled = most = held = 0;
    return full;
}

void null_flush(void) {
    size_t valid, size;
    pthread_mutex_lock(&lock);
    size = room;
    uint8_t *full = taken(&valid);
    CUpti_BuffersCallbackCompleteFunc done = complete;
    pthread_mutex_unlock(&lock);
    if (full && done) done(NULL, 0, full, size, valid);
}

/* A place for `size` bytes in a buffer of the profiler, with the lock held. The callbacks take a lock of the profiler's own,
 * which it never holds while it calls us. */
static uint8_t *space(size_t size) {
    if (buffer && (filled + size > room || (most && held >= most))) {
        size_t valid, whole = room;
        uint8_t *full = taken(&valid);
        if (complete) complete(NULL, 0, full, whole, valid);
    }
    if (!buffer && request) {
        request(&buffer, &room, &most);
        if (buffer && room < size) {
            size_t valid, whole = room;
            uint8_t *small = taken(&valid);
            if (complete) complete(NULL, 0, small, whole, valid);
        }
    }
    if (!buffer) return NULL;
    uint8_t *place = buffer + filled;
    filled += size;
    held++;
    return place;
}

void null_write(const void *record, size_t size) {
    uint64_t whole = HEAD + ((size + SLACK + 7) & ~(size_t)7);
    pthread_mutex_lock(&lock);
    uint8_t *place = space(whole);
    if (place) {
        memset(place, 0, whole);
        memcpy(place, &whole, HEAD);
        memcpy(place + HEAD, record, size);
    } else {
        lost++;
    }
    pthread_mutex_unlock(&lock);
}

size_t null_lost(void) { return atomic_exchange(&lost, 0); }

CUpti_Activity *null_next(uint8_t *from, size_t valid, CUpti_Activity *record) {
    size_t at = 0;
    if (record) {
        uint64_t whole;
        memcpy(&whole, (uint8_t *)record - HEAD, HEAD);
        at = (size_t)((uint8_t *)record - HEAD - from) + whole;
    }
    return at + HEAD < valid ? (CUpti_Activity *)(from + at + HEAD) : NULL;
}

/* A process that the target forks (a loader's worker) has our state but not the profiler's threads. */
static void quiet(void) { null_recording = 0; }
__attribute__((constructor)) static void prepare(void) { pthread_atfork(NULL, NULL, quiet); }
