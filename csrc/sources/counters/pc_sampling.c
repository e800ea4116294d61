/* CUPTI samples nothing while it records kernels, and where the range profiler brought it back after it was detached,
 * it does not know the code of kernels: so it is attached anew. Then it tells of the code of a kernel (its module's
 * cubin) at each launch, also of modules that were loaded before; a copy of each is kept, and gives the lines at the
 * end. Samples come by instruction and reason: those of a line are added up. Of the two counts of each reason, the
 * second ("_not_issued") is a part of the first. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* asprintf */
#endif
#include "sources/counters/pc_sampling.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fork.h"
#include "base/memory.h"
#include "sources/counters/library.h"
#include "sources/counters/plan.h"
#include "sources/cupti/cupti.h"
#include "sources/cupti/library.h"

enum {
    ROOM = 16384,            /* instructions that CUPTI hands over at once */
    MOST_BYTES = 1 << 28,    /* of the copies of code; kernels of other modules have no lines */
    SCRATCH_BYTES = 1 << 26, /* of CUPTI, for 350,000 instructions */
    NAMES = 128              /* CUPTI's reasons */
};

typedef struct {
    fs_cupti_module told;
    uint64_t crc;
} module;

static struct {
    pthread_mutex_t lock; /* of the modules: any thread launches */
    module *modules;
    uint32_t module_count, module_capacity;
    size_t module_bytes;
    fs_context context;
    fs_pc_data data; /* CUPTI writes to it until sampling is disabled */
    fs_pc_record *records;
    fs_pc_count *counts;
    uint32_t indices[NAMES], generation;
    char names[NAMES][FS_PC_NAME]; /* of CUPTI's reasons, of which there are name_count */
    size_t name_count;
    const char *reasons[FS_PC_REASONS];
    uint8_t places[NAMES]; /* in by_reason, by CUPTI's index; FS_PC_REASONS: left out */
    bool on, enabled;      /* enabled: in CUPTI */
} sampling = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Modules ---------------------------------------------------------------------------------------------------------- */

static void add_module(const fs_cupti_module *told)
{
    for (uint32_t i = 0; i < sampling.module_count; i++)
        if (sampling.modules[i].told.id == told->id && sampling.modules[i].told.size == told->size) return;
    if (told->cubin == NULL || told->size > MOST_BYTES - sampling.module_bytes) return;
    void *copy = fs_malloc(told->size);
    module new = {{told->id, told->size, copy}, 0};
    if (copy == NULL) return;
    memcpy(copy, told->cubin, told->size);
    fs_status status = FS_LIST_ADD(&sampling.modules, &sampling.module_count, &sampling.module_capacity, 64, NULL, new);
    if (status == FS_OK) sampling.module_bytes += told->size;
    else fs_free(copy);
}

static void module_told(const void *data)
{
    const fs_cupti_resource *resource = data;
    if (resource == NULL || resource->descriptor == NULL) return;
    pthread_mutex_lock(&sampling.lock);
    add_module(resource->descriptor);
    pthread_mutex_unlock(&sampling.lock);
}

static const module *module_of(uint64_t crc)
{
    for (uint32_t i = 0; i < sampling.module_count; i++)
        if (crc != 0 && sampling.modules[i].crc == crc) return &sampling.modules[i];
    return NULL;
}

static void number_modules(void)
{
    for (uint32_t i = 0; i < sampling.module_count; i++) {
        const fs_cupti_module *told = &sampling.modules[i].told;
        fs_pc_crc crc = {sizeof crc, told->size, told->cubin, 0};
        sampling.modules[i].crc = fs_counters->pc_crc(&crc) == FS_COUNTERS_SUCCESS ? crc.crc : 0;
    }
}

/* Start ------------------------------------------------------------------------------------------------------------ */

static void name_reasons(void)
{
    static const char prefix[] = "smsp__pcsamp_warps_issue_stalled_", part[] = "_not_issued";
    size_t count = 0;
    memset(sampling.places, FS_PC_REASONS, sizeof sampling.places);
    for (size_t i = 0; i < sampling.name_count && count < FS_PC_REASONS; i++) {
        const char *name = sampling.names[i];
        if (strncmp(name, prefix, sizeof prefix - 1) == 0) name += sizeof prefix - 1;
        size_t length = strlen(name);
        if (length >= sizeof part && strcmp(name + length - sizeof part + 1, part) == 0) continue;
        if (sampling.indices[i] >= NAMES) continue;
        const char *counter = fs_counter_of_stall(name);
        sampling.reasons[count] = counter != NULL ? counter : name;
        sampling.places[sampling.indices[i]] = (uint8_t)count++;
    }
}

