/* Calls of the runtime and of the driver: their records, their external correlations, callbacks around them. */
#include "cupti_calls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "activity.h"
#include "cupti_names.h"
#include "cupti_records.h"

#define CALLBACKS 2048 /* more than CUPTI has functions in a domain */
#define DEPTH 64
#define EXTERNAL_KINDS 16

static atomic_uint correlations;
static __thread struct null_call *current;
static __thread struct {
    uint64_t ids[DEPTH];
    unsigned depth; /* may pass DEPTH: then the deepest ids are not kept */
} external[EXTERNAL_KINDS];

static unsigned char left_out[2][CALLBACKS];
static unsigned char heard[2][CALLBACKS];
static CUpti_CallbackFunc subscriber;
static void *subscriber_data;

uint32_t null_correlation(void) { return current ? current->correlation : ++correlations; }

/* ---- external correlations ---- */

CUptiResult null_push_external(CUpti_ExternalCorrelationKind kind, uint64_t id) {
    if ((unsigned)kind >= EXTERNAL_KINDS) return CUPTI_ERROR_INVALID_PARAMETER;
    unsigned depth = external[kind].depth++;
    if (depth < DEPTH) external[kind].ids[depth] = id;
    return CUPTI_SUCCESS;
}

static uint64_t top(unsigned kind) {
    unsigned depth = external[kind].depth;
    return external[kind].ids[depth > DEPTH ? DEPTH - 1 : depth - 1];
}

CUptiResult null_pop_external(CUpti_ExternalCorrelationKind kind, uint64_t *id) {
    if ((unsigned)kind >= EXTERNAL_KINDS) return CUPTI_ERROR_INVALID_PARAMETER;
    if (!external[kind].depth) return CUPTI_ERROR_QUEUE_EMPTY;
    if (id) *id = top(kind);
    external[kind].depth--;
    return CUPTI_SUCCESS;
}

/* Before any record of the call: kineto of torch 2.6 reads them in one pass. */
static void write_external(uint32_t correlation) {
    if (!null_asked(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)) return;
    for (unsigned kind = 1; kind < EXTERNAL_KINDS; kind++) {
        if (!external[kind].depth) continue;
        CUpti_ActivityExternalCorrelation record = {0};
        record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
        record.externalKind = (CUpti_ExternalCorrelationKind)kind;
        record.externalId = top(kind);
        record.correlationId = correlation;
        null_write(&record, sizeof record);
    }
}

/* ---- callbacks ---- */

int null_leave_out(int driver, unsigned cbid, int out) {
    if (!null_callback_name(driver, cbid) || cbid >= CALLBACKS) return 0;
    left_out[driver][cbid] = out != 0;
    return 1;
}

static void listening(void) {
    int any = subscriber && (memchr(heard[0], 1, CALLBACKS) || memchr(heard[1], 1, CALLBACKS));
    null_ask(CUPTI_ACTIVITY_KIND_INVALID, any); /* kind 0 stands for callbacks: calls are followed, nothing is written */
}

void null_subscribe(CUpti_CallbackFunc callback, void *data) {
    subscriber = callback;
    subscriber_data = data;
    if (!callback) memset(heard, 0, sizeof heard);
    listening();
}

CUptiResult null_listen(CUpti_CallbackDomain domain, unsigned cbid, int on) {
    if (domain != CUPTI_CB_DOMAIN_RUNTIME_API && domain != CUPTI_CB_DOMAIN_DRIVER_API) return CUPTI_SUCCESS;
    unsigned char *all = heard[domain == CUPTI_CB_DOMAIN_DRIVER_API];
    if (cbid >= CALLBACKS) return CUPTI_ERROR_INVALID_PARAMETER;
    if (cbid)
        all[cbid] = on != 0;
    else
        memset(all, on != 0, CALLBACKS);
    listening();
    return CUPTI_SUCCESS;
}

static void call_back(const struct null_call *call, CUpti_ApiCallbackSite site) {
    const struct null_function *function = call->function;
    CUpti_CallbackFunc callback = subscriber;
    if (!callback || function->cbid >= CALLBACKS || !heard[function->driver][function->cbid]) return;
    static __thread uint64_t data;
    CUpti_CallbackData about = {0};
    about.callbackSite = site;
    about.functionName = function->name;
    about.correlationId = call->correlation;
    about.correlationData = &data;
    callback(subscriber_data, function->driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API,
             (CUpti_CallbackId)function->cbid, &about);
}

/* ---- calls ---- */

/* A call that the runtime makes inside of another is a part of that one, as in CUPTI. */
void null_api_enter(struct null_call *call, struct null_function *function) {
    if (current) return;
    if (!function->cbid) function->cbid = null_cbid(function->driver, function->name);
    if (function->cbid < 0) return;
    call->function = function;
    call->correlation = ++correlations;
    call->start = null_clock_now();
    current = call;
    write_external(call->correlation);
    call_back(call, CUPTI_API_ENTER);
}

static void write_call(const struct null_call *call) {
    const struct null_function *function = call->function;
    CUpti_ActivityKind kind = function->driver ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
    if (!null_asked(kind) || (function->cbid < CALLBACKS && left_out[function->driver][function->cbid])) return;
    CUpti_ActivityAPI record = {0};
    record.kind = kind;
    record.cbid = (CUpti_CallbackId)function->cbid;
    record.start = call->start;
    record.end = null_clock_now();
    record.processId = (uint32_t)getpid();
    record.threadId = (uint32_t)pthread_self(); /* as kineto names threads */
    record.correlationId = call->correlation;
    null_write(&record, sizeof record);
}

void null_api_exit(struct null_call *call) {
    if (!call->function) return;
    current = NULL;
    write_call(call);
    call_back(call, CUPTI_API_EXIT);
}
