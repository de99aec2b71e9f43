/* cuDNN's graph API: descriptors keep what is set and give it back. Every graph has one engine, which needs no workspace. */
#include "null.h"

#include <cudnn.h>
#include <stdlib.h>
#include <string.h>

#define GRAPH_MAGIC 0x6e756c6c67726170ull

struct attribute { int name, type; int64_t count; void *values; struct attribute *next; };
struct descriptor { uint64_t magic; int kind; bool finalized; struct attribute *attributes; };

static struct descriptor *descriptor_of(const void *descriptor) {
    struct descriptor *one = (struct descriptor *)descriptor;
    return one && one->magic == GRAPH_MAGIC ? one : NULL;
}

static size_t size_of(int type) {
    switch (type) {
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_HANDLE: case CUDNN_TYPE_INT64: case CUDNN_TYPE_DOUBLE: case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    case CUDNN_TYPE_FRACTION: return 16;
    default: return 4; /* enumerations, int32, float */
    }
}

EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t kind, cudnnBackendDescriptor_t *descriptor) {
    struct descriptor *one = calloc(1, sizeof *one);
    if (!one) return CUDNN_STATUS_ALLOC_FAILED;
    one->magic = GRAPH_MAGIC;
    one->kind = (int)kind;
    *descriptor = (cudnnBackendDescriptor_t)one;
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    struct descriptor *one = descriptor_of(descriptor);
    if (!one) return CUDNN_STATUS_SUCCESS;
    for (struct attribute *next, *attribute = one->attributes; attribute; attribute = next) {
        next = attribute->next;
        free(attribute->values);
        free(attribute);
    }
    one->magic = 0;
    free(one);
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendInitialize(cudnnBackendDescriptor_t descriptor) { return CUDNN_STATUS_SUCCESS; }

EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    struct descriptor *one = descriptor_of(descriptor);
    if (!one) return CUDNN_STATUS_BAD_PARAM;
    one->finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

static struct attribute *find(const struct descriptor *descriptor, int name) {
    struct attribute *attribute = descriptor->attributes;
    while (attribute && attribute->name != name) attribute = attribute->next;
    return attribute;
}

EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    struct descriptor *one = descriptor_of(descriptor);
    if (!one || count < 0 || (count && !values)) return CUDNN_STATUS_BAD_PARAM;
    size_t bytes = (size_t)count * size_of((int)type);
    struct attribute *attribute = find(one, (int)name);
    if (!attribute) {
        attribute = calloc(1, sizeof *attribute);
        if (!attribute) return CUDNN_STATUS_ALLOC_FAILED;
        attribute->next = one->attributes;
        one->attributes = attribute;
    }
    void *kept = malloc(bytes ? bytes : 1);
    if (!kept) return CUDNN_STATUS_ALLOC_FAILED;
    if (bytes) memcpy(kept, values, bytes);
    free(attribute->values);
    *attribute = (struct attribute){(int)name, (int)type, count, kept, attribute->next};
    return CUDNN_STATUS_SUCCESS;
}

/* One number for an attribute that cuDNN computes. */
static bool computed(int name, int64_t *value) {
    switch (name) {
#if CUDNN_VERSION >= 90200 /* torch 2.6 came with 9.1 */
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE: case CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED:
#endif
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX: case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *value = 0;
        return true;
    case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT: *value = 1; return true;
    default: return false;
    }
}

/* The caller brings descriptors of its own for these, which the answer fills: here nothing has to be filled in. */
static bool brought(int name) {
    return name == CUDNN_ATTR_ENGINEHEUR_RESULTS || name == CUDNN_ATTR_ENGINECFG_ENGINE || name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG;
}

static cudnnStatus_t text_answer(int64_t wanted, int64_t *count, char *values) {
    static const char json[] = "{\"engine\":\"null device\"}";
    int64_t length = (int64_t)sizeof json;
    if (count) *count = length;
    if (values && wanted > 0) memcpy(values, json, (size_t)(wanted < length ? wanted : length));
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t wanted, int64_t *count, void *values) {
    struct descriptor *one = descriptor_of(descriptor);
    int64_t number;
    if (!one) return CUDNN_STATUS_BAD_PARAM;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) return text_answer(wanted, count, values);
    struct attribute *attribute = find(one, (int)name);
    if (brought((int)name)) {
        if (count) *count = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    if (!attribute && computed((int)name, &number)) {
        if (count) *count = 1;
        if (values && wanted > 0) memcpy(values, &number, size_of((int)type));
        return CUDNN_STATUS_SUCCESS;
    }
    int64_t there = attribute ? attribute->count : 0; /* notes, knobs, layouts: none */
    if (count) *count = there;
    if (values && there) memcpy(values, attribute->values, (size_t)(wanted < there ? wanted : there) * size_of(attribute->type));
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    null_library_launch("cudnnBackendExecute", null_handle_stream(handle));
    return CUDNN_STATUS_SUCCESS;
}
