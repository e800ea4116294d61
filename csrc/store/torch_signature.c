/* A builder appends words; word 0 counts the arguments, and `list` is the place of the list that is being filled, whose
 * word counts its tensors. So an argument may be added without knowing how many follow. Texts are padded with zero
 * bytes, at least one, so a text is a C string in place. Calls with more arguments than a reader holds are marked as
 * not whole and have no work. */
#include "store/torch_signature.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "store/signature.h"

const fs_torch_dtype_row fs_torch_dtypes[FS_TORCH_DTYPE_COUNT + 1] = {
#define OWN(NAME, name, bytes, ctype, dlpack, format, kind, kineto, c10, number, ...) \
    {#name, kineto, c10, bytes, number, FS_TORCH_##kind},
#define TORCH(NAME, name, bytes, kind, kineto, c10, number, ...) {#name, kineto, c10, bytes, number, FS_TORCH_##kind},
    FS_DTYPES(OWN, TORCH)
#undef OWN
#undef TORCH
        {"", "", "", 0, 0, FS_TORCH_INTEGER},
};

static const struct {
    fs_torch_dtype dtype;
    const char *kineto;
} other_names[] = {
#define OTHER_NAME(NAME, kineto) {FS_TORCH_##NAME, kineto},
    FS_DTYPE_KINETO_NAMES(OTHER_NAME)
#undef OTHER_NAME
};

enum { OTHER_NAMES = sizeof other_names / sizeof *other_names };

fs_torch_dtype fs_torch_dtype_named(const char *name, size_t size)
{
    for (int dtype = 0; dtype < FS_TORCH_DTYPE_COUNT; dtype++)
        if (strlen(fs_torch_dtypes[dtype].name) == size && strncmp(fs_torch_dtypes[dtype].name, name, size) == 0)
            return (fs_torch_dtype)dtype;
    return FS_TORCH_DTYPE_NONE;
}

/* The dtype one of whose names has `size` bytes (SIZE_MAX: any) and is what the text begins with. */
static fs_torch_dtype find_kineto(const char *text, size_t size)
{
    for (int i = 0; i < FS_TORCH_DTYPE_COUNT + OTHER_NAMES; i++) {
        bool other = i >= FS_TORCH_DTYPE_COUNT;
        const char *name = other ? other_names[i - FS_TORCH_DTYPE_COUNT].kineto : fs_torch_dtypes[i].kineto;
        size_t length = strlen(name);
        if ((size == SIZE_MAX || length == size) && strncmp(name, text, length) == 0)
            return other ? other_names[i - FS_TORCH_DTYPE_COUNT].dtype : (fs_torch_dtype)i;
    }
    return FS_TORCH_DTYPE_NONE;
}

fs_torch_dtype fs_torch_dtype_find(const char *kineto, size_t size)
{
    return find_kineto(kineto, size);
}

fs_torch_dtype fs_torch_dtype_begins(const char *text)
{
    return find_kineto(text, SIZE_MAX);
}

fs_torch_dtype fs_torch_dtype_numbered(double number)
{
    for (int dtype = 0; dtype < FS_TORCH_DTYPE_COUNT; dtype++)
        if (fs_torch_dtypes[dtype].number == number) return (fs_torch_dtype)dtype;
    return FS_TORCH_DTYPE_NONE;
}

/* The fields of an argument's word. */
enum { DTYPE_SHIFT = 8, STRIDES_SHIFT = 16, COUNT_SHIFT = 32 };

static int64_t word_of(fs_torch_type type, unsigned dtype, bool strides, uint32_t count)
{
    return (int64_t)((uint64_t)type | (uint64_t)dtype << DTYPE_SHIFT | (uint64_t)strides << STRIDES_SHIFT |
                     (uint64_t)count << COUNT_SHIFT);
}

static uint32_t count_of(int64_t word)
{
    return (uint32_t)((uint64_t)word >> COUNT_SHIFT);
}

/* A bit of word 0: an fs_torch_recorded follows it. */
enum { RECORDED_SHIFT = 32, RECORDED_WORDS = sizeof(fs_torch_recorded) / sizeof(int64_t) };

/* 23 bits of word 0: how often the call's work was done, plus 1; 0: once. */

/* Reading ---------------------------------------------------------------------------------------------------------- */

void fs_torch_next_tensor(const int64_t **at, fs_torch_tensor *tensor)
{
    uint64_t word = (uint64_t)*(*at)++;
    tensor->dtype = (uint8_t)(word >> DTYPE_SHIFT);
    tensor->ndim = count_of((int64_t)word);
    tensor->shape = *at;
    *at += tensor->ndim;
    tensor->strides = NULL;
    if ((word >> STRIDES_SHIFT & 1) != 0) {
        tensor->strides = *at;
        *at += tensor->ndim;
    }
}

static void take_argument(const int64_t **at, fs_torch_argument *argument)
{
    fs_torch_tensor skipped;
    int64_t word = **at;
    *argument = (fs_torch_argument){.type = (uint8_t)word, .tensor = {.dtype = FS_TORCH_DTYPE_NONE}, .text = ""};
    switch ((fs_torch_type)argument->type) {
    case FS_TORCH_TENSOR:
        fs_torch_next_tensor(at, &argument->tensor);
        return;
    case FS_TORCH_TENSOR_LIST:
        argument->count = count_of(word);
        argument->list = ++*at;
        for (uint32_t i = 0; i < argument->count; i++) fs_torch_next_tensor(at, &skipped);
        return;
    case FS_TORCH_SCALAR:
    case FS_TORCH_SCALAR_LIST:
        argument->text = (const char *)(*at + 1);
        *at += 2 + count_of(word) / sizeof(int64_t);
        return;
    case FS_TORCH_NOTHING:
        ++*at;
        return;
    }
}

bool fs_torch_decode(const void *bytes, size_t size, fs_torch_call *call)
{
    const int64_t *at = bytes;
    call->count = 0;
    call->whole = true;
    call->end = bytes;
    call->rest = 0;
    call->outer_name = NULL;
    call->outer = NULL;
    call->output = NULL;
    call->annotation = NULL;
    call->launch = NULL;
    call->untyped = call->shortened = false;
    call->recorded = (fs_torch_recorded){NAN, NAN, NAN, NAN, "", ""};
    if (size < sizeof *at || fs_signature_kind_of(bytes) != FS_SIGNATURE_TORCH) return false;
    uint64_t word = (uint64_t)*at++;
    uint32_t count = (uint32_t)word;
    if ((word >> RECORDED_SHIFT & 1) != 0) {
        memcpy(&call->recorded, at, sizeof call->recorded);
        at += RECORDED_WORDS;
    }
    call->whole = count <= FS_TORCH_MAX_ARGUMENTS;
    if (!call->whole) count = FS_TORCH_MAX_ARGUMENTS;
    while (call->count < count) take_argument(&at, &call->arguments[call->count++]);
    call->end = at;
    size_t used = (size_t)((const char *)call->end - (const char *)bytes);
    if (call->whole && size > used) call->rest = size - used;
    return true;
}

/* Building --------------------------------------------------------------------------------------------------------- */

void fs_torch_builder_clear(fs_torch_builder *builder)
{
    fs_free(builder->words);
    *builder = (fs_torch_builder){NULL, 0, 0, 0};
}

/* Make room for that many more words, which *words points to. */
static fs_status extend(fs_torch_builder *builder, size_t words, int64_t **place, fs_error *err)
{
    size_t needed = builder->count + words;
    if (words > 0) FS_TRY(FS_LIST_ROOM(&builder->words, needed - 1, &builder->capacity, 64, err));
    *place = builder->words + builder->count;
    builder->count = (uint32_t)needed;
    return FS_OK;
}

fs_status fs_torch_begin(fs_torch_builder *builder, fs_error *err)
{
    int64_t *word = NULL;
    builder->count = builder->list = 0;
    FS_TRY(extend(builder, 1, &word, err));
    *word = (int64_t)((uint64_t)FS_SIGNATURE_TORCH << 56);
    return FS_OK;
}

fs_status fs_torch_add_recorded(fs_torch_builder *builder, const fs_torch_recorded *recorded, fs_error *err)
{
    int64_t *words = NULL;
    FS_TRY(extend(builder, RECORDED_WORDS, &words, err));
    memcpy(words, recorded, sizeof *recorded);
    builder->words[0] |= INT64_C(1) << RECORDED_SHIFT;
    return FS_OK;
}

/* Append a word and its content as one more argument. */
static fs_status add(fs_torch_builder *builder, int64_t word, size_t more, int64_t **place, fs_error *err)
{
    FS_TRY(extend(builder, 1 + more, place, err));
    *(*place)++ = word;
    builder->list = 0;
    builder->words[0]++;
    return FS_OK;
}

fs_status fs_torch_add_nothing(fs_torch_builder *builder, fs_error *err)
{
    int64_t *place = NULL;
    return add(builder, word_of(FS_TORCH_NOTHING, 0, false, 0), 0, &place, err);
}

fs_status fs_torch_add_tensor(fs_torch_builder *builder, const fs_torch_tensor *tensor, fs_error *err)
{
    int64_t *place = NULL, word = word_of(FS_TORCH_TENSOR, tensor->dtype, tensor->strides != NULL, tensor->ndim);
    size_t bytes = tensor->ndim * sizeof(int64_t);
    size_t words = tensor->strides != NULL ? 2 * (size_t)tensor->ndim : tensor->ndim;
    uint32_t list = builder->list;
    FS_TRY(add(builder, word, words, &place, err));
    if (bytes > 0) {
        memcpy(place, tensor->shape, bytes);
        if (tensor->strides != NULL) memcpy(place + tensor->ndim, tensor->strides, bytes);
    }
    if (list != 0) { /* another item of the list, not an argument */
        builder->words[0]--;
        builder->words[list] += INT64_C(1) << COUNT_SHIFT;
        builder->list = list;
    }
    return FS_OK;
}

fs_status fs_torch_add_list(fs_torch_builder *builder, fs_error *err)
{
    int64_t *place = NULL;
    uint32_t list = builder->count;
    FS_TRY(add(builder, word_of(FS_TORCH_TENSOR_LIST, 0, false, 0), 0, &place, err));
    builder->list = list;
    return FS_OK;
}

void fs_torch_end_list(fs_torch_builder *builder)
{
    builder->list = 0;
}

fs_status fs_torch_add_text(fs_torch_builder *builder, fs_torch_type type, const char *text, size_t size, fs_error *err)
{
    int64_t *place = NULL;
    size_t words = size / sizeof *place + 1; /* at least one zero byte */
    if (size > UINT32_MAX - sizeof *place)
        return fs_fail(err, FS_VALUE_ERROR, "an argument's text of %zu bytes is too long", size);
    FS_TRY(add(builder, word_of(type, 0, false, (uint32_t)size), words, &place, err));
    place[words - 1] = 0;
    if (size > 0) memcpy(place, text, size);
    return FS_OK;
}

fs_status fs_torch_add_rest(fs_torch_builder *builder, const void *bytes, size_t size, fs_error *err)
{
    int64_t *place = NULL;
    size_t words = (size + sizeof *place - 1) / sizeof *place;
    if (size == 0) return FS_OK;
    FS_TRY(extend(builder, words, &place, err));
    place[words - 1] = 0;
    memcpy(place, bytes, size);
    return FS_OK;
}
