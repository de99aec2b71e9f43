/* Which GPU is played: read from the environment that torch_null_device/environment.py writes. */
#include "null.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct null_gpu gpu;
static int visible[MAX_DEVICES], visible_count, physical_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;
_Thread_local int null_current_device;

struct limits {
    int capability, shared_processor, shared_optin, threads, blocks;
};
/* CUDA C++ programming guide, "Technical specifications per compute capability": shared memory per processor and per block
 * (opt-in), resident threads and blocks per processor. */
static const struct limits LIMITS[] = {
    {70, 96 << 10, 96 << 10, 2048, 32},   {75, 64 << 10, 64 << 10, 1024, 16},    {80, 164 << 10, 163 << 10, 2048, 32},
    {86, 100 << 10, 99 << 10, 1536, 16},  {89, 100 << 10, 99 << 10, 1536, 24},   {90, 228 << 10, 227 << 10, 2048, 32},
    {100, 228 << 10, 227 << 10, 2048, 32}, {103, 228 << 10, 227 << 10, 2048, 32}, {120, 100 << 10, 99 << 10, 1536, 24},
};

static void capability_limits(void) {
    const struct limits *best = &LIMITS[0];
    for (size_t i = 0; i < COUNT(LIMITS); i++)
        if (LIMITS[i].capability <= gpu.major * 10 + gpu.minor) best = &LIMITS[i];
    gpu.shared_processor = best->shared_processor;
    gpu.shared_optin = best->shared_optin;
    gpu.threads_processor = best->threads;
    gpu.blocks_processor = best->blocks;
}

/* One field of "name=NVIDIA H100 80GB HBM3;memory=85014609920;...". */
static void field(const char *key, const char *value) {
    long long number = strtoll(value, NULL, 10);
    if (!strcmp(key, "name")) snprintf(gpu.name, sizeof gpu.name, "%s", value);
    else if (!strcmp(key, "memory")) gpu.memory = (size_t)number;
    else if (!strcmp(key, "context")) gpu.context = (size_t)number;
    else if (!strcmp(key, "capability")) sscanf(value, "%d.%d", &gpu.major, &gpu.minor);
    else if (!strcmp(key, "processors")) gpu.processors = (int)number;
    else if (!strcmp(key, "l2")) gpu.l2 = (int)number;
    else if (!strcmp(key, "bus_width")) gpu.bus_width = (int)number;
    else if (!strcmp(key, "memory_clock")) gpu.memory_clock = (int)number;
    else if (!strcmp(key, "clock")) gpu.clock = (int)number;
}

void null_uuid(int physical, unsigned char uuid[16]) {
    memset(uuid, 0, 16);
    memcpy(uuid, "null-device", 11);
    uuid[15] = (unsigned char)physical;
}

static void uuid_text(int physical, char text[48]) {
    unsigned char u[16];
    null_uuid(physical, u);
    snprintf(text, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3], u[4],
             u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

/* CUDA_VISIBLE_DEVICES: numbers or UUIDs (a beginning is enough), up to the first that is none. */
static void choose_visible(void) {
    const char *chosen = getenv("CUDA_VISIBLE_DEVICES");
    if (!chosen) {
        for (int i = 0; i < physical_count; i++) visible[i] = i;
        visible_count = physical_count;
        return;
    }
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", chosen);
    char *rest = NULL;
    for (char *word = strtok_r(copy, ", ", &rest); word && visible_count < MAX_DEVICES; word = strtok_r(NULL, ", ", &rest)) {
        int found = -1;
        if (!strncmp(word, "GPU-", 4)) {
            for (int i = 0; i < physical_count && found < 0; i++) {
                char text[48];
                uuid_text(i, text);
                if (!strncmp(text, word, strlen(word))) found = i;
            }
        } else if (isdigit((unsigned char)*word)) {
            found = atoi(word);
        }
        if (found < 0 || found >= physical_count) break;
        visible[visible_count++] = found;
    }
}

static void read_settings(void) {
    const char *said = getenv("NULLDEVICE_GPU");
    char copy[1024];
    gpu = (struct null_gpu){.name = "NVIDIA H100 80GB HBM3", .memory = (size_t)80 << 30, .major = 9, .processors = 132,
                            .l2 = 50 << 20, .bus_width = 5120, .memory_clock = 2619000, .clock = 1980000};
    snprintf(copy, sizeof copy, "%s", said ? said : "");
    char *rest = NULL;
    for (char *word = strtok_r(copy, ";", &rest); word; word = strtok_r(NULL, ";", &rest)) {
        char *equals = strchr(word, '=');
        if (!equals) continue;
        *equals = 0;
        field(word, equals + 1);
    }
    capability_limits();
    const char *count = getenv("NULLDEVICE_COUNT");
    physical_count = count ? atoi(count) : 1;
    if (physical_count < 0) physical_count = 0;
    if (physical_count > MAX_DEVICES) physical_count = MAX_DEVICES;
    choose_visible();
}

const struct null_gpu *null_gpu(void) {
    pthread_once(&once, read_settings);
    return &gpu;
}

int null_device_count(void) {
    pthread_once(&once, read_settings);
    return visible_count;
}

int null_physical_count(void) {
    pthread_once(&once, read_settings);
    return physical_count;
}

int null_physical(int device) {
    return device >= 0 && device < null_device_count() ? visible[device] : -1;
}

int null_cuda_version(void) {
#ifdef NULL_CUDA_VERSION
    return NULL_CUDA_VERSION;
#else
    return NULL_CUDA_MAJOR * 1000;
#endif
}
