/* The rows of all libraries as one array, in the order of the files; rows of one name follow each other, and the first
 * whose arguments fit is taken. */
#include "work/libraries/libraries.h"

#include <math.h>
#include <stddef.h>

#include "work/aten/attention.h"

const fs_aten_rule fs_library_rules[] = {
#define FS_LIBRARY_AS(CATEGORY, name, family, flops, option, arguments) \
    {name, fs_count_##family, flops, option, arguments, FS_CATEGORY_##CATEGORY},
#define FS_LIBRARY(name, family, flops, option, arguments) \
    FS_LIBRARY_AS(OF_FAMILY, name, family, flops, option, arguments)
#include "work/libraries/aiter.def"
#include "work/libraries/apex.def"
#include "work/libraries/aten.def"
#include "work/libraries/bitsandbytes.def"
#include "work/libraries/communication.def"
#include "work/libraries/fbgemm.def"
#include "work/libraries/flash_attn.def"
#include "work/libraries/flashinfer.def"
#include "work/libraries/graphs.def"
#include "work/libraries/liger.def"
#include "work/libraries/mamba.def"
#include "work/libraries/megatron.def"
#include "work/libraries/sgl_kernel.def"
#include "work/libraries/torchao.def"
#include "work/libraries/torchvision.def"
#include "work/libraries/transformer_engine.def"
#include "work/libraries/vllm.def"
#include "work/libraries/xformers.def"
#undef FS_LIBRARY
#undef FS_LIBRARY_AS
    {.name = NULL},
};