static int ask_reasons(void)
{
    char *names[NAMES];
    FS_COUNTERS_ARGUMENTS(pc_reason_count, many, .context = sampling.context.context, .count = &sampling.name_count);
    int code = fs_counters->pc_reason_count(&many);
    if (code != FS_COUNTERS_SUCCESS) return code;
    if (sampling.name_count > NAMES) return FS_COUNTERS_UNSUPPORTED;
    for (size_t i = 0; i < sampling.name_count; i++) names[i] = sampling.names[i];
    FS_COUNTERS_ARGUMENTS(pc_reasons, all, .context = sampling.context.context, .count = sampling.name_count,
                          .indices = sampling.indices, .names = names);
    return fs_counters->pc_reasons(&all);
}

static int configure(uint32_t period)
{
    fs_pc_setting settings[] = {
        {.type = FS_PC_REASONS_WANTED, .value.reasons = {sampling.name_count, sampling.indices}},
        {.type = FS_PC_PERIOD, .value.number = period},
        {.type = FS_PC_MODE, .value.number = FS_PC_CONTINUOUS},
        {.type = FS_PC_SCRATCH, .value.size = SCRATCH_BYTES},
        {.type = FS_PC_START_STOP, .value.number = 1},
        {.type = FS_PC_BUFFER, .value.buffer = &sampling.data},
    };
    FS_COUNTERS_ARGUMENTS(pc_configure, all, .context = sampling.context.context,
                          .count = sizeof settings / sizeof *settings, .settings = settings);
    return fs_counters->pc_configure(&all);
}

static fs_status make_buffer(fs_error *err)
{
    FS_TRY(FS_NEW_ZEROED(&sampling.records, ROOM, err));
    FS_TRY(FS_NEW_ZEROED(&sampling.counts, ROOM * sampling.name_count, err));
    for (size_t i = 0; i < ROOM; i++) {
        sampling.records[i].size = sizeof *sampling.records;
        sampling.records[i].counts = sampling.counts + i * sampling.name_count;
        sampling.records[i].count = sampling.name_count;
    }
    sampling.data = (fs_pc_data){.size = sizeof sampling.data, .room = ROOM, .records = sampling.records};
    return FS_OK;
}

static fs_status begin(uint32_t period, fs_error *err)
{
    static const char doing[] = "the GPU's instructions cannot be sampled";
    FS_COUNTERS_ARGUMENTS(pc_enable, enable, .context = sampling.context.context);
    FS_TRY(fs_counters_check(fs_counters->pc_enable(&enable), doing, err));
    sampling.enabled = true;
    FS_TRY(fs_counters_check(ask_reasons(), doing, err));
    name_reasons();
    FS_TRY(make_buffer(err));
    FS_TRY(fs_counters_check(configure(period), doing, err));
    FS_COUNTERS_ARGUMENTS(pc_start, start, .context = sampling.context.context);
    return fs_counters_check(fs_counters->pc_start(&start), doing, err);
}

/* Give everything back; in a forked child, memory alone. */
static void end(void)
{
    if (sampling.generation == fs_fork_generation()) {
        FS_COUNTERS_ARGUMENTS(pc_disable, disable, .context = sampling.context.context);
        if (sampling.enabled) fs_counters->pc_disable(&disable);
        fs_cupti_detach();
        fs_context_release(&sampling.context);
    } else {
        sampling.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* another thread may have held it */
    }
    pthread_mutex_lock(&sampling.lock);
    for (uint32_t i = 0; i < sampling.module_count; i++) fs_free((void *)(uintptr_t)sampling.modules[i].told.cubin);
    fs_free(sampling.modules);
    sampling.modules = NULL;
    sampling.module_count = sampling.module_capacity = 0;
    sampling.module_bytes = 0;
    pthread_mutex_unlock(&sampling.lock);
    fs_free(sampling.records);
    fs_free(sampling.counts);
    sampling.records = NULL;
    sampling.counts = NULL;
    sampling.on = sampling.enabled = false;
}

