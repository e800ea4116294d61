/* What a range says beside its name, as the bytes of a signature (signature.h):
 *
 *   [ word 0 | numbers | name of the category, 0 | fields: name, 0, value, 0, … ]
 *
 * Each range may say something else, so notes never tell rows of a table apart. */
#ifndef FS_STORE_NOTE_H
#define FS_STORE_NOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

typedef enum { FS_NOTE_NOTHING, FS_NOTE_UNSIGNED, FS_NOTE_INTEGER, FS_NOTE_REAL } fs_note_type;

enum { FS_NOTE_CATEGORY_BYTES = 128, FS_NOTE_FIELDS_BYTES = 1024 };

typedef struct {
    uint32_t category; /* number; 0: none */
    uint32_t colour;   /* 0xAARRGGBB */
    uint8_t coloured;
    uint8_t payload_type; /* an fs_note_type */
    union {
        uint64_t whole;
        int64_t integer;
        double real;
    } payload;
    const char *category_name; /* "" if the category has none; at most FS_NOTE_CATEGORY_BYTES are kept */
    const char *fields;        /* of a structured payload: names and values in turn, each with a zero byte. A value is
                                * FS_NOTE_NUMBER and a number of JSON, or FS_NOTE_TEXT and text */
    size_t fields_size;        /* at most FS_NOTE_FIELDS_BYTES */
} fs_note;

enum { FS_NOTE_NUMBER = 'n', FS_NOTE_TEXT = 't' };

/* Return the size of the longest beginning of the text that has at most `most` bytes and, if it is cut, does not end
 * within a character of UTF-8. */
size_t fs_note_cut(const char *text, size_t most);

enum { FS_NOTE_MAX_BYTES = 8 + 32 + FS_NOTE_CATEGORY_BYTES + 1 + FS_NOTE_FIELDS_BYTES };

/* Append a field to `fields`, of which *size bytes of FS_NOTE_FIELDS_BYTES are used. False, and nothing is appended, if
 * its name is empty or there is no room. */
bool fs_note_add_field(char *fields, size_t *size, fs_text name, char kind, fs_text value);

/* Write a note to bytes (FS_NOTE_MAX_BYTES, 8-aligned). Return the size used. */
size_t fs_note_encode(const fs_note *note, void *bytes);

/* Decode it; texts point into the bytes. False if the bytes are of another kind. */
bool fs_note_decode(const void *bytes, size_t size, fs_note *note);

#endif
