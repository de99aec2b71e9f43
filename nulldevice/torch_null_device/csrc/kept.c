/* Bytes that the host wrote to the device: read back as written until a kernel runs, which might have changed them.
 *
 * What a program reads from the device is therefore what hardware would give, or zero; it is never an older value. Copies
 * between device memory and collectives carry the bytes along: so torch's checks of ranks, which send sizes to the device and
 * compare what comes back, pass.
 */
#include "null.h"

#include <stdlib.h>
#include <string.h>

#define LARGEST MIB       /* bytes of one write that are kept */
#define ALTOGETHER (16 * MIB)

struct kept { char *base; size_t size; char *bytes; struct kept *next; };
static struct kept *first;
static size_t total;
static uint64_t epoch_of_all;           /* the count of launches that all of them belong to */
static atomic_ullong launches;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
NEW_AFTER_FORK(kept, pthread_mutex_init, lock)

void null_kernel_ran(void) { atomic_fetch_add_explicit(&launches, 1, memory_order_relaxed); }

static void drop(struct kept **link) {
    struct kept *gone = *link;
    *link = gone->next;
    total -= gone->size;
    free(gone->bytes);
    free(gone);
}

/* With the lock held: nothing that is older than the last kernel stays. */
static void refresh(void) {
    uint64_t now = atomic_load(&launches);
    if (now != epoch_of_all)
        while (first) drop(&first);
    epoch_of_all = now;
}

static void keep(char *to, const void *bytes, size_t size) {
    struct kept *one = size <= LARGEST && total + size <= ALTOGETHER ? malloc(sizeof *one) : NULL;
    char *copy = one ? malloc(size) : NULL;
    if (!copy) {
        free(one);
        return;
    }
    memcpy(copy, bytes, size);
    *one = (struct kept){to, size, copy, first};
    first = one;
    total += size;
}

/* What was kept of [to, to + size) is overwritten: the parts beside it stay. */
static void overwrite(char *to, size_t size) {
    for (struct kept **link = &first; *link;) {
        struct kept *one = *link;
        if (one->base >= to + size || to >= one->base + one->size) {
            link = &one->next;
            continue;
        }
        size_t before = to > one->base ? (size_t)(to - one->base) : 0;
        size_t after = one->base + one->size > to + size ? (size_t)(one->base + one->size - (to + size)) : 0;
        struct kept cut = *one;
        *link = one->next; /* taken out, so that its parts can be kept in its place */
        total -= cut.size;
        free(one);
        if (before) keep(cut.base, cut.bytes, before);
        if (after) keep(to + size, cut.bytes + (cut.size - after), after);
        free(cut.bytes);
        link = &first; /* the parts do not overlap any more: the walk ends */
    }
}

void null_host_wrote(void *to, const void *from, size_t size) {
    pthread_mutex_lock(&lock);
    refresh();
    overwrite(to, size);
    keep(to, from, size);
    pthread_mutex_unlock(&lock);
}

void null_device_forgot(void *to, size_t size) {
    pthread_mutex_lock(&lock);
    refresh();
    overwrite(to, size);
    pthread_mutex_unlock(&lock);
}

/* Zeros, and over them what is kept. */
static void read_locked(char *to, const char *from, size_t size) {
    memset(to, 0, size);
    for (const struct kept *one = first; one; one = one->next) {
        const char *begin = one->base > from ? one->base : from;
        const char *end = one->base + one->size < from + size ? one->base + one->size : from + size;
        if (begin < end) memcpy(to + (begin - from), one->bytes + (begin - one->base), (size_t)(end - begin));
    }
}

void null_host_reads(void *to, const void *from, size_t size) {
    pthread_mutex_lock(&lock);
    refresh();
    read_locked(to, from, size);
    pthread_mutex_unlock(&lock);
}

void null_device_copied(void *to, const void *from, size_t size) {
    if (to == from) return;
    pthread_mutex_lock(&lock);
    refresh();
    char *bytes = first && size <= LARGEST ? malloc(size) : NULL;
    if (bytes) read_locked(bytes, from, size);
    if (first) overwrite(to, size);
    if (bytes) keep(to, bytes, size);
    free(bytes);
    pthread_mutex_unlock(&lock);
}
