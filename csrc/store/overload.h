/* Names of ops with their overload: "aten::add.Tensor", as torch records them with capture_overload_names. */
#ifndef FS_STORE_OVERLOAD_H
#define FS_STORE_OVERLOAD_H

#include <stddef.h>

/* Return the length of an op's name without its overload, of "aten::add" with and without one; 0 for names of another
 * form. */
size_t fs_name_without_overload(const char *text);

#endif
