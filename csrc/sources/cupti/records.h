/* Conversion of CUPTI's activity records to events of a store. Private to the CUPTI source. */
#ifndef FS_SOURCES_CUPTI_RECORDS_H
#define FS_SOURCES_CUPTI_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "sources/cupti/library.h"
#include "store/signature.h"
#include "store/store.h"

enum { FS_CUPTI_NAME_CACHE = 1024, FS_CUPTI_LAUNCH_CACHE = 1024, FS_CUPTI_LANE_CACHE = 64, FS_CUPTI_FUNCTIONS = 2048 };

/* State of the conversion. Repeated lookups in the store (kernels by name, launches, streams, API functions) are
 * cached; each cache is a hash table in which a new entry replaces the old one in its slot. Zeroed except for what
 * fs_cupti_parser_begin sets. Not thread-safe: the owner locks. */
typedef struct {
    fs_store *store;
    int64_t begin;  /* host calls and device work that began earlier are ignored */
    int64_t end;    /* host calls that began later are ignored; INT64_MAX while capturing */
    int64_t offset; /* added to CUPTI's times */
    int64_t dropped;
    bool keeps;        /* keep the events of the current buffer; otherwise count them as dropped */
    fs_intern symbols; /* kernel names as CUPTI gives them */
    struct {
        const char *symbol; /* CUPTI's pointer */
        const char *text;   /* copy of its text */
        uint32_t name;
    } names[FS_CUPTI_NAME_CACHE];
    struct {
        fs_launch launch;
        uint32_t signature; /* + 1, 0: free */
    } launches[FS_CUPTI_LAUNCH_CACHE];
    struct {
        uint64_t key; /* thread, or device and stream; + 1, 0: free */
        uint32_t lane;
    } threads[FS_CUPTI_LANE_CACHE], streams[FS_CUPTI_LANE_CACHE];
    uint32_t functions[2][FS_CUPTI_FUNCTIONS]; /* name id + 1 by domain and callback id; 0: not resolved yet */
} fs_cupti_parser;

/* Begin to fill `store` with activity that begins at `begin` or later. */
void fs_cupti_parser_begin(fs_cupti_parser *parser, fs_store *store, int64_t begin);
void fs_cupti_parser_clear(fs_cupti_parser *parser);

/* Convert all records of a buffer. If `keep` is false, records that would become events are only counted as dropped.
 * Records that cannot be stored are counted too. */
void fs_cupti_parse(fs_cupti_parser *parser, uint8_t *buffer, size_t valid, bool keep);

/* Callback ids of API functions, found once by name, because their numbers are internal to CUPTI. Private to the CUPTI
 * source. */

typedef struct {
    uint32_t ids[FS_CUPTI_FUNCTIONS];
    int count;
} fs_cupti_ids;

/* Lists with an index are by domain. */
typedef struct {
    fs_cupti_ids unwanted[FS_CUPTI_RUNTIME_DOMAIN + 1]; /* functions that make no event */
    fs_cupti_ids changing[FS_CUPTI_RUNTIME_DOMAIN + 1]; /* that change an executable graph, their first argument */
    fs_cupti_ids launching;                             /* of the driver; that launch one, likewise */
    uint32_t driver_version;                            /* cuDriverGetVersion */
} fs_cupti_function_ids;

/* All lists are empty before fs_cupti_find_functions, which needs CUPTI to be loaded. */
extern const fs_cupti_function_ids *const fs_cupti_functions_found;
void fs_cupti_find_functions(void);

bool fs_cupti_ids_have(const fs_cupti_ids *ids, uint32_t function);

/* The pool of buffers that CUPTI fills. Private to the CUPTI source.
 *
 *   free ─ request ─► CUPTI fills it ─ complete ─► parsed at once ─► free
 *
 * All buffers together hold at most `most_bytes`. Beyond that bound CUPTI receives small buffers whose records are
 * counted as dropped: refusing a buffer crashes CUPTI before CUDA 12.9, and this keeps the count exact. CUPTI may call
 * from any thread. */

enum { FS_CUPTI_BUFFER_BYTES = 4 << 20, FS_CUPTI_MOST_BYTES = 256 << 20, FS_CUPTI_FIRST_BUFFERS = 2 };

/* Set the bound and allocate the first buffers; the pool must be empty. FS_OUT_OF_MEMORY. */
fs_status fs_cupti_buffers_open(size_t buffer_bytes, size_t most_bytes, fs_error *err);

/* Return a zeroed buffer to fill; NULL if memory is exhausted. */
uint8_t *fs_cupti_buffer_take(size_t *size);

/* Use of the records of a returned buffer. If one client starts while another captures, CUPTI may return a buffer to
 * the wrong client; such a buffer is FOREIGN. */
typedef enum { FS_CUPTI_KEEP, FS_CUPTI_DROP, FS_CUPTI_FOREIGN } fs_cupti_buffer_use;
fs_cupti_buffer_use fs_cupti_buffer_use_of(const uint8_t *buffer);

/* Take back a buffer that CUPTI has finished with, `valid` bytes of it filled. A buffer of a closed pool is freed; a
 * foreign one is ignored. */
void fs_cupti_buffer_give(uint8_t *buffer, size_t valid);

/* Free the buffers that CUPTI does not hold; returns the number that it holds. */
int64_t fs_cupti_buffers_close(void);

#endif
