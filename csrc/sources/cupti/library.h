/* libcupti and libcuda, loaded once. Private to the CUPTI source. */
#ifndef FS_SOURCES_CUPTI_LIBRARY_H
#define FS_SOURCES_CUPTI_LIBRARY_H

#include "base/status.h"
#include "sources/cupti/abi.h"

/* NULL until fs_cupti_load succeeded; driver NULL where there is none. */
extern const fs_cupti_functions *fs_cupti;
extern const fs_driver_functions *fs_driver;

/* FS_RUNTIME_ERROR with CUPTI's own words and what was tried ("enabling kernels"). */
fs_status fs_cupti_fail(int code, const char *doing, fs_error *err);

/* A C++ symbol's readable name, from malloc; NULL where it has none or nothing here can tell. */
char *fs_cupti_demangle(const char *symbol);

#endif
