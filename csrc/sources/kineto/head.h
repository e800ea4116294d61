/* The members beside the events of a trace. Private to the trace source. */
#ifndef FS_SOURCES_KINETO_HEAD_H
#define FS_SOURCES_KINETO_HEAD_H

#include "store/store.h"

typedef struct {
    int64_t base; /* "baseTimeNanoseconds", 0 where there is none */
    bool own;     /* flopscope wrote the trace */
} fs_kineto_head_facts;

/* Tell the store what the head's "deviceProperties" say, and what the reading needs of it. */
fs_status fs_kineto_read_head(const char *head, size_t size, fs_store *store, fs_kineto_head_facts *facts,
                              fs_error *err);

#endif
