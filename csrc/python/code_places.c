/* A hash table by code object and instruction. It owns its code objects, so that an address stays the name of one code
 * object while it is a key. It is emptied when it holds MOST_PLACES, rather than growing with programs that make code
 * without end; names are interned in the stacks and keep their ids. */
#include "python/code_places.h"

#include <stdio.h>

#include "base/memory.h"

enum {
    FIRST_SLOTS = 256,
    MOST_PLACES = 1 << 16, /* then all are forgotten, as a program may make code without end */
    LONGEST_TEXT = 1024,
};

static uint32_t slot_of(const fs_code_places *places, const PyCodeObject *code, int at)
{
    uint64_t hash =
        ((uint64_t)(uintptr_t)code >> 4) * 0x9e3779b97f4a7c15u + (uint64_t)(uint32_t)at * 0xc2b2ae3d27d4eb4fu;
    uint32_t mask = places->slot_count - 1, slot = (uint32_t)(hash >> 32) & mask;
    while (places->slots[slot].code != NULL && (places->slots[slot].code != code || places->slots[slot].at != at))
        slot = (slot + 1) & mask;
    return slot;
}

static bool grow(fs_code_places *places)
{
    fs_code_places grown = {NULL, places->count, places->slot_count > 0 ? 2 * places->slot_count : FIRST_SLOTS};
    grown.slots = fs_calloc(grown.slot_count, sizeof *grown.slots);
    if (grown.slots == NULL) return false;
    for (uint32_t i = 0; i < places->slot_count; i++) {
        const fs_code_place *place = &places->slots[i];
        if (place->code != NULL) grown.slots[slot_of(&grown, place->code, place->at)] = *place;
    }
    fs_free(places->slots);
    *places = grown;
    return true;
}

/* The name of a function: with its class where this Python knows it. */
static PyObject *function_name(const PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030b0000
    return code->co_qualname;
#else
    return code->co_name;
#endif
}

static bool add_name(fs_stacks *stacks, PyFrameObject *frame, const PyCodeObject *code, uint32_t *name)
{
    char text[LONGEST_TEXT];
    const char *path = PyUnicode_AsUTF8(code->co_filename), *function = PyUnicode_AsUTF8(function_name(code));
    if (path == NULL || function == NULL) {
        PyErr_Clear();
        return false;
    }
    snprintf(text, sizeof text, "%.700s(%d): %.250s", path, PyFrame_GetLineNumber(frame), function);
    return fs_stacks_name(stacks, text, name, NULL) == FS_OK;
}

static bool find(fs_code_places *places, fs_stacks *stacks, PyFrameObject *frame, PyCodeObject *code, uint32_t *name)
{
#if PY_VERSION_HEX >= 0x030b0000
    int at = PyFrame_GetLasti(frame);
#else
    int at = frame->f_lasti;
#endif
    if (places->count >= MOST_PLACES) fs_code_places_clear(places);
    if (2 * (places->count + 1) > places->slot_count && !grow(places)) return false;
    fs_code_place *place = &places->slots[slot_of(places, code, at)];
    if (place->code == NULL) {
        if (!add_name(stacks, frame, code, name)) return false;
        *place = (fs_code_place){(PyCodeObject *)Py_NewRef(code), at, *name};
        places->count++;
    }
    *name = place->name;
    return true;
}

bool fs_code_places_find(fs_code_places *places, fs_stacks *stacks, PyFrameObject *frame, uint32_t *name)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    bool good = find(places, stacks, frame, code, name);
    Py_DECREF(code);
    return good;
}

void fs_code_places_clear(fs_code_places *places)
{
    fs_code_places before = *places;
    *places = (fs_code_places){NULL, 0, 0};
    for (uint32_t i = 0; i < before.slot_count; i++) Py_XDECREF(before.slots[i].code);
    fs_free(before.slots);
}
