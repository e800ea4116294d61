/* The members stand between the last " [" and the final "]", each "KEY=VALUE", separated by a space. All of them must
 * be understood, so that a name that merely ends with brackets stays whole. */
#include "store/launch_name.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void fs_launch_name_write(const fs_given_work *work, char *text, size_t size)
{
    const char *moved = work->launch == FS_LAUNCH_AT_MOST ? "bytes<=" : "bytes=";
    char flops[FS_LAUNCH_NAME_BYTES / 2] = "", bytes[FS_LAUNCH_NAME_BYTES / 2] = "";
    if (!isnan(work->flops)) snprintf(flops, sizeof flops, "flops=%.0f ", work->flops);
    if (!isnan(work->bytes)) snprintf(bytes, sizeof bytes, "%s%.0f ", moved, work->bytes);
    bool unit = work->unit[0] != 0;
    size_t length = (size_t)snprintf(text, size, "[%s%s%s%.15s]", flops, bytes, unit ? "unit=" : "", work->unit);
    if (!unit && length > 2 && length < size) strcpy(text + length - 2, "]"); /* in place of the last space */
}

static bool take_key(const char **at, const char *end, const char *key)
{
    size_t size = strlen(key);
    if ((size_t)(end - *at) < size || memcmp(*at, key, size) != 0) return false;
    *at += size;
    return true;
}

static bool take_amount(const char *at, const char *end, double *amount)
{
    enum { MOST_DIGITS = 281 }; /* as FS_MOST_WORK has */
    if (at == end || end - at > MOST_DIGITS || !isnan(*amount)) return false;
    *amount = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9') return false;
        *amount = 10 * *amount + (*at - '0');
    }
    return true;
}

static bool take_member(const char *at, const char *end, fs_given_work *work)
{
    if (take_key(&at, end, "flops=")) return take_amount(at, end, &work->flops);
    if (take_key(&at, end, "bytes=")) return take_amount(at, end, &work->bytes);
    if (take_key(&at, end, "bytes<=")) {
        work->launch = FS_LAUNCH_AT_MOST;
        return take_amount(at, end, &work->bytes);
    }
    if (!take_key(&at, end, "unit=") || (size_t)(end - at) >= sizeof work->unit) return false;
    memcpy(work->unit, at, (size_t)(end - at));
    return true;
}

size_t fs_launch_name_parse(const char *text, size_t size, fs_given_work *work)
{
    fs_given_work found = {.flops = NAN, .bytes = NAN, .launch = FS_LAUNCH_STATED};
    if (size < 2 || text[size - 1] != ']') return 0;
    size_t begin = size - 1;
    while (begin > 0 && text[begin] != '[') begin--;
    if (begin < 2 || text[begin - 1] != ' ') return 0;
    for (const char *at = text + begin + 1, *last = text + size - 1; at < last;) {
        const char *space = memchr(at, ' ', (size_t)(last - at)), *end = space != NULL ? space : last;
        if (!take_member(at, end, &found)) return 0;
        at = end + 1;
    }
    if (isnan(found.flops) && isnan(found.bytes)) return 0;
    *work = found;
    return begin - 1;
}
