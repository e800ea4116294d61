/* "space::name.overload", all three of letters, digits and underscores; anything else has no overload. The grammar of
 * torch's op names decides, not a list of ops. */
#include "store/overload.h"

#include <string.h>

static size_t word_size(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
}

size_t fs_name_without_overload(const char *text)
{
    size_t space = word_size(text);
    if (space == 0 || strncmp(text + space, "::", 2) != 0) return 0;
    size_t size = space + 2 + word_size(text + space + 2);
    if (text[size] == '\0') return size;
    return text[size] == '.' && word_size(text + size + 1) == strlen(text + size + 1) ? size : 0;
}
