/* One byte for each name of a store, 0 until it was asked for: a name is searched once however many events have it, or
 * by several threads at once, which find the same. The first row of a table that occurs in the name decides, so special
 * names stand before general ones. */
#include "work/names.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/text.h"

/* A pattern can fit only if the name has the pattern's first two letters next to each other somewhere. The name's pairs
 * are collected once, as bits, and only patterns that begin with one of them are looked at; the first of the list that
 * fits decides, in whatever order they come up. */

/* Find the first occurrence of a piece of `size` bytes in the text, or NULL. */
static const char *find_piece(const char *text, const char *piece, size_t size)
{
    for (; (text = strchr(text, *piece)) != NULL; text++) {
        if (strncmp(text, piece, size) == 0) return text;
    }
    return NULL;
}

static bool fits(const char *name, const char *pattern)
{
    if (*pattern == '^') {
        size_t size = strcspn(++pattern, "*");
        if (strncmp(name, pattern, size) != 0) return false;
        name += size;
        pattern += size;
    }
    while (*pattern != '\0') {
        pattern += *pattern == '*';
        size_t size = strcspn(pattern, "*");
        const char *found = find_piece(name, pattern, size);
        if (found == NULL) return false;
        name = found + size;
        pattern += size;
    }
    return true;
}

/* The pairs of adjacent characters of a name, as bits of their hashes. A name lacks a pair of most patterns, which need
 * not be tried then. */
typedef struct {
    uint64_t bits[FS_PAIRS / 64];
} name_pairs;

static unsigned hash_of_pair(const char *text)
{
    return ((unsigned char)text[0] * 37u + (unsigned char)text[1]) & (FS_PAIRS - 1);
}

static name_pairs pairs_of(const char *name)
{
    name_pairs pairs = {{0}};
    for (; name[0] != '\0' && name[1] != '\0'; name++) {
        unsigned hash = hash_of_pair(name);
        pairs.bits[hash / 64] |= UINT64_C(1) << (hash % 64);
    }
    return pairs;
}

static bool may_fit(const name_pairs *pairs, const char *pattern)
{
    for (pattern += *pattern == '^'; pattern[0] != '\0' && pattern[1] != '\0'; pattern++) {
        unsigned hash = hash_of_pair(pattern);
        if (pattern[0] == '*' || pattern[1] == '*') continue;
        if ((pairs->bits[hash / 64] >> (hash % 64) & 1) == 0) return false;
    }
    return true;
}

void fs_pattern_index_make(fs_pattern_index *index)
{
    for (int i = index->count - 1; i >= 0; i--) {
        const char *pattern = index->patterns[i].pattern;
        uint8_t *first = &index->first[hash_of_pair(pattern + (*pattern == '^'))];
        index->next[i] = *first;
        *first = (uint8_t)(i + 1);
    }
}

int fs_pattern_value(const fs_pattern_index *index, const char *name, unsigned where, int otherwise)
{
    name_pairs pairs = pairs_of(name);
    int found = index->count;
    for (unsigned word = 0; word < FS_PAIRS / 64; word++) {
        for (uint64_t left = pairs.bits[word]; left != 0; left &= left - 1) {
            int i = index->first[64 * word + (unsigned)__builtin_ctzll(left)] - 1;
            for (; i >= 0 && i < found; i = index->next[i] - 1) {
                const fs_pattern *one = &index->patterns[i];
                if ((one->where & where) != 0 && may_fit(&pairs, one->pattern) && fits(name, one->pattern)) found = i;
            }
        }
    }
    return found < index->count ? index->patterns[found].value : otherwise;
}

/* A part of the name, and what the host does then; the first row that matches decides. */
static const struct {
    const char *part;
    fs_host_kind kind;
} host_kinds[] = {
    {"Synchronize", FS_HOST_WAITS},
    {"Memcpy", FS_HOST_WAITS},
    {"Launch", FS_HOST_LAUNCHES},
    {"Memset", FS_HOST_LAUNCHES},
    {"StreamWaitEvent", FS_HOST_ORDERS_STREAMS},
    {"ModuleLoad", FS_HOST_LOADS_CODE}, /* cuModuleLoadData, hipModuleLoadDataEx */
    {"LibraryLoad", FS_HOST_LOADS_CODE},
    {"Module Loading", FS_HOST_LOADS_CODE}, /* CUPTI: Runtime Triggered Module Loading */
    {"Lazy Function Loading", FS_HOST_LOADS_CODE},
    {"Driver Compiler", FS_HOST_LOADS_CODE},
    {"DataLoader", FS_HOST_LOADS_DATA}, /* torch: enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ */
    {"enumerate(DataPipe)", FS_HOST_LOADS_DATA},
    {"gloo:", FS_HOST_COMMUNICATES}, /* torch/csrc/distributed/c10d/ProcessGroupGloo.cpp, from the call to its end */
    {"mpi:", FS_HOST_COMMUNICATES},  /* ProcessGroupMPI.cpp, likewise */
    {"c10d", FS_HOST_COMMUNICATES},  /* c10d::allreduce_, _c10d_functional::wait_tensor */
    {"record_param_comms", FS_HOST_COMMUNICATES},
    {"(dynamo_timed)", FS_HOST_COMPILES},    /* torch/_dynamo/utils.py, dynamo_timed */
    {"(JAX tracing)", FS_HOST_COMPILES},     /* flopscope/record/jax_modules.py */
    {"(JAX lowering)", FS_HOST_COMPILES},    /* likewise */
    {"(XLA compilation)", FS_HOST_COMPILES}, /* likewise */
    {"XlaCompile:#", FS_HOST_COMPILES},      /* XLA's range of NVTX */
};

