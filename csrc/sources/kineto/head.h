/* The members of a trace besides its events. Private to the trace source. */
#ifndef FS_SOURCES_KINETO_HEAD_H
#define FS_SOURCES_KINETO_HEAD_H

#include "store/store.h"

typedef struct {
    int64_t base;          /* "baseTimeNanoseconds"; 0: missing */
    bool own;              /* the trace was written by flopscope */
    uint32_t accelerators; /* of which the head is evidence: bits, as store/accelerator.h has them */
} fs_kineto_head_facts;

/* Add the head's "deviceProperties" to the store and extract the members needed for reading. FS_OUT_OF_MEMORY. */
fs_status fs_kineto_read_head(const char *head, size_t size, fs_store *store, fs_kineto_head_facts *facts,
                              fs_error *err);

#endif
