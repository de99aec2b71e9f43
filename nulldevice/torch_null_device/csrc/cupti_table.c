#include "cupti_table.h"

#include <stdint.h>
#include <stdlib.h>

static struct null_entry *place(struct null_entry *entries, size_t room, const void *key) {
    size_t at = ((uintptr_t)key * 0x9E3779B97F4A7C15u) >> 20 & (room - 1);
    while (entries[at].key && entries[at].key != key) at = (at + 1) & (room - 1);
    return &entries[at];
}

static int grow(struct null_table *table) {
    size_t room = table->room ? 2 * table->room : 256;
    struct null_entry *entries = calloc(room, sizeof *entries);
    if (!entries) return 0;
    for (size_t i = 0; i < table->room; i++)
        if (table->entries[i].key) *place(entries, room, table->entries[i].key) = table->entries[i];
    free(table->entries);
    table->entries = entries;
    table->room = room;
    return 1;
}

void *null_table_get(const struct null_table *table, const void *key) {
    return table->room ? place(table->entries, table->room, key)->value : NULL;
}

int null_table_put(struct null_table *table, const void *key, void *value) {
    if (2 * table->used >= table->room && !grow(table)) return 0;
    struct null_entry *entry = place(table->entries, table->room, key);
    table->used += !entry->key;
    entry->key = key;
    entry->value = value;
    return 1;
}
