/* The profiler's side of a recording: its clock, what it asked for, and the buffers that it gave for records. */
#ifndef NULL_RECORDS_H
#define NULL_RECORDS_H
#include <cupti.h>
#include <stdint.h>

/* The kind of record that is asked for; recounts null_recording. */
void null_ask(CUpti_ActivityKind kind, int asked);
int null_asked(CUpti_ActivityKind kind);

/* Ticks of the profiler's clock now. Without a callback of the profiler: ns since 1970. */
uint64_t null_clock_now(void);
uint64_t null_clock_ticks(double ns);
/* Returns 1 where the clock was another one before. NULL: ours. */
int null_set_clock(CUpti_TimestampCallbackFunc clock);

void null_set_buffers(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete);
/* Copies `record` into the profiler's buffer; it is lost (and counted) where the profiler gives none. */
void null_write(const void *record, size_t size);
/* Hands back the buffer in use. */
void null_flush(void);
/* The number of lost records since the last call. */
size_t null_lost(void);
/* Where the record after `record` begins, the first for NULL; NULL at the end. */
CUpti_Activity *null_next(uint8_t *buffer, size_t valid, CUpti_Activity *record);

#endif