fs_status fs_names_create(fs_names *names, const fs_store *store, fs_error *err)
{
    size_t count = fs_store_name_count(store);
    *names = (fs_names){.store = store, .kernel_classes = fs_calloc(2 * count + 1, sizeof *names->kernel_classes)};
    if (names->kernel_classes == NULL) return fs_no_memory(err);
    names->host_kinds = names->kernel_classes + count;
    return FS_OK;
}

void fs_names_clear(fs_names *names)
{
    fs_free(names->kernel_classes);
}

/* What a function says of the text of `name`, kept by name, plus 1; 0: not asked yet. */
#define KEPT(kept, function)                                                          \
    __extension__({                                                                   \
        uint8_t known_ = __atomic_load_n(&(kept)[name], __ATOMIC_RELAXED);            \
        if (known_ == 0) {                                                            \
            known_ = (uint8_t)(1 + function(fs_store_name_text(names->store, name))); \
            __atomic_store_n(&(kept)[name], known_, __ATOMIC_RELAXED);                \
        }                                                                             \
        (__typeof__(function("")))(known_ - 1);                                       \
    })

fs_kernel_class fs_names_kernel_class(fs_names *names, uint32_t name)
{
    return name == FS_NONE ? FS_KERNEL_OTHER : KEPT(names->kernel_classes, fs_kernel_class_of);
}

bool fs_names_communicate(fs_names *names, uint32_t name)
{
    return fs_names_kernel_class(names, name) == FS_KERNEL_COMMUNICATION;
}

fs_host_kind fs_name_host_kind(const char *text)
{
    for (size_t i = 0; i < sizeof host_kinds / sizeof *host_kinds; i++)
        if (strstr(text, host_kinds[i].part) != NULL) return host_kinds[i].kind;
    return FS_HOST_OTHER;
}

fs_host_kind fs_names_host_kind(fs_names *names, uint32_t name)
{
    return name == FS_NONE ? FS_HOST_OTHER : KEPT(names->host_kinds, fs_name_host_kind);
}

bool fs_name_wraps_autograd(const char *text)
{
    static const char backward[] = "Backward";
    fs_text whole = fs_text_of(text);
    if (fs_begins(text, "autograd::engine::") || fs_text_ends(whole, "AccumulateGrad") ||
        fs_text_ends(whole, "CopyBackwards") || fs_text_ends(whole, "CopySlices"))
        return true;
    /* "AddmmBackward0"; torch 1.8 and before: "AddmmBackward" */
    const char *last = strstr(text, backward);
    if (last == NULL || last == text) return false;
    last += sizeof backward - 1;
    return last[strspn(last, "0123456789")] == 0;
}

/* cudaLaunchKernel, cuLaunchKernelEx, hipExtModuleLaunchKernel, cudaGraphLaunch, cudaMemcpyAsync, hipMemset, … */
static const char *const launching[] = {"Launch", "Memcpy", "Memset"};

bool fs_name_launches(const char *text)
{
    return FS_ANY(i, sizeof launching / sizeof *launching, strstr(text, launching[i]) != NULL);
}

/* The GPU vendors' libraries; torch's attention kernels for CUDA and ROCm only. */
static const char *const of_gpus[] = {"cudnn",
                                      "miopen",
                                      "nccl",
                                      "_flash_attention_forward",
                                      "_flash_attention_backward",
                                      "_efficient_attention_forward",
                                      "_efficient_attention_backward"};

bool fs_name_needs_gpu(const char *text)
{
    return FS_ANY(i, sizeof of_gpus / sizeof *of_gpus, strstr(text, of_gpus[i]) != NULL);
}
