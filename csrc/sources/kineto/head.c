/* Device properties and clock from the head of a trace. */
#include "sources/kineto/head.h"

#include <string.h>

#include "sources/kineto/records.h"
#include "store/accelerator.h"

static bool is(const fs_scan_span *span, const char *text)
{
    return span->size == strlen(text) && memcmp(span->text, text, span->size) == 0;
}

static bool begins(const fs_scan_span *span, const char *text)
{
    return span->size >= strlen(text) && memcmp(span->text, text, strlen(text)) == 0;
}

static int64_t *fact_named(fs_device_facts *facts, const fs_scan_span *key)
{
#define FACT_NAMED(field, trace_name, prose) \
    if (is(key, #trace_name)) return &facts->field;
    FS_DEVICE_FACT_LIST(FACT_NAMED)
#undef FACT_NAMED
    return NULL;
}

/* Return whether a value is possible for a fact: counts fit 32 bits, memory is a number of bytes. Others are
 * unknown. */
static bool is_possible(const fs_device_facts *facts, const int64_t *fact, int64_t value)
{
    return value >= 0 && value <= (fact == &facts->total_memory ? FS_MOST_AMOUNT : INT32_MAX);
}

static void take_name(const fs_scan_span *text, fs_device_facts *facts)
{
    char plain[4 * sizeof facts->name];
    fs_scan_span part = *text;
    if (part.size >= sizeof plain) part.size = sizeof plain - 1;
    size_t size = fs_scan_unescape(&part, plain);
    if (size >= sizeof facts->name) size = sizeof facts->name - 1;
    memcpy(facts->name, plain, size);
    facts->name[size] = 0;
}

static uint32_t accelerator_named(const fs_scan_span *text)
{
    char name[16];
    if (text->size >= sizeof name) return 0;
    memcpy(name, text->text, text->size);
    name[text->size] = 0;
    return fs_accelerators_named(name);
}

/* Read one device's object, up to its end. */
static fs_status take_device(fs_scan_pull *pull, fs_store *store, uint32_t *accelerators, fs_error *err)
{
    fs_device_facts facts = fs_device_facts_missing;
    fs_scan_token token;
    fs_scan_span key = {"", 0, false}, span;
    uint32_t depth = pull->depth;
    int64_t id = -1;
    while (fs_scan_next(pull, &token, &span) == FS_SCAN_GOOD) {
        if (token == FS_SCAN_OBJECT_END && pull->depth < depth) break;
        if (token == FS_SCAN_KEY) key = span;
        if (pull->depth != depth) continue;
        if (token == FS_SCAN_STRING && is(&key, "name")) take_name(&span, &facts);
        if (token != FS_SCAN_NUMBER) continue;
        int64_t value, *fact = fact_named(&facts, &key);
        if (!fs_scan_decimal(span.text, span.size, 0, false, &value)) continue;
        if (is(&key, "id")) id = value;
        else if (fact != NULL && is_possible(&facts, fact, value)) *fact = value;
    }
    *accelerators |= fs_accelerators_of_device(facts.name);
    if (id < 0 || id > INT8_MAX) return FS_OK;
    return fs_store_set_device(store, (int)id, &facts, err);
}

fs_status fs_kineto_read_head(const char *head, size_t size, fs_store *store, fs_kineto_head_facts *facts,
                              fs_error *err)
{
    fs_scan_pull pull;
    fs_scan_token token;
    fs_scan_span span;
    bool here = false, is_base = false, is_accelerator = false;
    fs_scan_pull_begin(&pull, head, size);
    while (fs_scan_next(&pull, &token, &span) == FS_SCAN_GOOD) {
        if (token == FS_SCAN_KEY && pull.depth == 1) {
            here = is(&span, "deviceProperties");
            facts->own = facts->own || is(&span, "flopscope");
            is_base = is(&span, "baseTimeNanoseconds");
            is_accelerator = is(&span, "accelerator");
            if (begins(&span, "hip_")) facts->accelerators |= 1U << FS_ACCELERATOR_HIP;
        }
        bool value = token == FS_SCAN_NUMBER || token == FS_SCAN_STRING;
        if (is_base && value && pull.depth == 1) fs_scan_decimal(span.text, span.size, 0, false, &facts->base);
        if (is_accelerator && token == FS_SCAN_STRING && pull.depth == 1)
            facts->accelerators |= accelerator_named(&span);
        if (here && token == FS_SCAN_OBJECT && pull.depth == 3)
            FS_TRY(take_device(&pull, store, &facts->accelerators, err));
        if (pull.depth == 0) break;
    }
    return FS_OK;
}
