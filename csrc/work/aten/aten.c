/* Lookup of the rule for a torch op. */
#include "work/aten/aten.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "ops/op.h"
#include "work/aten/elements.h"
#include "work/aten/generated.h"
#include "work/aten/products.h"
#include "work/aten/triton.h"
#include "work/category.h"
#include "work/libraries/libraries.h"
#include "work/libraries/traffic.h"
#include "work/registered.h"

/* Namespaces whose ops match aten's ops of the same name; an op of another namespace needs a row with its full name. */
static const char *const namespaces[] = {"aten::", "prims::", "quantized::", "mkldnn::", "onednn::"};

/* The rows by name: open addressing, at most half full. */
enum { SLOT_COUNT = 4096 };

static const fs_aten_rule *slots[SLOT_COUNT];
static pthread_once_t slots_once = PTHREAD_ONCE_INIT;

static unsigned slot_of(const char *name, size_t size)
{
    uint32_t hash = UINT32_C(2166136261); /* FNV-1a */
    for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)name[i]) * UINT32_C(16777619);
    return (hash ^ hash >> 16) % SLOT_COUNT;
}

static void place(const fs_aten_rule *rules)
{
    for (; rules->name != NULL; rules++) {
        unsigned slot = slot_of(rules->name, strlen(rules->name));
        while (slots[slot] != NULL) slot = (slot + 1) % SLOT_COUNT;
        slots[slot] = rules;
    }
}

static void place_all(void)
{
    place(fs_aten_product_rules);
    place(fs_aten_element_rules);
    place(fs_library_rules);
}

static const fs_aten_rule *find(const char *name, size_t size)
{
    for (unsigned slot = slot_of(name, size); slots[slot] != NULL; slot = (slot + 1) % SLOT_COUNT)
        if (strncmp(slots[slot]->name, name, size) == 0 && slots[slot]->name[size] == 0) return slots[slot];
    return NULL;
}

const fs_aten_rule *fs_aten_find(const char *name, size_t size)
{
    pthread_once(&slots_once, place_all);
    return find(name, size);
}

static bool ends(const char *name, size_t size, const char *end)
{
    size_t length = strlen(end);
    return size > length && memcmp(name + size - length, end, length) == 0;
}

/* Find a name verbatim, or without "_out" or "_": the out-of-place and in-place forms of an op. */
static const fs_aten_rule *find_form(const char *name, size_t size)
{
    const fs_aten_rule *rule = find(name, size);
    if (rule == NULL && ends(name, size, "_out")) rule = find(name, size - strlen("_out"));
    if (rule == NULL && ends(name, size, "_")) rule = find(name, size - 1);
    return rule;
}

static const char *without(const char *name, const char *prefix)
{
    size_t size = strlen(prefix);
    return strncmp(name, prefix, size) == 0 ? name + size : NULL;
}

/* Find the row of an op without its namespace, or derive one from the row of a related op. */
static fs_aten_rule find_like(const char *name)
{
    static const char foreach[] = "_foreach_", special[] = "special_", backward[] = "_backward";
    const fs_aten_rule nothing = {.name = NULL};
    size_t size = strcspn(name, "."); /* the rest is the overload */
    const fs_aten_rule *rule = find_form(name, size);
    if (rule != NULL) return *rule;
    const char *rest = without(name, foreach);
    if (rest != NULL) {
        rule = find_form(rest, size - strlen(foreach));
        return rule != NULL ? fs_aten_foreach(rule) : nothing;
    }
    if ((rest = without(name, special)) != NULL && (rule = find_form(rest, size - strlen(special))) != NULL)
        return *rule;
    if (ends(name, size, backward) && (rule = find(name, size - strlen(backward))) != NULL)
        return fs_aten_backward(rule);
    return nothing;
}

/* SGLang's profiler appends a line number to the names of its wrappers: "sglang_profiler::…_109". */
static const fs_aten_rule *find_wrapper(const char *name)
{
    static const char prefix[] = "sglang_profiler::";
    size_t size = strlen(name), digits = 0;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return NULL;
    while (digits < size && name[size - 1 - digits] >= '0' && name[size - 1 - digits] <= '9') digits++;
    return digits > 0 && name[size - 1 - digits] == '_' ? find(name, size - 1 - digits) : NULL;
}

