#include "work/kernel_class.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    fs_kernel_class class;
    const char *pattern;
} patterns[] = {
#define FS_KERNEL_PATTERN(CLASS, pattern) {FS_KERNEL_##CLASS, pattern},
#include "work/kernel_class.def"
#undef FS_KERNEL_PATTERN
};

/* Where the `size` bytes of a piece stand first in the text, or NULL. */
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

/* A template's name is demangled with what it returns. */
static const char *without_return(const char *name)
{
    static const char nothing[] = "void ";
    return strncmp(name, nothing, sizeof nothing - 1) == 0 ? name + sizeof nothing - 1 : name;
}

fs_kernel_class fs_kernel_class_of(const char *name)
{
    name = without_return(name);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (fits(name, patterns[i].pattern)) return patterns[i].class;
    }
    return FS_KERNEL_OTHER;
}

bool fs_kernel_is_communication(const char *name)
{
    name = without_return(name);
    for (size_t i = 0; patterns[i].class == FS_KERNEL_COMMUNICATION; i++) {
        if (fits(name, patterns[i].pattern)) return true;
    }
    return false;
}

static int size_of_type(const char *name)
{
    static const struct {
        const char *type;
        int size;
    } types[] = {{"float", 4}, {"c10::BFloat16", 2}, {"c10::Half", 2}, {"double", 8}, {"c10::complex<float>", 8},
                 {"int", 4},   {"long", 8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strncmp(name, types[i].type, strlen(types[i].type)) == 0) return types[i].size;
    return 0;
}

/* What follows the text in the name, or NULL. */
static const char *after(const char *name, const char *text)
{
    const char *found = strstr(name, text);
    return found != NULL ? found + strlen(text) : NULL;
}

bool fs_kernel_is_multi_tensor(const char *name)
{
    return strstr(name, "multi_tensor_apply_kernel<") != NULL;
}

int fs_kernel_list_size(const char *name)
{
    const char *rest = after(name, "multi_tensor_apply_kernel<");
    if (rest != NULL) return (rest = after(rest, "Functor<")) != NULL ? size_of_type(rest) : 0;
    rest = after(name, "CatArrayBatchedCopy");
    if (rest == NULL || (rest = after(rest, "OpaqueType<")) == NULL) return 0;
    int size = atoi(rest);
    return size > 0 && size <= 16 ? size : 0;
}
