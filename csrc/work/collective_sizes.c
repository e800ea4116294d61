/* A missing size is FS_MISSING and stays so through sums and products that overflow. The first caller that knows a size
 * sets it, and later ones do not change it. The rest follows from the kind: sizings says how the two sizes of a rank
 * relate, and completing never contradicts what was recorded. */
#include "work/collective_sizes.h"

#include <math.h>
#include <string.h>

#include "store/event.h"

/* Names are compared in lower case without underscores, so that "all_reduce", "AllReduce" and "allreduce" are one; the
 * first pattern of collectives.def that occurs decides, which is why longer names stand before their parts. */

const char *const fs_collective_kind_names[FS_COLLECTIVE_KIND_COUNT] = {
#define FS_COLLECTIVE_KIND(NAME, name, ends, sizes, factor, prose) #name,
#define FS_COLLECTIVE_PATTERN(NAME, pattern)
#include "work/collectives.def"
#undef FS_COLLECTIVE_PATTERN
#undef FS_COLLECTIVE_KIND
};

#define TOGETHER "together"
#define ROOTED "rooted"
#define ONE_SIDED "one_sided"
const char *const fs_collective_kind_ends[FS_COLLECTIVE_KIND_COUNT] = {
#define FS_COLLECTIVE_KIND(NAME, name, ends, sizes, factor, prose) ends,
#define FS_COLLECTIVE_PATTERN(NAME, pattern)
#include "work/collectives.def"
#undef FS_COLLECTIVE_PATTERN
#undef FS_COLLECTIVE_KIND
};

static const struct {
    fs_collective_kind kind;
    const char *pattern;
} patterns[] = {
#define FS_COLLECTIVE_KIND(NAME, name, ends, sizes, factor, prose)
#define FS_COLLECTIVE_PATTERN(NAME, pattern) {FS_COLLECTIVE_##NAME, pattern},
#include "work/collectives.def"
#undef FS_COLLECTIVE_PATTERN
#undef FS_COLLECTIVE_KIND
};

fs_collective_kind fs_collective_kind_of(const char *name)
{
    char plain[256]; /* the kind is near the start of a name */
    size_t size = 0;
    for (; *name != '\0' && size + 1 < sizeof plain; name++) {
        if (*name != '_') plain[size++] = (char)(*name >= 'A' && *name <= 'Z' ? *name - 'A' + 'a' : *name);
    }
    plain[size] = '\0';
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (strstr(plain, patterns[i].pattern) != NULL) return patterns[i].kind;
    }
    return FS_COLLECTIVE_OTHER;
}

double fs_collective_bus_factor(fs_collective_kind kind, int ranks)
{
    double n = ranks > 0 ? (double)ranks : (double)NAN;
    const double factors[FS_COLLECTIVE_KIND_COUNT] = {
#define FS_COLLECTIVE_KIND(NAME, name, ends, sizes, factor, prose) factor,
#define FS_COLLECTIVE_PATTERN(NAME, pattern)
#include "work/collectives.def"
#undef FS_COLLECTIVE_PATTERN
#undef FS_COLLECTIVE_KIND
    };
    return factors[kind];
}

const fs_collective_sizes fs_collective_no_sizes = {FS_MISSING, FS_MISSING, NULL};

/* Callers ---------------------------------------------------------------------------------------------------------- */

/* Special values instead of an argument's place. */
enum { NONE = -1, ALL = -2 };

typedef struct {
    const char *begin;
    int sent, received; /* places of arguments */
} caller;

static const caller caller_rows[] = {
#define FS_COLLECTIVE_CALLER(begin, sent, received) {begin, sent, received},
#include "work/collective_callers.def"
#undef FS_COLLECTIVE_CALLER
};

static const caller *caller_named(const char *name)
{
    for (size_t i = 0; i < sizeof caller_rows / sizeof *caller_rows; i++) {
        if (strncmp(name, caller_rows[i].begin, strlen(caller_rows[i].begin)) == 0) return &caller_rows[i];
    }
    return NULL;
}

bool fs_collective_is_caller(const char *name)
{
    return caller_named(name) != NULL;
}

