/* The device's own time: when the work of its streams begins and ends, in ticks of the profiler's clock. */
#ifndef NULL_STREAMS_H
#define NULL_STREAMS_H
#include <stdint.h>

struct null_span {
    uint64_t start, end;
    uint32_t stream; /* CUPTI's number of the stream */
};
/* The next piece of work of a stream. */
struct null_span null_work(void *stream, int device);
/* Returns when the clock has passed `when`. */
void null_pass(uint64_t when);
/* All work is done: the profiler's clock was changed for one that counts otherwise. */
void null_forget_times(void);
/* Not 0: records of events carry the device's time (cuptiActivityEnableCudaEventDeviceTimestamps). */
extern int null_event_times;
/* CUPTI's number of a device's context, which is the mark of our records: README.md. */
uint32_t null_context(int device);

#endif
