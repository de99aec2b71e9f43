/* NVML: what torch, its Python module and nvidia-ml-py ask. Its header comes with no wheel, so the types are written here. */
#include "null.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef int nvml_return; /* 0 success, 2 invalid argument, 3 not supported, 6 not found */
#define NVML_INVALID_ARGUMENT 2
#define NVML_NOT_SUPPORTED 3
#define NVML_NOT_FOUND 6

struct nvml_memory { unsigned long long total, free, used; };
struct nvml_memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct nvml_process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
struct nvml_pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char name[32]; };
struct nvml_utilization { unsigned gpu, memory; };

/* A device's handle is its number plus one, so that none is NULL. */
static void *handle_of(int physical) { return (void *)(intptr_t)(physical + 1); }

static int number_of(void *device) { return (int)(intptr_t)device - 1; }

static int visible_of(int physical) {
    for (int i = 0; i < null_device_count(); i++)
        if (null_physical(i) == physical) return i;
    return -1;
}

EXPORT nvml_return nvmlInit(void) { return 0; }

EXPORT nvml_return nvmlInit_v2(void) { return 0; }

EXPORT nvml_return nvmlInitWithFlags(unsigned flags) { return 0; }

EXPORT nvml_return nvmlShutdown(void) { return 0; }

EXPORT const char *nvmlErrorString(nvml_return result) {
    return !result ? "Success" : result == NVML_NOT_SUPPORTED ? "Not Supported" : result == NVML_NOT_FOUND ? "Not Found" : "Invalid Argument";
}

EXPORT nvml_return nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "580.65.06");
    return 0;
}

EXPORT nvml_return nvmlSystemGetCudaDriverVersion(int *version) {
    *version = null_cuda_version();
    return 0;
}

EXPORT nvml_return nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

EXPORT nvml_return nvmlSystemGetNVMLVersion(char *text, unsigned length) {
    snprintf(text, length, "13.0");
    return 0;
}

EXPORT nvml_return nvmlDeviceGetCount(unsigned *count) {
    *count = (unsigned)null_physical_count();
    return 0;
}

EXPORT nvml_return nvmlDeviceGetCount_v2(unsigned *count) { return nvmlDeviceGetCount(count); }

EXPORT nvml_return nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= (unsigned)null_physical_count()) return NVML_INVALID_ARGUMENT;
    *device = handle_of((int)index);
    return 0;
}

EXPORT nvml_return nvmlDeviceGetHandleByIndex(unsigned index, void **device) { return nvmlDeviceGetHandleByIndex_v2(index, device); }

EXPORT nvml_return nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device) {
    unsigned domain, bus;
    if (sscanf(bus_id, "%x:%x", &domain, &bus) != 2 || bus < 1 || bus > (unsigned)null_physical_count()) return NVML_NOT_FOUND;
    *device = handle_of((int)bus - 1);
    return 0;
}

EXPORT nvml_return nvmlDeviceGetIndex(void *device, unsigned *index) {
    *index = (unsigned)number_of(device);
    return 0;
}

EXPORT nvml_return nvmlDeviceGetName(void *device, char *name, unsigned length) {
    snprintf(name, length, "%s", null_gpu()->name);
    return 0;
}

EXPORT nvml_return nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    unsigned char u[16];
    null_uuid(number_of(device), u);
    snprintf(text, length, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3], u[4],
             u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    return 0;
}

EXPORT nvml_return nvmlDeviceGetHandleByUUID(const char *wanted, void **device) {
    for (int i = 0; i < null_physical_count(); i++) {
        char text[48];
        nvmlDeviceGetUUID(handle_of(i), text, sizeof text);
        if (!strcmp(text, wanted)) {
            *device = handle_of(i);
            return 0;
        }
    }
    return NVML_NOT_FOUND;
}

EXPORT nvml_return nvmlDeviceGetMemoryInfo(void *device, struct nvml_memory *memory) {
    size_t free_bytes = null_gpu()->memory, total = free_bytes;
    int visible = visible_of(number_of(device));
    if (visible >= 0) null_free_and_total(visible, &free_bytes, &total);
    *memory = (struct nvml_memory){total, free_bytes, total - free_bytes};
    return 0;
}

EXPORT nvml_return nvmlDeviceGetMemoryInfo_v2(void *device, struct nvml_memory_v2 *memory) {
    struct nvml_memory plain;
    nvmlDeviceGetMemoryInfo(device, &plain);
    *memory = (struct nvml_memory_v2){memory->version, plain.total, 0, plain.free, plain.used};
    return 0;
}

EXPORT nvml_return nvmlDeviceGetPciInfo_v3(void *device, struct nvml_pci *pci) {
    memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned)number_of(device) + 1;
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus & 0xff);
    snprintf(pci->name, sizeof pci->name, "00000000:%02X:00.0", pci->bus & 0xff);
    return 0;
}

EXPORT nvml_return nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    *major = null_gpu()->major;
    *minor = null_gpu()->minor;
    return 0;
}

EXPORT nvml_return nvmlDeviceGetUtilizationRates(void *device, struct nvml_utilization *rates) {
    *rates = (struct nvml_utilization){0, 0}; /* nothing ever runs on it */
    return 0;
}

/* This process alone uses the device. */
EXPORT nvml_return nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, struct nvml_process *processes) {
    struct nvml_memory memory;
    nvmlDeviceGetMemoryInfo(device, &memory);
    unsigned room = *count;
    *count = 1;
    if (room < 1) return 7; /* insufficient size: the caller asks again */
    processes[0] = (struct nvml_process){(unsigned)getpid(), memory.used, ~0u, ~0u};
    return 0;
}

EXPORT nvml_return nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct nvml_process *processes) {
    return nvmlDeviceGetComputeRunningProcesses(device, count, processes);
}

EXPORT nvml_return nvmlDeviceGetP2PStatus(void *one, void *other, int which, int *status) {
    *status = 0;
    return 0;
}

/* nvmlGpuFabricInfoV_t. From Hopper on the question is answered: no fabric. */
struct nvml_fabric { unsigned version; unsigned char cluster[16]; nvml_return status; unsigned clique; unsigned char state; unsigned health; };

EXPORT nvml_return nvmlDeviceGetGpuFabricInfoV(void *device, struct nvml_fabric *info) {
    if (null_gpu()->major < 9) return NVML_NOT_SUPPORTED;
    *info = (struct nvml_fabric){.version = info->version};
    return 0;
}

/* No NVLink: those who ask fall back to the PCI bus. */
EXPORT nvml_return nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type) { return NVML_NOT_SUPPORTED; }

EXPORT nvml_return nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct nvml_pci *pci) { return NVML_NOT_SUPPORTED; }

EXPORT nvml_return nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active) { return NVML_NOT_SUPPORTED; }

EXPORT nvml_return nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees) { return NVML_NOT_SUPPORTED; }

EXPORT nvml_return nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { return NVML_NOT_SUPPORTED; }

EXPORT nvml_return nvmlDeviceGetClockInfo(void *device, int which, unsigned *megahertz) { return NVML_NOT_SUPPORTED; }
