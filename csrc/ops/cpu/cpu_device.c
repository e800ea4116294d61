/* What is read of /proc and /sys is read once, and each fact has a value where the file is missing: the name of the
 * architecture, and a cache of 0 bytes. The probe of multiply-adds runs one independent chain a thread, whose result is
 * stored, so that the compiler cannot drop the loop. */
#include "ops/cpu/cpu_device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/parallel.h"
#include "ops/cpu/cpu_rows.h"
#include "ops/cpu/rows_loops.h"

#if defined(__x86_64__)
#define ARCHITECTURE "x86-64"
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#else
#define ARCHITECTURE "CPU"
#endif

static pthread_once_t facts_once = PTHREAD_ONCE_INIT;
static char cpu_name[128];
static int64_t cache_bytes;

/* The text after "model name   : ", with runs of blanks replaced by one. */
static void read_name(void)
{
    snprintf(cpu_name, sizeof cpu_name, "%s", ARCHITECTURE);
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL) return;

    char line[512];
    while (fgets(line, sizeof line, file) != NULL) {
        const char *from = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || from == NULL) continue;
        size_t length = 0;
        for (from++; *from != '\0' && length + 1 < sizeof cpu_name; from++) {
            bool blank = *from == ' ' || *from == '\t' || *from == '\n';
            if (!blank) {
                cpu_name[length++] = *from;
            } else if (length > 0 && cpu_name[length - 1] != ' ') {
                cpu_name[length++] = ' ';
            }
        }
        if (length > 0 && cpu_name[length - 1] == ' ') length--;
        if (length > 0) cpu_name[length] = '\0';
        break;
    }
    fclose(file);
}

/* The size of the first processor's largest cache in sysfs ("32768K"), or the C library's value without sysfs, which
 * may count all caches of a package together. */
static void read_cache(void)
{
    for (int index = 0; index < 8; index++) {
        char path[96];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        FILE *file = fopen(path, "r");
        if (file == NULL) break;
        char text[32], *unit = text;
        if (fgets(text, sizeof text, file) != NULL) {
            int64_t bytes = strtoll(text, &unit, 10) * (*unit == 'K' ? 1 << 10 : *unit == 'M' ? 1 << 20 : 1);
            if (bytes > cache_bytes) cache_bytes = bytes;
        }
        fclose(file);
    }
    const int levels[] = {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE};
    for (int i = 0; i < 3 && cache_bytes <= 0; i++) cache_bytes = sysconf(levels[i]);
    if (cache_bytes < 0) cache_bytes = 0;
}

static void read_facts(void)
{
    read_name();
    read_cache();
}

const char *fs_cpu_name(void)
{
    pthread_once(&facts_once, read_facts);
    return cpu_name;
}

int64_t fs_cpu_cache_bytes(void)
{
    pthread_once(&facts_once, read_facts);
    return cache_bytes;
}

const char *fs_cpu_isa(void)
{
    static const char *const names[] = {"baseline", "avx2", "avx512"}; /* in the order of fs_isa */
    return names[fs_cpu_isa_id()];
}

/* ---- probes ---- */

typedef struct {
    double flops, result;
} chain_result;

typedef struct {
    const fs_cpu_rows_of_dtype *loops;
    int64_t iterations;
    chain_result *of_thread;
} chain_work;

static void run_chains(void *context, int64_t begin, int64_t end)
{
    const chain_work *work = context;
    for (int64_t i = begin; i < end; i++) {
        work->of_thread[i].flops = work->loops->multiply_add(work->iterations, &work->of_thread[i].result);
    }
}

fs_status fs_cpu_probe_fma(fs_dtype dtype, int64_t iterations, double *flops, fs_error *err)
{
    if (dtype != FS_FLOAT64 && dtype != FS_FLOAT32) {
        return fs_fail(err, FS_TYPE_ERROR, "the CPU's multiply-add probe supports float64 and float32, not %s",
                       fs_dtypes[dtype].name);
    }
    const int threads = fs_parallel_threads();
    const fs_cpu_rows_loops *loops = FS_ISA_SELECT(fs_cpu_rows_loops);
    chain_work work = {.loops = &loops->of[dtype], .iterations = iterations};
    FS_TRY(FS_NEW_ZEROED(&work.of_thread, (size_t)threads, err));
    fs_parallel_for(threads, 1, run_chains, &work);

    *flops = 0;
    for (int i = 0; i < threads; i++) *flops += work.of_thread[i].flops;
    fs_free(work.of_thread);
    return FS_OK;
}

fs_status fs_cpu_probe_read(const void *data, size_t nbytes, fs_error *err)
{
    float sum;
    const fs_reduction reduction = {
        .in = data, .out = &sum, .rows = 1, .length = (int64_t)(nbytes / sizeof(float)), .dtype = FS_FLOAT32};
    if (reduction.length == 0) return FS_OK;
    return fs_cpu_reduce((fs_device){FS_CPU, 0}, FS_SUM, &reduction, err);
}
