/* Third step of a build: add device work to nodes and groups, in order of start. Private to csrc/table. */
#ifndef FS_TABLE_DEVICES_H
#define FS_TABLE_DEVICES_H

#include "table/build.h"

fs_status fs_build_devices(fs_build *build, fs_error *err);

#endif
