/* The reader of a module's protobuf: what hlo/proto.c and hlo/proto_attributes.c share. */
#ifndef FS_WORK_HLO_PROTO_H
#define FS_WORK_HLO_PROTO_H

#include "base/wire.h"
#include "work/hlo/build.h"

/* A thing with a number. */
typedef struct {
    int64_t id;
    uint32_t place;
} fs_hlo_numbered;

typedef struct {
    fs_hlo_module *module;
    fs_error *err;
    const uint8_t *begin;
    fs_intern shapes;              /* bytes of shapes */
    uint32_t *shape_ids;           /* of these bytes, in the module */
    fs_hlo_numbered *computations; /* by number */
    uint32_t shape_id_capacity, table_frames;
} fs_hlo_reader;

/* Fail with the byte of `at` and what is wrong there. */
fs_status fs_hlo_damaged(const fs_hlo_reader *reader, const uint8_t *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Take a text, FS_NONE if it is empty. */
fs_status fs_hlo_proto_text(fs_hlo_reader *reader, const fs_wire_field *field, uint32_t *text);

/* Append the numbers of a repeated field of a message. */
fs_status fs_hlo_proto_numbers(fs_hlo_reader *reader, fs_wire message, uint32_t number);

/* Append the attributes of an instruction with this opcode, and what else its fields say of it. */
fs_status fs_hlo_proto_attributes(fs_hlo_reader *reader, fs_wire message, const char *opcode,
                                  fs_hlo_instruction *instruction);

#endif