static fs_aten_rule find_rule(const char *name)
{
    pthread_once(&slots_once, place_all);
    const fs_aten_rule *rule = find(name, strlen(name));
    /* torch itself uses these names without a namespace. */
    bool bare = strcmp(name, "detach") == 0 || strcmp(name, "detach_") == 0;
    if (rule != NULL && (strchr(name, ':') != NULL || bare || rule->arguments != NULL)) return *rule;
    if ((rule = find_wrapper(name)) != NULL) return *rule;
    for (size_t i = 0; i < sizeof namespaces / sizeof *namespaces; i++) {
        const char *rest = without(name, namespaces[i]);
        if (rest != NULL) return find_like(rest);
    }
    return (fs_aten_rule){.name = NULL};
}

fs_aten_rule fs_aten_rule_of(const char *name)
{
    fs_aten_rule rule = find_rule(name);
    const char *native = without(name, FS_OP_NAMESPACE);
    if (rule.count != NULL || (native == NULL && strchr(name, ':') != NULL)) return rule;
    return find_like(native != NULL ? native : name);
}

bool fs_work_has_one_dtype(const char *name)
{
    static const fs_aten_count families[] = {fs_count_product,
                                             fs_count_summed_product,
                                             fs_count_linear,
                                             fs_count_convolution,
                                             fs_count_convolution_part,
                                             fs_count_convolution_backward,
                                             fs_count_norm,
                                             fs_count_norm_backward,
                                             fs_count_pointwise,
                                             fs_count_reduce,
                                             fs_count_pool,
                                             fs_count_pool_to};
    fs_aten_rule rule = find_rule(name);
    bool masks = strstr(name, "mask") != NULL || strstr(name, "dropout") != NULL;
    bool moves = rule.count == fs_count_pointwise && rule.flops == 0;
    if (masks || moves) return false; /* boolean selections, copies and casts */
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (rule.count == families[i]) return true;
    return false;
}

/* Return NaN for a result that no valid arguments give. */
static double sound(double number)
{
    return number >= 0 && number <= FS_MOST_WORK ? number : (double)NAN;
}

static _Atomic(fs_work_rule) registered;

void fs_work_set_rule(fs_work_rule rule)
{
    atomic_store(&registered, rule);
}

static _Atomic(void (*)(void)) rule_loader;

void fs_work_set_loader(void (*loader)(void))
{
    atomic_store(&rule_loader, loader);
}

/* Return whether the op is of another library: "mylib::scale". */
static bool is_foreign(const char *name)
{
    static const char *const own[] = {"c10d::", "autograd::", "torch::", "profiler::", "nccl:", "std::"};
    if (strstr(name, "::") == NULL) return false;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (without(name, own[i]) != NULL) return false;
    for (size_t i = 0; i < sizeof namespaces / sizeof *namespaces; i++)
        if (without(name, namespaces[i]) != NULL) return false;
    return true;
}

static void load_rules(const char *name)
{
    if (atomic_load(&rule_loader) == NULL || !is_foreign(name)) return;
    void (*loader)(void) = atomic_exchange(&rule_loader, NULL);
    if (loader != NULL) loader();
}

bool fs_work_of_registered(const char *name, const fs_torch_call *call, fs_work *work)
{
    fs_work_rule rule = atomic_load(&registered);
    *work = fs_work_unknown;
    return rule != NULL && rule(name, call, work);
}

/* Return whether a library's op was called with the arguments of its rule. */
static bool fits(const fs_aten_rule *rule, const fs_torch_call *call)
{
    fs_schema schema;
    return rule->arguments == NULL || (fs_schema_parse(rule->arguments, &schema) && fs_schema_fits(&schema, call));
}

/* Return whether the rule is for a gradient, by the arguments of the op of the forward pass. */
static bool is_of_forward(const fs_aten_rule *rule)
{
    return rule->arguments != NULL && *rule->arguments == '^';
}

/* Return whether an op is the gradient of another one: "LigerRMSNormFunctionBackward". */
static bool is_gradient_of(const char *name, const char *forward)
{
    static const char backward[] = "Backward";
    if (fs_bags_is_gradient_of(name, forward)) return true;
    size_t size = strlen(forward);
    return strncmp(name, forward, size) == 0 && strcmp(name + size, backward) == 0;
}

