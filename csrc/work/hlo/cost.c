/* The work of instructions of a schedule. */
#include <math.h>

#include "work/aten/sizes.h"
#include "work/hlo/cost_parts.h"

/* Return whether an instruction moves data between devices. */
static bool is_between(const fs_hlo_opcode *row)
{
    return row != NULL && row->run == FS_HLO_RUNS &&
           (row->flops == fs_hlo_count_moves || row->flops == fs_hlo_count_sums);
}

fs_hlo_work fs_hlo_work_of(fs_hlo_costs *costs, uint32_t instruction)
{
    const fs_hlo_module *module = costs->module;
    bool between = is_between(fs_hlo_opcode_of(module, instruction, NULL));
    fs_hlo_flops flops = fs_hlo_flops_of(costs, instruction);
    double read, written;
    fs_hlo_bytes_of(costs, instruction, &read, &written);
    if (!(flops.flops > 0)) flops.unit = fs_unit_of_plain(fs_hlo_dtype(module, fs_hlo_result(module, instruction)));
    fs_hlo_work found = {fs_sizes_work(flops.flops, read, written, flops.unit), flops.product};
    /* What an unknown call does with its operands is unknown, too: it may read a part. */
    found.work.at_most = flops.at_most || (isnan(flops.flops) && !between);
    found.work.between = between;
    return found;
}
