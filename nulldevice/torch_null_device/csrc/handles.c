/* Handles of libraries and their descriptors. */
#include "null.h"

#include <stdlib.h>

void *null_new_handle(void) {
    struct null_handle *handle = calloc(1, sizeof *handle);
    if (handle) handle->magic = NULL_HANDLE_MAGIC, handle->device = null_current_device;
    return handle;
}

struct null_handle *null_handle_of(const void *handle) {
    struct null_handle *one = (struct null_handle *)handle;
    return (uintptr_t)handle >= 4096 && one->magic == NULL_HANDLE_MAGIC ? one : NULL;
}

void null_free_handle(const void *handle) {
    struct null_handle *one = null_handle_of(handle);
    if (!one) return;
    one->magic = 0;
    free(one);
}

void *null_handle_stream(const void *handle) {
    struct null_handle *one = null_handle_of(handle);
    return one ? one->stream : NULL;
}
