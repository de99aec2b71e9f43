/* CUPTI's numbers (cbid) of the runtime's and the driver's functions, and the names that it gives for them. */
#ifndef NULL_NAMES_H
#define NULL_NAMES_H

/* The number of a function by its name without a version ("cudaMalloc"), or -1. */
int null_cbid(int driver, const char *name);
/* CUPTI's name of a number ("cudaMalloc_v3020"), or NULL. */
const char *null_callback_name(int driver, unsigned cbid);

#endif
