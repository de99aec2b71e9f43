/* CUPTI for the null device: the functions of libcupti that libtorch_cpu (kineto) calls, and the few that stand beside them.
 *
 * kineto calls 21 of them in torch 2.14 (libkineto/src/CuptiActivityApi.cpp, CuptiCallbackApi.cpp, cupti_strings.cpp). Records
 * come from cupti_activity.c, cupti_time.c and cupti_calls.c. */
#include <cupti.h>
#include <stdlib.h>
#include <string.h>

#include "activity.h"
#include "cupti_calls.h"
#include "cupti_names.h"
#include "cupti_records.h"
#include "cupti_time.h"

#define RESULT __attribute__((visibility("default"))) CUptiResult CUPTIAPI

/* ---- which records ---- */

RESULT cuptiGetVersion(uint32_t *version) {
    if (!version) return CUPTI_ERROR_INVALID_PARAMETER;
    *version = null_context(0); /* the mark: kineto writes it into the trace's head as cupti_version */
    return CUPTI_SUCCESS;
}

RESULT cuptiActivityEnable(CUpti_ActivityKind kind) {
    null_ask(kind, 1);
    return CUPTI_SUCCESS;
}
RESULT cuptiActivityDisable(CUpti_ActivityKind kind) {
    null_ask(kind, 0);
    return CUPTI_SUCCESS;
}
RESULT cuptiActivityEnableContext(CUcontext context, CUpti_ActivityKind kind) {
    (void)context;
    return cuptiActivityEnable(kind);
}
RESULT cuptiActivityDisableContext(CUcontext context, CUpti_ActivityKind kind) {
    (void)context;
    return cuptiActivityDisable(kind);
}

RESULT cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable) {
    return null_leave_out(0, cbid, !enable) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
RESULT cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable) {
    return null_leave_out(1, cbid, !enable) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

RESULT cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t enable) {
    null_event_times = enable != 0;
    return CUPTI_SUCCESS;
}
RESULT cuptiActivityEnableLatencyTimestamps(uint8_t enable) {
    (void)enable;
    return CUPTI_SUCCESS;
}

/* Sizes of buffers on the device and per-thread buffers: nothing here depends on them. */
RESULT cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t *size, void *value) {
    (void)attribute;
    return size && value ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
RESULT cuptiActivityGetAttribute(CUpti_ActivityAttribute attribute, size_t *size, void *value) {
    (void)attribute;
    if (!size || !value) return CUPTI_ERROR_INVALID_PARAMETER;
    memset(value, 0, *size);
    return CUPTI_SUCCESS;
}

/* ---- records to the profiler ---- */

RESULT cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete) {
    if (!request || !complete) return CUPTI_ERROR_INVALID_PARAMETER;
    null_set_buffers(request, complete);
    return CUPTI_SUCCESS;
}

RESULT cuptiActivityFlushAll(uint32_t flag) {
    (void)flag;
    null_flush();
    return CUPTI_SUCCESS;
}
RESULT cuptiActivityFlushPeriod(uint32_t milliseconds) {
    (void)milliseconds;
    return CUPTI_SUCCESS;
}

RESULT cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    if (!record) return CUPTI_ERROR_INVALID_PARAMETER;
    if (!buffer || !valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    CUpti_Activity *next = null_next(buffer, valid, *record);
    if (!next) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = next;
    return CUPTI_SUCCESS;
}

RESULT cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped) {
    (void)context, (void)stream;
    if (!dropped) return CUPTI_ERROR_INVALID_PARAMETER;
    *dropped = null_lost();
    return CUPTI_SUCCESS;
}

RESULT cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
    return null_push_external(kind, id);
}
RESULT cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *last) {
    return null_pop_external(kind, last);
}

/* ---- clock ---- */

RESULT cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
    if (null_set_clock(clock)) null_forget_times();
    return CUPTI_SUCCESS;
}
RESULT cuptiGetTimestamp(uint64_t *timestamp) {
    if (!timestamp) return CUPTI_ERROR_INVALID_PARAMETER;
    *timestamp = null_clock_now();
    return CUPTI_SUCCESS;
}

/* ---- callbacks ---- */

static int subscribed;

RESULT cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *data) {
    if (!subscriber) return CUPTI_ERROR_INVALID_PARAMETER;
    if (subscribed) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    subscribed = 1;
    *subscriber = (CUpti_SubscriberHandle)&subscribed;
    null_subscribe(callback, data);
    return CUPTI_SUCCESS;
}
RESULT cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
    if (!subscribed || subscriber != (CUpti_SubscriberHandle)&subscribed) return CUPTI_ERROR_INVALID_PARAMETER;
    subscribed = 0;
    null_subscribe(NULL, NULL);
    return CUPTI_SUCCESS;
}

RESULT cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                           CUpti_CallbackId cbid) {
    if (!subscribed || !subscriber) return CUPTI_ERROR_INVALID_PARAMETER;
    return cbid ? null_listen(domain, cbid, enable != 0) : CUPTI_ERROR_INVALID_PARAMETER;
}
RESULT cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain) {
    if (!subscribed || !subscriber) return CUPTI_ERROR_INVALID_PARAMETER;
    return null_listen(domain, 0, enable != 0);
}

RESULT cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char **name) {
    if (!name) return CUPTI_ERROR_INVALID_PARAMETER;
    *name = NULL;
    if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) *name = null_callback_name(0, cbid);
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API) *name = null_callback_name(1, cbid);
    return *name ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

/* ---- the rest ---- */

/* kineto calls this with TEARDOWN_CUPTI=1 and begins anew at its next trace. */
RESULT cuptiFinalize(void) {
    for (int kind = 0; kind < CUPTI_ACTIVITY_KIND_COUNT; kind++) null_ask((CUpti_ActivityKind)kind, 0);
    subscribed = 0;
    null_subscribe(NULL, NULL);
    return CUPTI_SUCCESS;
}

RESULT cuptiGetLastError(void) { return CUPTI_SUCCESS; }

RESULT cuptiGetResultString(CUptiResult result, const char **text) {
    if (!text) return CUPTI_ERROR_INVALID_PARAMETER;
    switch (result) {
        case CUPTI_SUCCESS: *text = "CUPTI_SUCCESS"; break;
        case CUPTI_ERROR_INVALID_PARAMETER: *text = "CUPTI_ERROR_INVALID_PARAMETER"; break;
        case CUPTI_ERROR_MAX_LIMIT_REACHED: *text = "CUPTI_ERROR_MAX_LIMIT_REACHED"; break;
        case CUPTI_ERROR_QUEUE_EMPTY: *text = "CUPTI_ERROR_QUEUE_EMPTY"; break;
        case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: *text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"; break;
        default: *text = "an error that the null device does not return"; break;
    }
    return CUPTI_SUCCESS;
}
