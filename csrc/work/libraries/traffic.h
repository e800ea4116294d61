/* A call against the row of its op: whether it fits, and what it reads and writes. Private to csrc/work.
 *
 *   schema ◄── expression ◄── traffic ◄── families       each knows those before it */
#ifndef FS_WORK_LIBRARIES_TRAFFIC_H
#define FS_WORK_LIBRARIES_TRAFFIC_H

#include "work/libraries/schema.h"

/* Return whether results, FLOPs and conditions name arguments of the row. */
bool fs_schema_is_sound(const fs_schema *schema);

/* Return whether the call has the arguments of the schema. */
bool fs_schema_fits(const fs_schema *schema, const fs_torch_call *call);

typedef struct {
    double read, written;
} fs_traffic;

/* Return the bytes of all arguments and results by their roles. */
fs_traffic fs_schema_traffic(const fs_schema *schema, const fs_torch_call *call);

#endif
