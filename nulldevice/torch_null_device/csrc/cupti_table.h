/* A map from addresses to addresses: open addressing, grows, nothing is ever taken out (put NULL instead). Not locked. */
#ifndef NULL_TABLE_H
#define NULL_TABLE_H
#include <stddef.h>

struct null_table {
    struct null_entry {
        const void *key;
        void *value;
    } *entries;
    size_t room; /* a power of two, or 0 */
    size_t used;
};

/* NULL where `key` was never put. */
void *null_table_get(const struct null_table *table, const void *key);
/* Returns 0 where no memory was left: then nothing changed. `key` is not NULL. */
int null_table_put(struct null_table *table, const void *key, void *value);

#endif