fs_status fs_pc_sampling_start(int device, uint32_t period, bool evict, fs_error *err)
{
    if (fs_counters == NULL) return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is not loaded");
    if (sampling.on) return fs_fail(err, FS_RUNTIME_ERROR, "instructions are sampled already");
    FS_TRY(fs_context_retain(&sampling.context, device, err));
    fs_status attached = fs_cupti_attach_anew(evict, module_told, err);
    if (attached != FS_OK) fs_context_release(&sampling.context);
    FS_TRY(attached);
    sampling.generation = fs_fork_generation();
    sampling.on = true;
    bool entered = fs_context_enter(&sampling.context);
    fs_status status = begin(period, err);
    fs_context_leave(entered);
    if (status != FS_OK) end();
    return status;
}

/* Stop ------------------------------------------------------------------------------------------------------------- */

/* The line of an instruction; CUPTI's strings are the caller's. */
static void find_line(const fs_pc_record *record, fs_pc_row *row)
{
    const module *of = module_of(record->crc);
    if (of == NULL || record->function == NULL) return;
    fs_pc_source source = {.size = sizeof source,
                           .cubin = of->told.cubin,
                           .cubin_size = of->told.size,
                           .function = record->function,
                           .offset = record->offset};
    if (fs_counters->pc_source(&source) != FS_COUNTERS_SUCCESS) return;
    if (source.line != 0 && source.file != NULL && source.file[0] != '\0') {
        bool whole = source.file[0] == '/' || source.directory == NULL || source.directory[0] == '\0';
        if (asprintf(&row->file, "%s%s%s", whole ? "" : source.directory, whole ? "" : "/", source.file) < 0)
            row->file = NULL;
        if (row->file != NULL) row->line = source.line;
    }
    free(source.file);
    free(source.directory);
}

static fs_status add_records(fs_pc_samples *samples, fs_error *err)
{
    for (size_t i = 0; i < sampling.data.count && i < ROOM; i++) {
        const fs_pc_record *record = &sampling.records[i];
        fs_pc_row row = {.kernel = record->function, .offset = record->offset, .module = record->crc};
        for (size_t k = 0; k < record->count && k < sampling.name_count; k++) {
            uint32_t reason = record->counts[k].reason;
            uint8_t place = reason < NAMES ? sampling.places[reason] : FS_PC_REASONS;
            if (place == FS_PC_REASONS) continue;
            row.by_reason[place] += record->counts[k].samples;
            row.samples += record->counts[k].samples;
        }
        if (row.samples == 0 || row.kernel == NULL) continue;
        find_line(record, &row);
        fs_status status = FS_LIST_ADD(&samples->rows, &samples->count, &samples->capacity, 1024, err, row);
        if (status != FS_OK) free(row.file);
        FS_TRY(status);
    }
    return FS_OK;
}

static int compare_places(const void *left, const void *right)
{
    const fs_pc_row *a = left, *b = right;
    int order = strcmp(a->kernel, b->kernel);
    if (order == 0) order = strcmp(a->file != NULL ? a->file : "", b->file != NULL ? b->file : "");
    if (order == 0) order = (a->line > b->line) - (a->line < b->line);
    if (order == 0 && a->line == 0) order = (a->offset > b->offset) - (a->offset < b->offset);
    return order;
}

static int compare_samples(const void *left, const void *right)
{
    const fs_pc_row *a = left, *b = right;
    int order = (a->samples < b->samples) - (a->samples > b->samples);
    return order != 0 ? order : compare_places(left, right);
}

static char *readable(const char *kernel)
{
    char *name = fs_cupti_demangle(kernel);
    return name != NULL ? name : strdup(kernel);
}

/* Count the instructions of a kernel's code; without memory they stay unknown. */
static fs_sass read_code(fs_pc_samples *samples, const fs_pc_row *row)
{
    const module *of = module_of(row->module);
    fs_sass code = {NULL, 0};
    if (of != NULL) code = fs_sass_find(of->told.cubin, of->told.size, row->kernel);
    if (code.bytes == NULL) return code;
    fs_pc_code new = {.kernel = readable(row->kernel)};
    fs_sass_count(&code, new.counts);
    fs_status status = FS_LIST_ADD(&samples->codes, &samples->code_count, &samples->code_capacity, 64, NULL, new);
    if (status != FS_OK) free(new.kernel);
    return code;
}

