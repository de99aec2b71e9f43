/* cuFFT: plans are numbers, and each has a stream. */
#include "null.h"

#include <cufft.h>

#define PLANS 8192
static void *streams[PLANS];
static atomic_int next_plan = 1;

static void *stream_of(cufftHandle plan) { return streams[(unsigned)plan % PLANS]; }

EXPORT cufftResult cufftCreate(cufftHandle *plan) {
    *plan = atomic_fetch_add(&next_plan, 1) & 0x7fffffff;
    streams[(unsigned)*plan % PLANS] = NULL;
    return CUFFT_SUCCESS;
}

EXPORT cufftResult cufftDestroy(cufftHandle plan) { return CUFFT_SUCCESS; }

EXPORT cufftResult cufftSetStream(cufftHandle plan, cudaStream_t stream) {
    streams[(unsigned)plan % PLANS] = stream;
    return CUFFT_SUCCESS;
}

EXPORT cufftResult cufftSetAutoAllocation(cufftHandle plan, int automatic) { return CUFFT_SUCCESS; }

EXPORT cufftResult cufftSetWorkArea(cufftHandle plan, void *area) { return CUFFT_SUCCESS; }

EXPORT cufftResult cufftGetVersion(int *version) {
    *version = CUFFT_VERSION;
    return CUFFT_SUCCESS;
}

/* The work area is as large as the complex signal at most for sizes that cuFFT factors; how large, it does not say: none. */
EXPORT cufftResult cufftXtMakePlanMany(cufftHandle plan, int rank, long long *n, long long *in_embed, long long in_stride,
                                       long long in_distance, cudaDataType in_type, long long *out_embed, long long out_stride,
                                       long long out_distance, cudaDataType out_type, long long batch, size_t *size, cudaDataType type) {
    if (size) *size = 0;
    return CUFFT_SUCCESS;
}

EXPORT cufftResult cufftXtExec(cufftHandle plan, void *input, void *output, int direction) {
    null_library_launch("cufftXtExec", stream_of(plan));
    return CUFFT_SUCCESS;
}
