/* Conversion of CUPTI's activity records to events of a store. Private to the CUPTI source. */
#ifndef FS_SOURCES_CUPTI_RECORDS_H
#define FS_SOURCES_CUPTI_RECORDS_H

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

/* Return whether a runtime function is too frequent to record, and whether a driver function is recorded besides those
 * of the runtime. Both take the name without its version ("cudaGetDevice"). */
bool fs_cupti_is_noise(const char *runtime_function);
bool fs_cupti_is_wanted(const char *driver_function);

/* Write an API function's name without its version, at most `size` bytes; "" if CUPTI does not know it. */
void fs_cupti_function_name(int domain, uint32_t function, char *name, size_t size);

#endif
