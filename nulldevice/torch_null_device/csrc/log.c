/* What was asked of the device: calls that block the host, functions that nobody wrote, counters. */
#include "null.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t null_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- calls that block ---- */

#define RING (1u << 16)
static struct null_blocking ring[RING]; /* untouched pages cost nothing */
static uint64_t next_number;
static pthread_mutex_t ring_lock = PTHREAD_MUTEX_INITIALIZER;
NEW_AFTER_FORK(ring, pthread_mutex_init, ring_lock)

void null_blocking_begin(struct null_blocked *one, const char *call, void *stream) {
    memset(&one->record, 0, sizeof one->record);
    one->call = call;
    one->record.begin = null_now();
    one->record.stream = (uint64_t)(uintptr_t)stream;
    one->record.device = (int16_t)null_current_device;
}

void null_blocking_end(struct null_blocked *one) {
    struct null_blocking *record = &one->record;
    if (!record->how) return;
    record->end = null_now();
    record->thread = (int32_t)syscall(SYS_gettid);
    snprintf(record->call, sizeof record->call, "%s", one->call);
    pthread_mutex_lock(&ring_lock);
    record->number = next_number;
    ring[next_number++ % RING] = *record;
    pthread_mutex_unlock(&ring_lock);
}

/* The number that the next blocking call will get: two of these enclose the calls between them. */
EXPORT uint64_t nulldevice_mark(void) {
    pthread_mutex_lock(&ring_lock);
    uint64_t mark = next_number;
    pthread_mutex_unlock(&ring_lock);
    return mark;
}

/* Copies the calls numbered [from, to) that are still kept, at most `room`, oldest first; returns how many. */
EXPORT size_t nulldevice_blocking(uint64_t from, uint64_t to, struct null_blocking *out, size_t room) {
    size_t copied = 0;
    pthread_mutex_lock(&ring_lock);
    if (to > next_number) to = next_number;
    if (next_number > RING && from < next_number - RING) from = next_number - RING;
    for (; from < to && copied < room; from++) out[copied++] = ring[from % RING];
    pthread_mutex_unlock(&ring_lock);
    return copied;
}

/* ---- functions that nobody wrote ---- */

/* Appends a line to the file that the parent reads; a line is written whole, so that processes may share the file. */
static void tell_parent(const char *function) {
    const char *path = getenv("NULLDEVICE_UNANSWERED");
    char line[160];
    if (!path || !*path) return;
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return;
    int length = snprintf(line, sizeof line, "%s\n", function);
    if (write(file, line, (size_t)length) < 0) { /* the sentence on stderr stays */
    }
    close(file);
}

static pthread_mutex_t unanswered_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *unanswered[4096];
static size_t unanswered_count;

int null_unanswered(const char *function, int code, atomic_int *said) {
    if (!atomic_exchange(said, 1)) {
        fprintf(stderr, "null device: the program called %s, which the null device does not answer; it returned error %d.\n",
                function, code);
        pthread_mutex_lock(&unanswered_lock);
        if (unanswered_count < COUNT(unanswered)) unanswered[unanswered_count++] = function;
        pthread_mutex_unlock(&unanswered_lock);
        tell_parent(function);
    }
    return code;
}

/* The name of the nth function that was called and is not answered; NULL after the last. */
EXPORT const char *nulldevice_unanswered(size_t nth) {
    pthread_mutex_lock(&unanswered_lock);
    const char *name = nth < unanswered_count ? unanswered[nth] : NULL;
    pthread_mutex_unlock(&unanswered_lock);
    return name;
}

/* ---- counters ---- */

static atomic_ullong counters[COUNTERS];

void null_count(enum null_counter counter, uint64_t amount) { atomic_fetch_add_explicit(&counters[counter], amount, memory_order_relaxed); }

EXPORT uint64_t nulldevice_counter(unsigned which) { return which < COUNTERS ? atomic_load(&counters[which]) : 0; }

EXPORT int nulldevice_present(void) { return 1; }
