#include "kernel_table.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "nullkrn1"

struct entry {
    uint32_t sum, length;
    struct null_kernel_facts facts;
};
struct header {
    char magic[8];
    uint64_t many;
};

static const struct entry *entries;
static size_t many;
static uint32_t sums[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_sums(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) value = value & 1 ? value >> 1 ^ 0xEDB88320u : value >> 1;
        sums[i] = value;
    }
}

/* zlib.crc32 */
static uint32_t sum_of(const char *text, size_t length) {
    uint32_t value = ~0u;
    for (size_t i = 0; i < length; i++) value = sums[(value ^ (unsigned char)text[i]) & 255] ^ value >> 8;
    return ~value;
}

static void open_table(void) {
    const char *path = getenv("NULLDEVICE_KERNELS");
    struct stat found;
    fill_sums();
    int file = path && *path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    if (!fstat(file, &found) && (size_t)found.st_size >= sizeof(struct header)) {
        const struct header *header = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (header != MAP_FAILED && !memcmp(header->magic, MAGIC, sizeof header->magic) &&
            header->many == ((size_t)found.st_size - sizeof *header) / sizeof(struct entry)) {
            entries = (const struct entry *)(header + 1);
            many = header->many;
        }
    }
    close(file);
}

static int compare(const void *left, const void *right) {
    const struct entry *a = left, *b = right;
    if (a->sum != b->sum) return a->sum < b->sum ? -1 : 1;
    return a->length < b->length ? -1 : a->length > b->length;
}

const struct null_kernel_facts *null_facts_by_name(const char *mangled) {
    pthread_once(&once, open_table);
    if (!mangled || !many) return NULL;
    size_t length = strlen(mangled);
    struct entry wanted = {.sum = sum_of(mangled, length), .length = (uint32_t)length};
    const struct entry *found = bsearch(&wanted, entries, many, sizeof *entries, compare);
    return found ? &found->facts : NULL;
}
