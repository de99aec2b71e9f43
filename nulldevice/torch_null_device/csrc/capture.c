/* Captures of streams and the graphs that they become. A graph is a list of nodes in the order of their capture. */
#include "null.h"

#include <stdlib.h>
#include <string.h>

struct node { enum null_node_kind kind; const char *name; void (*host)(void *); void *data; struct graph *graph; };
struct user_object { atomic_int references; void *pointer; void (*destroy)(void *); };
struct held { struct user_object *object; unsigned references; };
struct graph {
    struct node **nodes;
    size_t count, room;
    struct held *objects;
    size_t object_count;
    atomic_int owners; /* the graph itself and each executable made of it */
};
struct null_capture {
    unsigned long long id;
    enum cudaStreamCaptureMode mode;
    bool invalid, ended;
    pthread_t thread;
    struct null_stream *origin;
    struct graph *graph;
    struct null_capture *next; /* kept for good: events may still point here */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
NEW_AFTER_FORK(captures, pthread_mutex_init, lock)
static struct null_capture *captures;
static atomic_int running; /* captures under way: 0 lets every call pass without the lock */
static unsigned long long next_id = 1;
static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

/* ---- graphs ---- */

static struct graph *new_graph(void) {
    struct graph *graph = calloc(1, sizeof *graph);
    if (graph) graph->owners = 1;
    return graph;
}

static struct node *add(struct graph *graph, enum null_node_kind kind, const char *name) {
    if (graph->count == graph->room) {
        size_t room = graph->room ? graph->room * 2 : 64;
        struct node **grown = realloc(graph->nodes, room * sizeof *grown);
        if (!grown) return NULL;
        graph->nodes = grown;
        graph->room = room;
    }
    struct node *node = calloc(1, sizeof *node);
    if (!node) return NULL;
    *node = (struct node){.kind = kind, .name = name, .graph = graph};
    graph->nodes[graph->count++] = node;
    return node;
}

static void release_object(struct user_object *object, int references) {
    if (atomic_fetch_sub(&object->references, references) > references) return;
    if (object->destroy) object->destroy(object->pointer);
    free(object);
}

static void let_go(struct graph *graph) {
    if (atomic_fetch_sub(&graph->owners, 1) > 1) return;
    for (size_t i = 0; i < graph->object_count; i++) release_object(graph->objects[i].object, (int)graph->objects[i].references);
    for (size_t i = 0; i < graph->count; i++) free(graph->nodes[i]);
    free(graph->objects);
    free(graph->nodes);
    free(graph);
}

/* ---- captures ---- */

/* The capture that this stream takes part in, or NULL. Called with the lock held. */
static struct null_capture *capture_of(void *stream) {
    struct null_stream *one = null_stream_of(stream);
    if (!one || !one->capture) return NULL;
    if (one->capture->ended) one->capture = NULL;
    return one->capture;
}

bool null_captured(void *stream, enum null_node_kind kind, const char *name, void (*host)(void *), void *data) {
    if (!atomic_load(&running)) return false;
    pthread_mutex_lock(&lock);
    struct null_capture *capture = capture_of(stream);
    if (capture && !capture->invalid) {
        struct node *node = add(capture->graph, kind, name);
        if (node) node->host = host, node->data = data;
    }
    pthread_mutex_unlock(&lock);
    return capture != NULL;
}

/* Waiting for a stream that is captured fails and spoils the capture. A call that concerns the whole device fails while this
 * thread's mode forbids it: any capture under way for "global", one of this thread for "thread local". */
cudaError_t null_not_while_capturing(void *stream, bool any) {
    if (!atomic_load(&running)) return cudaSuccess;
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&lock);
    if (!any) {
        struct null_capture *capture = capture_of(stream);
        if (capture) capture->invalid = true, error = cudaErrorStreamCaptureUnsupported;
    }
    bool forbids = thread_mode != cudaStreamCaptureModeRelaxed && (any || (uintptr_t)stream < 4096);
    for (struct null_capture *one = captures; one && forbids; one = one->next) {
        bool mine = pthread_equal(one->thread, pthread_self());
        bool concerned = one->mode == cudaStreamCaptureModeGlobal || (one->mode == cudaStreamCaptureModeThreadLocal && mine);
        if (!one->ended && concerned && (mine || thread_mode == cudaStreamCaptureModeGlobal)) {
            one->invalid = true;
            error = cudaErrorStreamCaptureUnsupported;
        }
    }
    pthread_mutex_unlock(&lock);
    return error;
}

int null_event_captures(void *stream, struct null_capture **capture) {
    *capture = NULL;
    if (!atomic_load(&running)) return 0;
    pthread_mutex_lock(&lock);
    *capture = capture_of(stream);
    pthread_mutex_unlock(&lock);
    return *capture != NULL;
}

void null_capture_joins(void *stream, struct null_capture *capture) {
    struct null_stream *one = null_stream_of(stream);
    pthread_mutex_lock(&lock);
    if (one && !capture->ended && !one->capture) one->capture = capture;
    pthread_mutex_unlock(&lock);
}

EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    NULL_API(cudaThreadExchangeStreamCaptureMode);
    enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t into, const cudaGraphNode_t *dependencies,
                                                 const void *edges, size_t count, enum cudaStreamCaptureMode mode) {
    NULL_API(cudaStreamBeginCaptureToGraph);
    struct null_stream *one = null_stream_of(stream);
    if (!one) return null_error(cudaErrorStreamCaptureUnsupported); /* the default stream cannot be captured */
    pthread_mutex_lock(&lock);
    struct null_capture *capture = capture_of(stream) ? NULL : calloc(1, sizeof *capture);
    if (capture) {
        *capture = (struct null_capture){.id = next_id++, .mode = mode, .thread = pthread_self(), .origin = one,
                                         .graph = into ? (struct graph *)into : new_graph(), .next = captures};
        captures = capture;
        one->capture = capture;
        atomic_fetch_add(&running, 1);
    }
    pthread_mutex_unlock(&lock);
    return null_error(capture ? cudaSuccess : cudaErrorIllegalState);
}

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    NULL_API(cudaStreamBeginCapture);
    return cudaStreamBeginCaptureToGraph(stream, NULL, NULL, NULL, 0, mode);
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    NULL_API(cudaStreamEndCapture);
    pthread_mutex_lock(&lock);
    struct null_capture *capture = capture_of(stream);
    cudaError_t error = cudaSuccess;
    if (graph) *graph = NULL;
    if (!capture) error = cudaErrorIllegalState;
    else if (capture->origin != null_stream_of(stream)) error = cudaErrorStreamCaptureUnmatched;
    else {
        capture->ended = true;
        capture->origin->capture = NULL;
        atomic_fetch_sub(&running, 1);
        if (capture->invalid) error = cudaErrorStreamCaptureInvalidated;
        else if (graph) *graph = (cudaGraph_t)capture->graph;
    }
    pthread_mutex_unlock(&lock);
    return null_error(error);
}

static enum cudaStreamCaptureStatus status_of(struct null_capture *capture) {
    if (!capture) return cudaStreamCaptureStatusNone;
    return capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    NULL_API(cudaStreamIsCapturing);
    *status = cudaStreamCaptureStatusNone;
    if (!atomic_load(&running)) return cudaSuccess;
    pthread_mutex_lock(&lock);
    *status = status_of(capture_of(stream));
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

static cudaError_t capture_info(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id, cudaGraph_t *graph,
                                const cudaGraphNode_t **dependencies, const void **edges, size_t *count) {
    *status = cudaStreamCaptureStatusNone;
    if (edges) *edges = NULL;
    if (count) *count = 0;
    if (!atomic_load(&running)) return cudaSuccess;
    pthread_mutex_lock(&lock);
    struct null_capture *capture = capture_of(stream);
    *status = status_of(capture);
    if (capture) {
        struct graph *captured = capture->graph;
        if (id) *id = capture->id;
        if (graph) *graph = (cudaGraph_t)captured;
        if (count) *count = captured->count ? 1 : 0; /* each node waits for the one before it */
        if (dependencies) *dependencies = captured->count ? (const cudaGraphNode_t *)&captured->nodes[captured->count - 1] : NULL;
    }
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

#if NULL_CUDA_MAJOR >= 13
EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                            cudaGraph_t *graph, const cudaGraphNode_t **dependencies, const void **edges, size_t *count) {
    NULL_API(cudaStreamGetCaptureInfo);
    return capture_info(stream, status, id, graph, dependencies, edges, count);
}
#else
EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id) {
    NULL_API(cudaStreamGetCaptureInfo);
    return capture_info(stream, status, id, NULL, NULL, NULL, NULL);
}

EXPORT cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                               cudaGraph_t *graph, const cudaGraphNode_t **dependencies, size_t *count) {
    NULL_API(cudaStreamGetCaptureInfo_v2);
    return capture_info(stream, status, id, graph, dependencies, NULL, count);
}

EXPORT cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                               cudaGraph_t *graph, const cudaGraphNode_t **dependencies, const void **edges,
                                               size_t *count) {
    NULL_API(cudaStreamGetCaptureInfo_v3);
    return capture_info(stream, status, id, graph, dependencies, edges, count);
}

EXPORT cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t stream, cudaGraphNode_t *nodes, const void *edges, size_t count,
                                                          unsigned flags) {
    NULL_API(cudaStreamUpdateCaptureDependencies_v2);
    return cudaSuccess;
}
#endif

/* The arguments differ by version; the order of capture stays the order of the nodes. */
EXPORT cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream) {
    NULL_API(cudaStreamUpdateCaptureDependencies);
    return cudaSuccess;
}

/* ---- what is done with graphs ---- */

