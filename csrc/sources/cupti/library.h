/* libcupti and libcuda, loaded once. Private to the CUPTI source. */
#ifndef FS_SOURCES_CUPTI_LIBRARY_H
#define FS_SOURCES_CUPTI_LIBRARY_H

#include "base/status.h"
#include "sources/cupti/abi.h"

/* NULL until fs_cupti_load succeeds; fs_driver is NULL if there is no driver. */
extern const fs_cupti_functions *fs_cupti;
extern const fs_driver_functions *fs_driver;

/* Return FS_RUNTIME_ERROR with CUPTI's description of the error and the failed step ("enabling kernels"). */
fs_status fs_cupti_fail(int code, const char *doing, fs_error *err);

/* Return the demangled name of a C++ symbol, allocated with malloc; NULL if it has none or no demangler is
 * available. */
char *fs_cupti_demangle(const char *symbol);

#endif
