/* Names: of kernels by their host function, of the functions of the API by CUPTI's numbers and back. */
#include "cupti_names.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activity.h"
#include "callbacks.h" /* written by torch_null_device/callbacks.py from CUPTI's headers */
#include "cupti_table.h"
#include "kernel_table.h"

/* A registered kernel. Facts are looked up at the first question. */
struct kernel {
    const char *mangled;
    const struct null_kernel_facts *facts;
    int asked;
};

static struct null_table kernels;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* torch registers tens of thousands while it is loaded: they are taken from blocks. */
static struct kernel *new_kernel(void) {
    static struct kernel *block;
    static size_t left;
    if (!left && (block = calloc(left = 4096, sizeof *block)) == NULL) left = 0;
    return left ? &block[--left] : NULL;
}

void null_register_kernel(const void *function, const char *mangled) {
    if (!function || !mangled) return;
    pthread_mutex_lock(&lock);
    struct kernel *kernel = new_kernel();
    if (kernel) kernel->mangled = mangled;
    if (!kernel || !null_table_put(&kernels, function, kernel)) fputs("null device: no memory for a kernel's name\n", stderr);
    pthread_mutex_unlock(&lock);
}

const char *null_kernel_name(const void *function) {
    if (!function) return NULL;
    pthread_mutex_lock(&lock);
    const struct kernel *kernel = null_table_get(&kernels, function);
    pthread_mutex_unlock(&lock);
    return kernel ? kernel->mangled : NULL;
}

const struct null_kernel_facts *null_facts_of(const void *function) {
    if (!function) return NULL;
    pthread_mutex_lock(&lock);
    struct kernel *kernel = null_table_get(&kernels, function);
    if (kernel && !kernel->asked) kernel->facts = null_facts_by_name(kernel->mangled), kernel->asked = 1;
    pthread_mutex_unlock(&lock);
    return kernel ? kernel->facts : NULL;
}

const char *null_callback_name(int driver, unsigned cbid) {
    const char *const *names = driver ? null_driver_callbacks : null_runtime_callbacks;
    size_t many = driver ? NULL_DRIVER_CALLBACKS : NULL_RUNTIME_CALLBACKS;
    return cbid < many ? names[cbid] : NULL;
}

/* The version that CUPTI puts behind a runtime function's name: 3020 of "cudaMalloc_v3020" where `name` is "cudaMalloc". A
 * driver function has its generation only, which the headers' macros write into the name: cuMemAlloc_v2. 0: another function. */
static long version_of(const char *callback, const char *name) {
    size_t n = strlen(name);
    if (strncmp(callback, name, n)) return 0;
    if (!callback[n]) return 1;
    if (strncmp(callback + n, "_v", 2)) return 0;
    char *end;
    long version = strtol(callback + n + 2, &end, 10);
    return *end || version < 1000 ? 0 : version;
}

int null_cbid(int driver, const char *name) {
    size_t many = driver ? NULL_DRIVER_CALLBACKS : NULL_RUNTIME_CALLBACKS;
    long best = 0;
    int found = -1;
    for (size_t i = 1; i < many; i++) {
        const char *callback = null_callback_name(driver, i);
        long version = callback ? version_of(callback, name) : 0;
        if (version > best) best = version, found = (int)i;
    }
    return found;
}
