/* The sizes of groups of devices, from their text. What is of another form has no known size. */
#include <string.h>

#include "work/hlo/build.h"

enum { MOST_SIZE = 1 << 30, LONGEST_MESH = 4096 };

/* Take a number; 0 if none is there, or if it is no size. */
static int64_t take_size(const char **at, const char *end)
{
    int64_t size = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++)
        size = size < MOST_SIZE ? 10 * size + (**at - '0') : MOST_SIZE;
    return size < MOST_SIZE ? size : 0;
}

/* {{0,1},{2,3}} */
static int64_t size_of_lists(const char *at, const char *end)
{
    int64_t size = 0, count = 0;
    for (at++; at < end; at++) {
        bool digit = *at >= '0' && *at <= '9';
        if (digit && (at[-1] < '0' || at[-1] > '9')) count++;
        if (*at != '}' || at[-1] == '}') continue;
        if (size > 0 && count != size) return 0;
        size = count;
        count = 0;
    }
    return size;
}

/* [2,4]<=[8], or with another order of the devices [2,4]<=[4,2]T(1,0) */
static int64_t size_of_iota(const char *at, const char *end)
{
    at++;
    take_size(&at, end);
    if (at == end || *at++ != ',') return 0;
    int64_t size = take_size(&at, end);
    return at < end && *at == ']' ? size : 0;
}

/* Return the size of a mesh's axis, whose name follows [ or a comma. */
static int64_t size_of_axis(const char *mesh, const char *end, const char *name, size_t length)
{
    for (const char *at = mesh; (size_t)(end - at) > length + 1; at++) {
        if ((*at != '[' && *at != ',') || memcmp(at + 1, name, length) != 0 || at[length + 1] != '=') continue;
        const char *number = at + length + 2;
        return take_size(&number, end);
    }
    return 0;
}

/* mesh['x'=2,'y'=4] {'x','y':(2)2}: all of x, and of y a part of 2 */
static int64_t size_of_mesh(const char *mesh, const char *end)
{
    const char *axes = end;
    int64_t product = 1;
    if (end - mesh > LONGEST_MESH) return 0;
    while (axes > mesh && axes[-1] != '{') axes--;
    for (const char *at = axes; at > mesh && at < end && *at != '}'; at += *at == ',') {
        const char *name = at;
        while (at < end && *at != ',' && *at != '}' && *at != ':') at++;
        int64_t size = size_of_axis(mesh, axes, name, (size_t)(at - name));
        if (at < end && *at == ':') {
            while (at < end && *at != ')') at++;
            at += at < end;
            size = take_size(&at, end);
        }
        if (size <= 0 || product > MOST_SIZE / size) return 0;
        if (at < end && *at != ',' && *at != '}') return 0;
        product *= size;
    }
    return axes > mesh && product > 1 ? product : 0;
}

int64_t fs_hlo_group_size(const char *text, size_t size)
{
    const char *end = text + size;
    if (size == 0) return 0;
    if (*text == '{') return size_of_lists(text, end);
    if (*text == '[') return size_of_iota(text, end);
    return size > 5 && memcmp(text, "mesh[", 5) == 0 ? size_of_mesh(text, end) : 0;
}