/* Return the rule, or the one of the same name that fits the call. The rows of an op whose versions differ follow one
 * another. */
static fs_aten_rule find_fitting(fs_aten_rule rule, const fs_torch_call *call)
{
    if (rule.arguments == NULL || fits(&rule, call)) return rule;
    const fs_aten_rule *first = find(rule.name, strlen(rule.name));
    for (const fs_aten_rule *row = first + 1; row->name != NULL && strcmp(row->name, rule.name) == 0; row++)
        if (fits(row, call)) return *row;
    return rule;
}

bool fs_work_has_rule(const char *name)
{
    return fs_triton_is_kernel(name) || find_rule(name).count != NULL;
}

const char *fs_work_expected(const char *name, const fs_torch_call *call)
{
    if (fs_triton_is_kernel(name)) return NULL;
    fs_aten_rule rule = find_rule(name);
    if (is_of_forward(&rule)) {
        call = call->outer;
        if (call == NULL) return NULL;
    }
    rule = find_fitting(rule, call);
    return rule.count != NULL && rule.arguments != NULL && !fits(&rule, call) ? rule.arguments : NULL;
}

/* Return whether a tensor is sparse: of a call with strides, it alone has none. How many elements it holds is not
 * recorded. */
static bool has_sparse(const fs_torch_call *call)
{
    bool strided = false, sparse = false;
    for (uint32_t i = 0; i < call->count; i++) {
        const fs_torch_argument *argument = &call->arguments[i];
        if (argument->type != FS_TORCH_TENSOR || argument->tensor.ndim == 0) continue;
        strided = strided || argument->tensor.strides != NULL;
        sparse = sparse || argument->tensor.strides == NULL;
    }
    return strided && sparse;
}

static fs_work work_by_rule(const char *name, const fs_torch_call *call)
{
    fs_work work = fs_work_unknown;
    load_rules(name);
    fs_work_rule custom_rule = atomic_load(&registered);
    if (custom_rule != NULL && custom_rule(name, call, &work)) return work;
    if (fs_triton_is_kernel(name)) return fs_triton_count(name, call);
    fs_aten_rule rule = find_rule(name);
    fs_torch_call forward;
    if (is_of_forward(&rule)) {
        if (call->outer == NULL) work.needs = FS_NEEDS_FORWARD;
        if (call->outer == NULL || !is_gradient_of(name, call->outer_name)) return work;
        forward = *call->outer;
        forward.output = fs_sizes_tensor(call, 0); /* the gradient of its result */
        call = &forward;
    }
    rule = find_fitting(rule, call);
    if (rule.count == NULL || !call->whole || !fits(&rule, call)) return fs_work_unknown;
    if (rule.count != fs_count_view && has_sparse(call)) return fs_work_unknown;
    rule.name = name;
    work = rule.count(&rule, call);
    work.flops = sound(work.flops);
    work.bytes_read = sound(work.bytes_read);
    work.bytes_written = sound(work.bytes_written);
    work.bytes_moved = sound(work.bytes_moved);
    return work;
}

/* Numbers that no rule gives are taken from the trace. */
fs_work fs_work_of_torch(const char *name, const fs_torch_call *call)
{
    const fs_torch_recorded *recorded = &call->recorded;
    fs_work work = work_by_rule(name, call);
    if (work.needs == FS_NEEDS_ELEMENTS) return work;
    if (isnan(work.flops) && !isnan(recorded->flops)) {
        work.flops = recorded->flops;
        work.unit.preferred = work.unit.fallback = fs_unit_find(recorded->unit);
        work.stated = true;
    }
    if (strcmp(recorded->category, fs_categories[FS_CATEGORY_COMMUNICATION].name) == 0) work.between = true;
    if (isnan(work.bytes_read)) work.bytes_read = recorded->bytes_read;
    if (isnan(work.bytes_written)) work.bytes_written = recorded->bytes_written;
    if (isnan(work.bytes_moved))
        work.bytes_moved = isnan(recorded->bytes) ? recorded->bytes_read + recorded->bytes_written : recorded->bytes;
    return work;
}
