/* Where the ops of attention have their arguments. Private to csrc/work.
 *
 * X(NAME, query, layout, bias, causal, lengths, longest, log-sum-exp): places; key and value follow the query. causal
 * is the place of the flag, or of the number of the mask where layout is MASKED. lengths: of the offsets of the
 * sequences of the queries, those of the keys follow; longest: of their longest sequence, likewise. log-sum-exp: ALWAYS
 * written, or the place of a flag.
 */
#ifndef FS_WORK_ATEN_ATTENTION_H
#define FS_WORK_ATEN_ATTENTION_H

#include "work/aten_convolution.h"

/* How queries lie: [batch, heads, sequence, size] or [batch, sequence, heads, size]; the latter with a number for the
 * mask. All sequences behind each other, [sequence, heads, size], where offsets are given. */
enum { FS_HEADS_FIRST, FS_SEQUENCE_FIRST, FS_MASKED };

#define FS_ATTENTION_LIST(X)                                                               \
    X(ATEN, 0, FS_HEADS_FIRST, 3, 5, FS_NOT_THERE, FS_NOT_THERE, FS_NOT_THERE)             \
    X(FLASH, 0, FS_HEADS_FIRST, FS_NOT_THERE, 4, FS_NOT_THERE, FS_NOT_THERE, FS_ALWAYS)    \
    X(EFFICIENT, 0, FS_HEADS_FIRST, 3, 6, FS_NOT_THERE, FS_NOT_THERE, 4)                   \
    X(CUDNN_KERNEL, 0, FS_HEADS_FIRST, 3, 10, 4, 6, 8)                                     \
    X(FLASH_KERNEL, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 8, 3, 5, FS_ALWAYS)                \
    X(EFFICIENT_KERNEL, 0, FS_MASKED, 3, 9, 4, 6, 10)                                      \
    X(FLASH_BACKWARD, 1, FS_HEADS_FIRST, FS_NOT_THERE, 11, 6, 8, FS_ALWAYS)                \
    X(CPU_BACKWARD, 1, FS_HEADS_FIRST, 8, 7, FS_NOT_THERE, FS_NOT_THERE, FS_ALWAYS)        \
    X(EFFICIENT_BACKWARD, 1, FS_HEADS_FIRST, 4, 11, FS_NOT_THERE, FS_NOT_THERE, FS_ALWAYS) \
    X(CUDNN_BACKWARD, 1, FS_HEADS_FIRST, 8, 14, 9, 11, FS_ALWAYS)                          \
    X(FUSED_BACKWARD, 1, FS_HEADS_FIRST, 4, 13, 8, 10, FS_ALWAYS)                          \
    X(FLASH_KERNEL_BACKWARD, 1, FS_SEQUENCE_FIRST, FS_NOT_THERE, 11, 6, 8, FS_ALWAYS)      \
    X(EFFICIENT_KERNEL_BACKWARD, 1, FS_MASKED, 4, 14, 6, 8, FS_ALWAYS)

enum {
#define FS_ATTENTION_ENUM(NAME, ...) FS_ATTENTION_##NAME,
    FS_ATTENTION_LIST(FS_ATTENTION_ENUM)
#undef FS_ATTENTION_ENUM
};

#endif
