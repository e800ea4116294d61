/* The only place that writes an error's text. The name is in parentheses because status.h has a macro of that name for
 * clang's analyzer. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

fs_status(fs_fail)(fs_error *err, fs_status status, const char *format, ...)
{
    if (err == NULL) return status;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    err->status = status;
    return status;
}

fs_status fs_status_of(fs_status part, const fs_error *from, fs_error *err)
{
    if (part != FS_OK && err != NULL) *err = *from;
    return part;
}
