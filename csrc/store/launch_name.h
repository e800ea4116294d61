/* The name of an op that is one launch, with the work of the launch at its end. torch's profiler records no more of an
 * op than its name unless it records shapes. */
#ifndef FS_STORE_LAUNCH_NAME_H
#define FS_STORE_LAUNCH_NAME_H

#include "store/signature.h"

enum { FS_LAUNCH_NAME_BYTES = 640 };

/* Write the work as it stands after a name and a space, in at most FS_LAUNCH_NAME_BYTES:
 * "[flops=137438953472 bytes=100663296 unit=fp16_tensor]"; "bytes<=" is an upper limit. */
void fs_launch_name_write(const fs_given_work *work, char *text, size_t size);

/* Parse a name that ends so. Return the size of the name alone; 0, with *work unchanged, if it does not. */
size_t fs_launch_name_parse(const char *text, size_t size, fs_given_work *work);

#endif
