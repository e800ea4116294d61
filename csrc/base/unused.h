/* A parameter that a function has only for the type of a table of functions. */
#ifndef FS_BASE_UNUSED_H
#define FS_BASE_UNUSED_H

#define FS_UNUSED(name) unused_##name __attribute__((unused))

#endif
