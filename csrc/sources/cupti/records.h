/* CUPTI's activity records to events of a store. Private to the CUPTI source. */
#ifndef FS_SOURCES_CUPTI_RECORDS_H
#define FS_SOURCES_CUPTI_RECORDS_H

#include "sources/cupti/library.h"
#include "store/signature.h"
#include "store/store.h"

enum { FS_CUPTI_NAME_CACHE = 1024, FS_CUPTI_LAUNCH_CACHE = 1024, FS_CUPTI_LANE_CACHE = 64, FS_CUPTI_FUNCTIONS = 2048 };

/* Turns records into events. What a program does again and again (kernels by name, launches, streams, API functions) is
 * looked up in the store once; each cache is a table by hash, of which a newcomer takes the place. All zero but what
 * fs_cupti_parser_begin sets. Not thread-safe: its owner locks. */
typedef struct {
    fs_store *store;
    int64_t begin;  /* records of host calls and device work that began earlier are left out */
    int64_t end;    /* host calls that began later are left out; INT64_MAX while capturing */
    int64_t offset; /* to add to CUPTI's times */
    int64_t dropped;
    bool keeps;        /* the events of the buffer at hand; else they are counted as dropped */
    fs_intern symbols; /* names of kernels as CUPTI gives them */
    struct {
        const char *symbol; /* CUPTI's pointer */
        const char *text;   /* what it pointed to */
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
    uint32_t functions[2][FS_CUPTI_FUNCTIONS]; /* name + 1 by domain and callback id; 0: not asked yet */
} fs_cupti_parser;

/* Begin to fill `store` with what begins at `begin` or later. */
void fs_cupti_parser_begin(fs_cupti_parser *parser, fs_store *store, int64_t begin);
void fs_cupti_parser_clear(fs_cupti_parser *parser);

/* All records of a full buffer; `keep` false only counts as dropped what would be an event. Records that can't be kept
 * are counted. */
void fs_cupti_parse(fs_cupti_parser *parser, uint8_t *buffer, size_t valid, bool keep);

/* Of the functions of a domain: those of the runtime that would only be noise, and those of the driver that are worth
 * an event beside the runtime's. Both by the name without its version ("cudaGetDevice"). */
bool fs_cupti_is_noise(const char *runtime_function);
bool fs_cupti_is_wanted(const char *driver_function);

/* An API function's name without its version, at most `size` bytes; "" where CUPTI knows none. */
void fs_cupti_function_name(int domain, uint32_t function, char *name, size_t size);

#endif
