#include "work/kernel_class.h"

#include <stdbool.h>
#include <stddef.h>
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

int fs_kernel_multi_tensor_size(const char *name)
{
    static const struct {
        const char *type;
        int size;
    } types[] = {{"float", 4}, {"c10::BFloat16", 2}, {"c10::Half", 2}, {"double", 8}, {"c10::complex<float>", 8},
                 {"int", 4},   {"long", 8}};
    const char *functor = strstr(name, "multi_tensor_apply_kernel<");
    if (functor == NULL || (functor = strstr(functor, "Functor<")) == NULL) return 0;
    functor += strlen("Functor<");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strncmp(functor, types[i].type, strlen(types[i].type)) == 0) return types[i].size;
    return 0;
}
