/* Calls of the API in progress, and who listens to them. */
#ifndef NULL_CALLS_H
#define NULL_CALLS_H
#include <cupti.h>
#include <stdint.h>

/* The correlation of the call that this thread is in; a new one where it is in none. */
uint32_t null_correlation(void);

/* What cuptiActivityPush/PopExternalCorrelationId keep for each thread. Returns a CUptiResult. */
CUptiResult null_push_external(CUpti_ExternalCorrelationKind kind, uint64_t id);
CUptiResult null_pop_external(CUpti_ExternalCorrelationKind kind, uint64_t *id);

/* Calls that cuptiActivityEnableRuntimeApi and ...DriverApi leave out. Returns 0 for a number that CUPTI does not have. */
int null_leave_out(int driver, unsigned cbid, int out);

/* The subscriber of cuptiSubscribe; NULL: none. `callback` hears the functions that are turned on below. */
void null_subscribe(CUpti_CallbackFunc callback, void *data);
CUptiResult null_listen(CUpti_CallbackDomain domain, unsigned cbid, int on); /* cbid 0: all of the domain */

#endif