/* Read the code of the kernels, whose rows are together. Which one it is, is unknown of a kernel of several modules, as
 * Triton compiles one for each of its constants. */
static void name_instructions(fs_pc_samples *samples)
{
    for (uint32_t i = 0, end = 0; i < samples->count;) {
        const fs_pc_row *first = &samples->rows[i];
        fs_sass code = {NULL, 0};
        bool is_one = true;
        for (; end < samples->count && strcmp(samples->rows[end].kernel, first->kernel) == 0; end++)
            is_one &= samples->rows[end].module == first->module;
        if (is_one) code = read_code(samples, first);
        for (; i < end; i++)
            if (samples->rows[i].file == NULL)
                fs_sass_name(&code, samples->rows[i].offset, samples->rows[i].instruction);
    }
}

/* Add up the instructions of a line, and give the rows names of their own. */
static void join_rows(fs_pc_samples *samples)
{
    uint32_t kept = 0;
    if (samples->count > 0) qsort(samples->rows, samples->count, sizeof *samples->rows, compare_places);
    for (uint32_t i = 0; i < samples->count; i++) {
        fs_pc_row *row = &samples->rows[i], *last = kept > 0 ? &samples->rows[kept - 1] : NULL;
        if (last == NULL || compare_places(last, row) != 0) {
            samples->rows[kept++] = *row;
            continue;
        }
        free(row->file);
        last->samples += row->samples;
        if (last->module != row->module) last->module = 0;
        for (int k = 0; k < FS_PC_REASONS; k++) last->by_reason[k] += row->by_reason[k];
    }
    samples->count = kept;
    name_instructions(samples);
    if (kept > 0) qsort(samples->rows, kept, sizeof *samples->rows, compare_samples);
    for (uint32_t i = 0; i < kept; i++) samples->rows[i].kernel = readable(samples->rows[i].kernel);
}

static fs_status read_samples(fs_pc_samples *samples, fs_error *err)
{
    static const char doing[] = "the samples of the GPU's instructions cannot be read";
    fs_status status = FS_OK;
    number_modules();
    for (;;) {
        samples->lost += sampling.data.dropped;
        samples->unknown += sampling.data.unknown;
        status = add_records(samples, err);
        if (status != FS_OK || sampling.data.remaining == 0) break;
        FS_COUNTERS_ARGUMENTS(pc_take, take, .context = sampling.context.context, .data = &sampling.data);
        status = fs_counters_check(fs_counters->pc_take(&take), doing, err);
        if (status != FS_OK) break;
    }
    join_rows(samples);
    memcpy(samples->reasons, sampling.reasons, sizeof samples->reasons);
    return status;
}

fs_status fs_pc_sampling_stop(fs_pc_samples *samples, fs_error *err)
{
    *samples = (fs_pc_samples){0};
    if (!sampling.on) return fs_fail(err, FS_RUNTIME_ERROR, "no instructions are sampled");
    if (sampling.generation != fs_fork_generation()) {
        end();
        return fs_fail(err, FS_RUNTIME_ERROR, "CUPTI is unavailable in a process forked after CUPTI was used");
    }
    bool entered = fs_context_enter(&sampling.context);
    FS_COUNTERS_ARGUMENTS(pc_stop, stop, .context = sampling.context.context);
    fs_status status = fs_counters_check(fs_counters->pc_stop(&stop), "sampling the GPU's instructions failed", err);
    if (status == FS_OK) status = read_samples(samples, err);
    fs_context_leave(entered);
    end();
    if (status != FS_OK) fs_pc_samples_clear(samples);
    return status;
}

void fs_pc_samples_clear(fs_pc_samples *samples)
{
    for (uint32_t i = 0; i < samples->count; i++) {
        free(samples->rows[i].kernel);
        free(samples->rows[i].file);
    }
    for (uint32_t i = 0; i < samples->code_count; i++) free(samples->codes[i].kernel);
    fs_free(samples->rows);
    fs_free(samples->codes);
    *samples = (fs_pc_samples){0};
}
