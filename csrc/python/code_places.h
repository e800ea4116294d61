/* Names of places in Python code, "train.py(12): step", remembered by code object and instruction. */
#ifndef FS_PYTHON_CODE_PLACES_H
#define FS_PYTHON_CODE_PLACES_H

#include "python/core.h"

#include <frameobject.h> /* what Python.h declares of frames from Python 3.11 on */

#include "store/stacks.h"

typedef struct {
    PyCodeObject *code; /* a reference; NULL: a free slot */
    int at;             /* the offset of the instruction */
    uint32_t name;
} fs_code_place;

/* A hash table, at most half full. Zeroed: empty. */
typedef struct {
    fs_code_place *slots;
    uint32_t count, slot_count;
} fs_code_places;

/* Find the name of where a frame is, or add it to the stacks' names. Return false if that fails, without an
 * exception. */
bool fs_code_places_find(fs_code_places *places, fs_stacks *stacks, PyFrameObject *frame, uint32_t *name);
void fs_code_places_clear(fs_code_places *places);

#endif
