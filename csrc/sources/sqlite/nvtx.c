/* torch.autograd.profiler.emit_nvtx appends what it knows to the name of a range: ", seq = 5, op_id = 7, sizes = [[2,
 * 3]]". The text is parsed from each comma on, and is accepted only if it consists of such parts up to its end; a
 * program's own range that merely looks similar stays as it is. The name ends where the parts begin. */
#include "sources/sqlite/nvtx.h"

#include <ctype.h>
#include <string.h>

typedef struct {
    const char *at, *end;
} cursor;

static bool take(cursor *text, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(text->end - text->at) < size || memcmp(text->at, word, size) != 0) return false;
    text->at += size;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Take an integer of at most 18 digits. */
static bool take_number(cursor *text, int64_t *number)
{
    const char *first = text->at;
    bool negative = take(text, "-");
    int64_t value = 0;
    const char *digits = text->at;
    for (; text->at < text->end && is_digit(*text->at) && text->at - digits < 18; text->at++)
        value = value * 10 + (*text->at - '0');
    if (text->at == digits) {
        text->at = first;
        return false;
    }
    *number = negative ? -value : value;
    return true;
}

/* Take a list up to its matching bracket. A list that is cut off, as NVTX cuts long texts, takes the rest of the text
 * and is NULL. */
static bool take_list(cursor *text, const char **list, size_t *size)
{
    const char *at = text->at;
    int depth = 0;
    if (at == text->end || *at != '[') return false;
    for (; at < text->end; at++) {
        depth += (*at == '[') - (*at == ']');
        if (depth == 0) break;
    }
    *list = at < text->end ? text->at : NULL;
    *size = at < text->end ? (size_t)(at + 1 - text->at) : 0;
    text->at = at < text->end ? at + 1 : at;
    return true;
}

/* Take all parts after the name. False if the text does not consist of such parts. */
static bool take_parts(cursor text, fs_nvtx_text *parsed, bool *numbered)
{
    const char *list;
    size_t size;
    int64_t op_id;
    if (take(&text, ", seq = ")) {
        if (!take_number(&text, &parsed->sequence)) return false;
    }
    if (take(&text, ", op_id = ")) {
        if (!take_number(&text, &op_id)) return false;
        *numbered = true;
    }
    if (take(&text, ", sizes = ") && !take_list(&text, &parsed->sizes, &parsed->sizes_size)) return false;
    if (take(&text, ", input_op_ids = ") && !take_list(&text, &list, &size)) return false;
    return text.at == text.end;
}

static bool begins(const char *text, size_t size, const char *word)
{
    return size >= strlen(word) && memcmp(text, word, strlen(word)) == 0;
}

static bool contains(const char *text, size_t size, const char *word)
{
    size_t length = strlen(word);
    for (size_t i = 0; i + length <= size; i++)
        if (memcmp(text + i, word, length) == 0) return true;
    return false;
}

static const char evaluate[] = "autograd::engine::evaluate_function: ";

/* namespace::name, as ops are called. Names of Python's classes, such as FSDP::pre_forward, begin with a capital. */
static bool is_qualified(const char *text, size_t size)
{
    size_t colons = 0;
    if (size == 0 || !(islower((unsigned char)*text) || *text == '_')) return false;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == ':') colons++;
        else if (!isalnum(c) && c != '_' && c != '.') return false;
    }
    return colons >= 2 && contains(text, size, "::") && text[size - 1] != ':';
}

/* Ops whose names have no namespace: torch's own (C++ functions that record themselves), and inductor's kernels. */
static const char *const plain_ops[] = {"detach", "detach_", "record_param_comms", "to"};

static bool is_plain_op(const char *text, size_t size)
{
    if (begins(text, size, "triton_")) return true;
    for (size_t i = 0; i < sizeof plain_ops / sizeof *plain_ops; i++)
        if (size == strlen(plain_ops[i]) && memcmp(text, plain_ops[i], size) == 0) return true;
    return false;
}

/* "MmBackward0", or the name of a Python autograd function followed by "Backward". */
static bool is_node(const char *text, size_t size)
{
    while (size > 0 && is_digit(text[size - 1])) size--;
    return size >= 8 && memcmp(text + size - 8, "Backward", 8) == 0;
}

fs_nvtx_text fs_nvtx_parse(const char *text, size_t size)
{
    fs_nvtx_text parsed = {size, -1, NULL, 0, false, false};
    bool numbered = false;
    for (const char *at = text; (at = memchr(at, ',', size - (size_t)(at - text))) != NULL; at++) {
        fs_nvtx_text found = {(size_t)(at - text), -1, NULL, 0, false, false};
        numbered = false;
        if (!take_parts((cursor){at, text + size}, &found, &numbered)) continue;
        parsed = found;
        break;
    }
    size_t name = parsed.name_size;
    bool marked = name < size, evaluates = begins(text, name, evaluate);
    bool qualified = is_qualified(text, name);
    parsed.op = evaluates || (qualified && (marked || begins(text, name, "aten::"))) || parsed.sequence >= 0 ||
                parsed.sizes != NULL || (numbered && is_plain_op(text, name));
    parsed.backward = parsed.sequence >= 0 && (evaluates || is_node(text, name));
    return parsed;
}
