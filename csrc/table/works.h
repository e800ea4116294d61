/* Last step of a build with fs_table_options.works: lists the pieces of work. Private to csrc/table. */
#ifndef FS_TABLE_WORKS_H
#define FS_TABLE_WORKS_H

#include "table/build.h"

/* Fill table->works; their rows are indices of groups. FS_OUT_OF_MEMORY. */
fs_status fs_build_works(fs_build *build, fs_error *err);

/* Fill table->rated. FS_OUT_OF_MEMORY. */
fs_status fs_build_ratings(fs_build *build, fs_error *err);

/* Replace the indices of groups by those of rows: places[group] is the row's. */
void fs_works_move(fs_table *table, const uint32_t *places);

#endif
