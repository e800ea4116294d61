/* The collectives of HLO. Private to csrc/work/hlo. */
#ifndef FS_WORK_HLO_COLLECTIVE_H
#define FS_WORK_HLO_COLLECTIVE_H

#include "store/collective.h"
#include "work/hlo/hlo.h"

/* Names of groups begin so if they stand for several: which of them a device is in is unknown. */
#define FS_HLO_ONE_OF "one of "
enum { FS_HLO_GROUP_NAME = FS_HLO_MOST_GROUPS + sizeof FS_HLO_ONE_OF };

/* Describe the collective that an instruction is or starts, or the only one in its fusion, as a rank takes part in it:
 * its name is Kineto's, and that of its group the text of its replica_groups or source_target_pairs, in `group`
 * (FS_HLO_GROUP_NAME bytes). Return false for other instructions. */
bool fs_hlo_collective(const fs_hlo_module *module, uint32_t instruction, fs_collective *collective, char *group);

/* Return whether an instruction has such a collective. */
bool fs_hlo_communicates(const fs_hlo_module *module, uint32_t instruction);

#endif
