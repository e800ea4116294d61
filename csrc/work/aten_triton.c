#include "work/aten_triton.h"

#include <math.h>
#include <string.h>

#include "work/aten_sizes.h"

/* Parts of a name that pick elements of a tensor by an index: of no tensor more are touched than the kernel has points.
 */
static const char *const picks[] = {"embedding", "gather", "index", "scatter"};

/* Those that only move: where a name has no others, each point is one element read and one written. What a product is
 * made of is prepared for it under its name. */
static const char *const moves[] = {
    "_to_copy", "_unsafe_view", "addmm",   "as_strided", "bmm",    "cat",       "clone", "copy",
    "expand",   "mm",           "permute", "reshape",    "select", "slice",     "split", "split_with_sizes",
    "squeeze",  "stack",        "t",       "transpose",  "unbind", "unsqueeze", "view"};

bool fs_triton_is_kernel(const char *name)
{
    return strncmp(name, "triton_", strlen("triton_")) == 0;
}

static bool picks_elements(const char *name)
{
    for (size_t i = 0; i < sizeof picks / sizeof *picks; i++)
        if (strstr(name, picks[i]) != NULL) return true;
    return false;
}

/* The length of the longest word of `moves` that the text begins with, up to its end or a "_"; 0: none. */
static size_t word_length(const char *text)
{
    size_t longest = 0;
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        size_t size = strlen(moves[i]);
        if (strncmp(text, moves[i], size) == 0 && (text[size] == 0 || text[size] == '_') && size > longest)
            longest = size;
    }
    return longest;
}

/* The name is of pointwise work that computes nothing: "triton_poi_fused_cat_split_5". */
static bool only_moves(const char *name)
{
    static const char prefix[] = "triton_poi_fused_";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return false;
    name += sizeof prefix - 1;
    while (*name != 0 && strspn(name, "0123456789") != strlen(name)) {
        size_t size = word_length(name);
        if (size == 0) return false;
        name += size;
        name += *name == '_';
    }
    return true;
}

/* The points of the kernel's grid: the product of the sizes that follow the tensors; infinite where they are not told.
 */
static double points_of(const fs_torch_call *call)
{
    double points = 1;
    bool told = false;
    for (uint32_t i = 0; i < call->count; i++) {
        if (call->arguments[i].type != FS_TORCH_SCALAR) continue;
        double size = fs_sizes_number(call->arguments[i].text, NAN);
        if (!(size >= 1)) return INFINITY;
        points *= size;
        told = true;
    }
    return told ? points : (double)INFINITY;
}

fs_work fs_triton_count(const char *name, const fs_torch_call *call)
{
    fs_work work = fs_work_unknown;
    double most = picks_elements(name) || only_moves(name) ? points_of(call) : (double)INFINITY, bytes = 0;
    int tensors = 0;
    for (uint32_t i = 0; i < call->count; i++) {
        const fs_torch_tensor *tensor = fs_sizes_tensor(call, i);
        if (tensor == NULL) continue;
        bytes += fmin(fs_sizes_distinct(tensor), most) * fs_sizes_item(tensor->dtype);
        tensors++;
    }
    if (tensors > 0 && call->whole) work.bytes_moved = bytes;
    return work;
}
