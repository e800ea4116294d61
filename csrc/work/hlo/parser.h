/* The reader of HLO text: a place in the text, and what it needs beside the module (hlo/text.c). */
#ifndef FS_WORK_HLO_PARSER_H
#define FS_WORK_HLO_PARSER_H

#include <string.h>

#include "base/text.h"
#include "work/hlo/build.h"

typedef struct {
    const char *start, *at, *end;
    fs_hlo_module *module;
    fs_error *err;
    fs_intern keys;      /* names of attributes */
    uint8_t rows[96];    /* of these names (hlo/text.c) */
    fs_intern shapes;    /* texts of shapes */
    uint32_t *shape_ids; /* of these texts, in the module */
    uint32_t *named;     /* by text: the last instruction of that name, plus 1 */
    const char **places; /* of computations, in the text */
    uint32_t *waiting;   /* parts of the tuples that are being read */
    char *unescaped;     /* of a text with escapes */
    uint32_t shape_id_capacity, named_capacity, place_capacity, waiting_count, waiting_capacity, unescaped_capacity;
    uint32_t condition;          /* of the while that is being read, a text; FS_NONE */
    uint32_t *files, *functions; /* texts: the tables at the head of the module */
    fs_hlo_frame *locations;
    uint32_t table_frames; /* frames of the table: others are made of source_file and source_line */
    uint32_t file_count, function_count, location_count, file_capacity, function_capacity, location_capacity;
} fs_hlo_parser;

/* Classes of bytes. */
enum { FS_HLO_IN_NAME = 1, FS_HLO_BLANK = 2, FS_HLO_DIGIT = 4, FS_HLO_OPENS = 8, FS_HLO_CLOSES = 16, FS_HLO_ENDS = 32 };
extern const uint8_t fs_hlo_classes[256];

/* Fail with the line of `at` and what is wrong there. */
fs_status fs_hlo_wrong(fs_hlo_parser *parser, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* How many bytes of the rest of the line an error shows. */
int fs_hlo_shown(const fs_hlo_parser *parser);

/* Move past blanks and comments. */
void fs_hlo_pass_comment(fs_hlo_parser *parser);

static inline void fs_hlo_pass_blanks(fs_hlo_parser *parser)
{
    const char *at = parser->at, *end = parser->end;
    while (at < end && (fs_hlo_classes[(uint8_t)*at] & FS_HLO_BLANK)) at++;
    parser->at = at;
    if (at < end && *at == '/') fs_hlo_pass_comment(parser);
}

/* Return the next byte that is not blank, 0 at the end. */
static inline char fs_hlo_peek(fs_hlo_parser *parser)
{
    fs_hlo_pass_blanks(parser);
    return parser->at < parser->end ? *parser->at : 0;
}

static inline bool fs_hlo_eat(fs_hlo_parser *parser, char byte)
{
    if (fs_hlo_peek(parser) != byte) return false;
    parser->at++;
    return true;
}

/* Return the name that follows, empty if none does. */
static inline fs_text fs_hlo_take_name(fs_hlo_parser *parser)
{
    fs_hlo_pass_blanks(parser);
    const char *from = parser->at, *at = from;
    while (at < parser->end && (fs_hlo_classes[(uint8_t)*at] & FS_HLO_IN_NAME)) at++;
    parser->at = at;
    return (fs_text){from, (size_t)(at - from)};
}

/* Take a name, with % before it or not, as the id of its text. */
fs_status fs_hlo_take_id(fs_hlo_parser *parser, uint32_t *text);
/* Take an integer, with its sign. */
fs_status fs_hlo_take_integer(fs_hlo_parser *parser, int64_t *value);
fs_status fs_hlo_expect(fs_hlo_parser *parser, char byte);
/* Take a text in quotes, without its escapes. */
fs_status fs_hlo_take_text(fs_hlo_parser *parser, uint32_t *text);
/* Move past a value of any form: to the comma or closing bracket after it, to the end of its line, or to a blank. */
fs_status fs_hlo_skip_value(fs_hlo_parser *parser, bool to_blank);
/* Move past a bracket and what it encloses. */
fs_status fs_hlo_skip_brackets(fs_hlo_parser *parser);
/* Take a shape, whose layout follows without a blank. */
fs_status fs_hlo_take_shape(fs_hlo_parser *parser, uint32_t *shape);

#endif
