/* What the device did, as CUPTI's records: kernels, copies, fills. Their times are placeholders (cupti_time.c). */
#include "activity.h"

#include <cupti.h>

#include "cupti_calls.h"
#include "cupti_records.h"
#include "cupti_time.h"
#include "kernel_table.h"

/* ---- kernels ---- */

void null_record_kernel(const struct null_launch *launch) {
    struct null_span span = null_work(launch->stream, launch->device);
    if (!null_asked(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) && !null_asked(CUPTI_ACTIVITY_KIND_KERNEL)) return;
    CUpti_ActivityKernel9 record = {0};
    const char *name = launch->name ? launch->name : null_kernel_name(launch->function);
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.name = name ? name : "(kernel without a name)";
    record.start = span.start;
    record.end = record.completed = span.end;
    record.deviceId = (uint32_t)launch->device;
    record.contextId = null_context(launch->device);
    record.streamId = span.stream;
    record.gridX = (int32_t)launch->grid[0];
    record.gridY = (int32_t)launch->grid[1];
    record.gridZ = (int32_t)launch->grid[2];
    record.blockX = (int32_t)launch->block[0];
    record.blockY = (int32_t)launch->block[1];
    record.blockZ = (int32_t)launch->block[2];
    record.clusterX = launch->cluster[0];
    record.clusterY = launch->cluster[1];
    record.clusterZ = launch->cluster[2];
    const struct null_kernel_facts *facts = null_facts_of(launch->function);
    record.dynamicSharedMemory = (int32_t)launch->shared;
    record.staticSharedMemory = (int32_t)(facts ? facts->shared : launch->static_shared);
    record.registersPerThread = (uint16_t)(facts ? facts->registers : launch->registers);
    record.localMemoryPerThread = facts ? facts->local : 0;
    record.correlationId = null_correlation();
    record.gridId = record.correlationId;
    record.graphId = launch->graph;
    record.graphNodeId = launch->node;
    record.channelType = CUPTI_CHANNEL_TYPE_COMPUTE;
    null_write(&record, sizeof record);
}

void null_record_library_kernel(const struct null_launch *launch) {
    NULL_API(cudaLaunchKernelExC);
    null_record_kernel(launch);
}

/* ---- copies and fills ---- */

static CUpti_ActivityMemcpyKind kind_of(const struct null_copy *copy) {
    int from = copy->from >= NULL_DEVICE, to = copy->to >= NULL_DEVICE;
    if (from && to) return CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
    if (from) return CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
    return to ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD : CUPTI_ACTIVITY_MEMCPY_KIND_HTOH;
}

static void write_copy_between(const struct null_copy *copy, struct null_span span) {
    CUpti_ActivityMemcpyPtoP4 record = {0};
    record.kind = CUPTI_ACTIVITY_KIND_MEMCPY2;
    record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
    record.srcKind = (uint8_t)copy->from;
    record.dstKind = (uint8_t)copy->to;
    record.flags = copy->blocking ? 0 : CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
    record.bytes = copy->bytes;
    record.start = span.start;
    record.end = span.end;
    record.deviceId = (uint32_t)copy->device;
    record.contextId = null_context(copy->device);
    record.streamId = span.stream;
    record.srcDeviceId = (uint32_t)copy->from_device;
    record.srcContextId = null_context(copy->from_device);
    record.dstDeviceId = (uint32_t)copy->to_device;
    record.dstContextId = null_context(copy->to_device);
    record.correlationId = null_correlation();
    record.graphId = copy->graph;
    record.graphNodeId = copy->node;
    record.channelType = CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY;
    null_write(&record, sizeof record);
}

static void write_copy(const struct null_copy *copy, struct null_span span) {
    CUpti_ActivityMemcpy5 record = {0};
    record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
    record.copyKind = (uint8_t)kind_of(copy);
    record.srcKind = (uint8_t)copy->from;
    record.dstKind = (uint8_t)copy->to;
    record.flags = copy->blocking ? 0 : CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
    record.bytes = copy->bytes;
    record.start = span.start;
    record.end = span.end;
    record.deviceId = (uint32_t)copy->device;
    record.contextId = null_context(copy->device);
    record.streamId = span.stream;
    record.correlationId = null_correlation();
    record.graphId = copy->graph;
    record.graphNodeId = copy->node;
    record.channelType = CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY;
    null_write(&record, sizeof record);
}

void null_record_copy(const struct null_copy *copy) {
    struct null_span span = null_work(copy->stream, copy->device);
    int on_devices = copy->from == NULL_DEVICE && copy->to == NULL_DEVICE;
    if (on_devices && copy->from_device != copy->to_device) {
        if (null_asked(CUPTI_ACTIVITY_KIND_MEMCPY2) || null_asked(CUPTI_ACTIVITY_KIND_MEMCPY)) write_copy_between(copy, span);
    } else if (null_asked(CUPTI_ACTIVITY_KIND_MEMCPY)) {
        write_copy(copy, span);
    }
    if (copy->blocking) null_pass(span.end);
}

void null_record_fill(size_t bytes, unsigned value, enum null_memory where, void *stream, int device) {
    struct null_span span = null_work(stream, device);
    if (!null_asked(CUPTI_ACTIVITY_KIND_MEMSET)) return;
    CUpti_ActivityMemset4 record = {0};
    record.kind = CUPTI_ACTIVITY_KIND_MEMSET;
    record.value = value;
    record.bytes = bytes;
    record.start = span.start;
    record.end = span.end;
    record.deviceId = (uint32_t)device;
    record.contextId = null_context(device);
    record.streamId = span.stream;
    record.correlationId = null_correlation();
    record.flags = CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC;
    record.memoryKind = (uint16_t)where;
    record.channelType = CUPTI_CHANNEL_TYPE_COMPUTE;
    null_write(&record, sizeof record);
}
