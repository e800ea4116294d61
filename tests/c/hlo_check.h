/* What holds of every module of HLO that was read without an error (csrc/work/hlo/hlo.h), and of its work. */
#ifndef FS_TESTS_HLO_CHECK_H
#define FS_TESTS_HLO_CHECK_H

#include "tests/c/fuzz.h"
#include "work/hlo/collective.h"
#include "work/hlo/cost.h"
#include "work/hlo/remarks.h"

static void check_list(fs_hlo_list list, uint32_t count)
{
    FUZZ_CHECK(list.count == 0 || (list.first < count && list.count <= count - list.first), "%u + %u of %u", list.first,
               list.count, count);
}

static void check_id(uint32_t id, uint32_t count)
{
    FUZZ_CHECK(id == FS_NONE || id < count, "%u of %u", id, count);
}

static void check_shapes(const fs_hlo_module *module)
{
    for (uint32_t i = 0; i < module->shape_count; i++) {
        const fs_hlo_shape *shape = &module->shapes[i];
        FUZZ_CHECK(shape->type < FS_HLO_TYPE_COUNT && shape->sizes.count <= FS_HLO_MOST_RANK, "shape %u", i);
        check_list(shape->sizes, module->number_count);
        check_list(shape->layout, module->number_count);
        check_list(shape->parts, module->shape_part_count);
        for (uint32_t j = 0; j < shape->parts.count; j++)
            FUZZ_CHECK(module->shape_parts[shape->parts.first + j] < i, "a part follows its tuple %u", i);
        double elements = fs_hlo_elements(module, i), bytes = fs_hlo_bytes(module, i);
        FUZZ_CHECK(!(elements < 0) && !isinf(elements) && !(bytes < 0) && !isinf(bytes), "shape %u", i);
    }
}

static void check_instruction(const fs_hlo_module *module, uint32_t id)
{
    const fs_hlo_instruction *one = &module->instructions[id];
    const uint32_t texts[] = {one->name, one->opcode, one->op_name, one->kernel, one->target, one->kind, one->config};
    for (size_t i = 0; i < COUNT_OF(texts); i++) check_id(texts[i], module->texts.count);
    FUZZ_CHECK(one->name != FS_NONE && one->opcode != FS_NONE && one->shape < module->shape_count, "instruction %u",
               id);
    check_id(one->frame, module->frame_count);
    check_list(one->operands, module->operand_count);
    check_list(one->called, module->called_count);
    check_list(one->attributes, module->attribute_count);
    for (uint32_t i = 0; i < one->operands.count; i++) {
        uint32_t operand = module->operands[one->operands.first + i];
        FUZZ_CHECK(operand == FS_NONE ||
                       (operand < id && module->instructions[operand].computation == one->computation),
                   "operand %u of %u", operand, id);
    }
    for (uint32_t i = 0; i < one->called.count; i++)
        check_id(module->called[one->called.first + i], module->computation_count);
    for (uint32_t i = 0; i < one->attributes.count; i++) {
        const fs_hlo_attribute *attribute = &module->attributes[one->attributes.first + i];
        FUZZ_CHECK(attribute->key < FS_HLO_ATTRIBUTE_COUNT, "attribute %u of %u", i, id);
        check_list(attribute->values, module->number_count);
    }
}

/* Depths of calls end: each round lengthens the paths by one call. */
static void check_depths(const fs_hlo_module *module)
{
    uint32_t *depths = fs_calloc(module->computation_count, sizeof *depths);
    bool longer = depths != NULL;
    for (int round = 0; longer; round++) {
        FUZZ_CHECK(round <= FS_HLO_MOST_DEPTH, "%u computations", module->computation_count);
        longer = false;
        for (uint32_t i = 0; i < module->instruction_count; i++) {
            const fs_hlo_instruction *one = &module->instructions[i];
            for (uint32_t j = 0; j < one->called.count; j++) {
                uint32_t callee = module->called[one->called.first + j];
                if (callee == FS_NONE || depths[callee] > depths[one->computation]) continue;
                longer = true;
                depths[callee] = depths[one->computation] + 1;
            }
        }
    }
    fs_free(depths);
}

static void check_computations(const fs_hlo_module *module)
{
    FUZZ_CHECK(module->entry < module->computation_count, "entry %u", module->entry);
    for (uint32_t i = 0; i < module->computation_count; i++) {
        const fs_hlo_computation *one = &module->computations[i];
        check_list(one->instructions, module->instruction_count);
        check_id(one->name, module->texts.count);
        FUZZ_CHECK(one->instructions.count > 0 && one->root - one->instructions.first < one->instructions.count,
                   "computation %u", i);
        for (uint32_t j = 0; j < one->instructions.count; j++)
            FUZZ_CHECK(module->instructions[one->instructions.first + j].computation == i, "computation %u", i);
    }
    check_depths(module);
    for (uint32_t i = 0; i < module->frame_count; i++)
        FUZZ_CHECK(module->frames[i].parent == FS_NONE || module->frames[i].parent < i, "frame %u", i);
}

static void check_work(double value, uint32_t instruction)
{
    FUZZ_CHECK(!(value < 0) && !isinf(value), "work %g of instruction %u", value, instruction);
}

/* Check what a module shows of its instructions. */
static void check_remarks(const fs_hlo_module *module)
{
    fs_hlo_remarks remarks;
    fs_error err;
    if (fs_hlo_remarks_make(&remarks, module, &err) != FS_OK) return;
    for (uint32_t i = 0; i < module->instruction_count; i++) {
        char text[64] = "";
        bool found = fs_hlo_remark(&remarks, i, text, sizeof text);
        FUZZ_CHECK(found == (text[0] != 0) && memchr(text, 0, sizeof text) != NULL, "remark of %u", i);
    }
    fs_hlo_remarks_clear(&remarks);
}

static void check_collective(const fs_hlo_module *module, uint32_t instruction)
{
    fs_collective found;
    char group[FS_HLO_GROUP_NAME];
    bool any = fs_hlo_collective(module, instruction, &found, group);
    FUZZ_CHECK(any == fs_hlo_communicates(module, instruction), "collective %u", instruction);
    FUZZ_CHECK(found.group_size >= 0 && found.element_size >= 0, "ranks of %u", instruction);
    FUZZ_CHECK(found.in_elements == FS_MISSING || found.in_elements >= 0, "sent by %u", instruction);
    FUZZ_CHECK(found.out_elements == FS_MISSING || found.out_elements >= 0, "received by %u", instruction);
}

/* Check a module, the work of its schedule, and the remarks about its instructions. */
static void check_module(const fs_hlo_module *module)
{
    fs_hlo_step *steps = NULL;
    uint32_t count = 0;
    fs_error err;
    check_shapes(module);
    for (uint32_t i = 0; i < module->instruction_count; i++) check_instruction(module, i);
    check_computations(module);
    check_remarks(module);
    for (uint32_t i = 0; i < module->instruction_count; i++) check_collective(module, i);
    fs_status status = fs_hlo_schedule(module, &steps, &count, &err);
    for (uint32_t i = 0; status == FS_OK && i < count; i++) {
        check_id(steps[i].instruction, module->instruction_count);
        const fs_hlo_work *work = &steps[i].work;
        check_work(work->work.flops, steps[i].instruction);
        check_work(work->product_flops, steps[i].instruction);
        check_work(work->work.bytes_read, steps[i].instruction);
        check_work(work->work.bytes_written, steps[i].instruction);
        check_work(steps[i].calls, steps[i].instruction);
    }
    fs_free(steps);
}

#endif
