/* Appending to a module, for its readers. Functions that append to the lists of an instruction are called between the
 * instruction before it and fs_hlo_put_instruction, lists one after the other. All fail with FS_OUT_OF_MEMORY. */
#ifndef FS_WORK_HLO_BUILD_H
#define FS_WORK_HLO_BUILD_H

#include "base/memory.h"
#include "work/hlo/hlo.h"

enum { FS_HLO_FIRST_ROOM = 64 };

/* Make a module empty, with room in its arrays: the lists of one that was read are no null pointers. */
fs_status fs_hlo_begin(fs_hlo_module *module, fs_error *err);

/* Append to an array of the module, and give the item's id. X(name of the function, type, array) */
#define FS_HLO_ARRAYS(X)                            \
    X(number, int64_t, number)                      \
    X(part, uint32_t, shape_part)                   \
    X(operand, uint32_t, operand)                   \
    X(shape, fs_hlo_shape, shape)                   \
    X(instruction, fs_hlo_instruction, instruction) \
    X(computation, fs_hlo_computation, computation) \
    X(frame, fs_hlo_frame, frame)                   \
    X(donor, int64_t, donor)                        \
    X(attribute, fs_hlo_attribute, attribute)

#define FS_HLO_PUT(name, type, array)                                                                               \
    static inline fs_status fs_hlo_put_##name(fs_hlo_module *module, type item, fs_error *err)                      \
    {                                                                                                               \
        FS_TRY(FS_LIST_ROOM(&module->array##s, module->array##_count, &module->array##_capacity, FS_HLO_FIRST_ROOM, \
                            err));                                                                                  \
        module->array##s[module->array##_count++] = item;                                                           \
        return FS_OK;                                                                                               \
    }
FS_HLO_ARRAYS(FS_HLO_PUT)
#undef FS_HLO_PUT

/* The id of a called computation, which may follow. */
static inline fs_status fs_hlo_put_called(fs_hlo_module *module, uint32_t computation, fs_error *err)
{
    return FS_LIST_ADD(&module->called, &module->called_count, &module->called_capacity, FS_HLO_FIRST_ROOM, err,
                       computation);
}

/* Append an attribute whose values are the numbers from `first` on. */
static inline fs_status fs_hlo_put_values(fs_hlo_module *module, fs_hlo_attribute_key key, uint32_t first,
                                          fs_error *err)
{
    fs_hlo_list values = {first, module->number_count - first};
    return fs_hlo_put_attribute(module, (fs_hlo_attribute){key, values}, err);
}

/* Append an attribute of one value. */
static inline fs_status fs_hlo_put_value(fs_hlo_module *module, fs_hlo_attribute_key key, int64_t value, fs_error *err)
{
    FS_TRY(fs_hlo_put_number(module, value, err));
    return fs_hlo_put_values(module, key, module->number_count - 1, err);
}

/* Return an instruction without anything. */
fs_hlo_instruction fs_hlo_blank(void);

/* Return the type of this text, FS_HLO_INVALID if there is none. */
fs_hlo_type fs_hlo_type_of(const char *text, size_t size);

/* Return whether a shape has at most 2^62 elements. */
bool fs_hlo_countable(const fs_hlo_module *module, const fs_hlo_shape *shape);

/* Return the number of ids in each group of a text of replica_groups; 0: unknown, or not the same in all.
 *
 *   {{0,1,2,3},{4,5,6,7}}    [2,4]<=[8]    mesh['x'=2,'y'=4] {'y'} */
int64_t fs_hlo_group_size(const char *text, size_t size);

/* Append the attributes that stand in the backend_config of an instruction with this opcode: the trip count of a while,
 * the dimensions of a library's product. Another text has none. */
fs_status fs_hlo_put_config(fs_hlo_module *module, const char *opcode, const char *config, fs_error *err);

/* Check that no computation calls itself, and how deep calls are. On FS_VALUE_ERROR, *at is a computation of a cycle,
 * or the deepest that is allowed. */
fs_status fs_hlo_check_calls(const fs_hlo_module *module, uint32_t *at, fs_error *err);

#endif