/* Add two numbers of elements, ignoring a missing one. */
static int64_t sum(int64_t a, int64_t b)
{
    int64_t both;
    if (a == FS_MISSING || b == FS_MISSING) return a == FS_MISSING ? b : a;
    return __builtin_add_overflow(a, b, &both) ? FS_MISSING : both;
}

static int64_t elements_of(const fs_torch_tensor *tensor)
{
    int64_t elements = 1;
    for (uint32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] < 0 || __builtin_mul_overflow(elements, tensor->shape[i], &elements)) return FS_MISSING;
    }
    return elements;
}

/* Return the elements of all tensors of an argument, FS_MISSING if there are none; a trace may omit lists. */
static int64_t argument_elements(const fs_torch_argument *argument, fs_collective_sizes *sizes)
{
    int64_t elements = FS_MISSING;
    const int64_t *at = argument->list;
    fs_torch_tensor tensor = argument->tensor;
    bool list = argument->type == FS_TORCH_TENSOR_LIST;
    uint32_t count = list ? argument->count : argument->type == FS_TORCH_TENSOR;
    for (uint32_t i = 0; i < count; i++) {
        if (list) fs_torch_next_tensor(&at, &tensor);
        elements = sum(elements, elements_of(&tensor));
        if (sizes->dtype == NULL && tensor.dtype != FS_TORCH_DTYPE_NONE)
            sizes->dtype = fs_torch_dtypes[tensor.dtype].name;
    }
    return elements;
}

static int64_t elements_at(const fs_torch_call *call, int which, fs_collective_sizes *sizes)
{
    int64_t elements = FS_MISSING;
    for (uint32_t i = 0; i < call->count; i++) {
        if (which == ALL || which == (int)i) elements = sum(elements, argument_elements(&call->arguments[i], sizes));
    }
    return elements;
}

void fs_collective_read_caller(const char *name, const fs_torch_call *call, fs_collective_sizes *sizes)
{
    const caller *row = caller_named(name);
    if (row == NULL) return;
    if (sizes->sent == FS_MISSING) sizes->sent = elements_at(call, row->sent, sizes);
    if (sizes->received == FS_MISSING) sizes->received = elements_at(call, row->received, sizes);
}

/* Conclusions ------------------------------------------------------------------------------------------------------ */

static const enum {
    UNSIZED,
    ALONE,
    ALIKE,
    GATHERS,
    SCATTERS
} sizings[FS_COLLECTIVE_KIND_COUNT] = {
#define FS_COLLECTIVE_KIND(NAME, name, ends, sizes, factor, prose) sizes,
#define FS_COLLECTIVE_PATTERN(NAME, pattern)
#include "work/collectives.def"
#undef FS_COLLECTIVE_PATTERN
#undef FS_COLLECTIVE_KIND
};

/* Derive the total size from the part and the number of ranks, or the number of ranks from both sizes. */
static void complete(int64_t part, int64_t *whole, int32_t *ranks)
{
    if (*whole == FS_MISSING && part != FS_MISSING && *ranks > 0 && __builtin_mul_overflow(part, *ranks, whole))
        *whole = FS_MISSING;
    if (*ranks == 0 && *whole != FS_MISSING && part > 0 && *whole % part == 0 && *whole / part <= INT32_MAX)
        *ranks = (int32_t)(*whole / part);
}

bool fs_collective_complete(fs_collective_kind kind, fs_collective_sizes *sizes, int32_t *ranks)
{
    int64_t *sent = &sizes->sent, *received = &sizes->received;
    switch (sizings[kind]) {
    case UNSIZED:
        return false;
    case ALONE:
        break;
    case ALIKE:
        if (*sent == FS_MISSING) *sent = *received;
        if (*received == FS_MISSING) *received = *sent;
        break;
    case GATHERS:
        complete(*sent, received, ranks);
        return *received != FS_MISSING;
    case SCATTERS:
        complete(*received, sent, ranks);
        return *sent != FS_MISSING;
    }
    return *sent != FS_MISSING || *received != FS_MISSING;
}
