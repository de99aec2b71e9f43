/* What is known of torch's compiled kernels: torch_null_device/environment.py reads it from torch's libraries. */
#ifndef NULL_KERNEL_TABLE_H
#define NULL_KERNEL_TABLE_H
#include <stdint.h>

struct null_kernel_facts {
    uint16_t registers; /* per thread */
    uint16_t threads;   /* of a block at most: its launch bounds */
    uint32_t shared;    /* static shared memory of a block, bytes */
    uint32_t local;     /* of a thread, bytes */
};
/* By mangled name; NULL where it is not known: the kernel is not torch's own, or no table was made (NULLDEVICE_KERNELS names its
 * file). */
const struct null_kernel_facts *null_facts_by_name(const char *mangled);
/* Of a registered kernel (activity.h). The second call for a kernel is a look into a table of addresses. */
const struct null_kernel_facts *null_facts_of(const void *function);

#endif
