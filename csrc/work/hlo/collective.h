/* The collectives of HLO. Private to csrc/work/hlo. */
#ifndef FS_WORK_HLO_COLLECTIVE_H
#define FS_WORK_HLO_COLLECTIVE_H

#include "store/collective.h"
#include "work/hlo/hlo.h"

/* Describe the collective that an instruction is or starts, or the only one in its fusion, as a rank takes part in it:
 * its name is Kineto's, and its group has the text of its replica_groups or source_target_pairs. Return false for other
 * instructions. The texts are the module's. */
bool fs_hlo_collective(const fs_hlo_module *module, uint32_t instruction, fs_collective *collective);

/* Return whether an instruction has such a collective. */
bool fs_hlo_communicates(const fs_hlo_module *module, uint32_t instruction);

#endif