EXPORT cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags) {
    NULL_API(cudaGraphCreate);
    *graph = (cudaGraph_t)new_graph();
    return *graph ? cudaSuccess : null_error(cudaErrorMemoryAllocation);
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    NULL_API(cudaGraphDestroy);
    if (graph) let_go((struct graph *)graph);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    NULL_API(cudaGraphGetNodes);
    struct graph *one = (struct graph *)graph;
    for (size_t i = 0; nodes && i < *count && i < one->count; i++) nodes[i] = (cudaGraphNode_t)one->nodes[i];
    *count = one->count;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    NULL_API(cudaGraphGetRootNodes);
    struct graph *one = (struct graph *)graph;
    size_t roots = one->count ? 1 : 0;
    if (nodes && *count && roots) nodes[0] = (cudaGraphNode_t)one->nodes[0];
    *count = roots;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type) {
    NULL_API(cudaGraphNodeGetType);
    static const enum cudaGraphNodeType TYPES[] = {cudaGraphNodeTypeKernel, cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeMemset,
                                                   cudaGraphNodeTypeHost, cudaGraphNodeTypeEventRecord, cudaGraphNodeTypeEmpty};
    *type = TYPES[((struct node *)node)->kind];
    return cudaSuccess;
}

/* The node before it, if any. Both versions have the count as their last argument. */
static cudaError_t dependencies_of(cudaGraphNode_t node, cudaGraphNode_t *found, size_t *count) {
    struct node *one = (struct node *)node;
    size_t at = 0;
    while (at < one->graph->count && one->graph->nodes[at] != one) at++;
    size_t there = at > 0 && at < one->graph->count ? 1 : 0;
    if (found && there && *count) found[0] = (cudaGraphNode_t)one->graph->nodes[at - 1];
    *count = there;
    return cudaSuccess;
}

#if NULL_CUDA_MAJOR >= 13
EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *found, void *edges, size_t *count) {
    NULL_API(cudaGraphNodeGetDependencies);
    return dependencies_of(node, found, count);
}
#else
EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *found, size_t *count) {
    NULL_API(cudaGraphNodeGetDependencies);
    return dependencies_of(node, found, count);
}

EXPORT cudaError_t cudaGraphNodeGetDependencies_v2(cudaGraphNode_t node, cudaGraphNode_t *found, void *edges, size_t *count) {
    NULL_API(cudaGraphNodeGetDependencies_v2);
    return dependencies_of(node, found, count);
}
#endif

EXPORT cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned flags) {
    NULL_API(cudaGraphDebugDotPrint);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags) {
    NULL_API(cudaGraphInstantiateWithFlags);
    atomic_fetch_add(&((struct graph *)graph)->owners, 1);
    *executable = (cudaGraphExec_t)graph;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long flags) {
    NULL_API(cudaGraphInstantiate);
    return cudaGraphInstantiateWithFlags(executable, graph, flags);
}

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    NULL_API(cudaGraphExecDestroy);
    if (executable) let_go((struct graph *)executable);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
    NULL_API(cudaGraphUpload);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    NULL_API(cudaGraphLaunch);
    struct graph *graph = (struct graph *)executable;
    if (null_captured(stream, NODE_OTHER, "graph", NULL, NULL)) return cudaSuccess;
    null_count(COUNT_GRAPH_LAUNCHES, 1);
    null_kernel_ran();
    for (size_t i = 0; i < graph->count; i++) {
        struct node *node = graph->nodes[i];
        if (node->kind == NODE_HOST && node->host) null_run_host_function(node->host, node->data);
        if (node->kind == NODE_KERNEL)
            null_kernel(&(struct null_launch){.name = node->name, .grid = {1, 1, 1}, .block = {1, 1, 1}, .stream = stream,
                                              .device = null_stream_device(stream), .graph = 1, .node = i + 1});
    }
    return cudaSuccess;
}

/* ---- objects that a graph keeps alive ---- */

EXPORT cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *pointer, cudaHostFn_t destroy, unsigned references, unsigned flags) {
    NULL_API(cudaUserObjectCreate);
    struct user_object *one = calloc(1, sizeof *one);
    if (!one) return null_error(cudaErrorMemoryAllocation);
    one->references = (int)references;
    one->pointer = pointer;
    one->destroy = destroy;
    *object = (cudaUserObject_t)one;
    return cudaSuccess;
}

EXPORT cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned count) {
    NULL_API(cudaUserObjectRetain);
    atomic_fetch_add(&((struct user_object *)object)->references, (int)count);
    return cudaSuccess;
}

EXPORT cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
    NULL_API(cudaUserObjectRelease);
    release_object((struct user_object *)object, (int)count);
    return cudaSuccess;
}

EXPORT cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
    NULL_API(cudaGraphRetainUserObject);
    struct graph *one = (struct graph *)graph;
    struct held *grown = realloc(one->objects, (one->object_count + 1) * sizeof *grown);
    if (!grown) return null_error(cudaErrorMemoryAllocation);
    one->objects = grown;
    one->objects[one->object_count++] = (struct held){(struct user_object *)object, count};
    if (!(flags & cudaGraphUserObjectMove)) cudaUserObjectRetain(object, count);
    return cudaSuccess;
}
