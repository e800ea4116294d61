/* The arguments of attention ops. Private to csrc/work.
 *
 * X(NAME, query, layout, bias, causal, lengths, longest, log-sum-exp, window, fewest): places; key and value follow the
 * query. causal: the place of the flag, or of the mask number if layout is MASKED. lengths: the place of the sequence
 * offsets of the queries, followed by those of the keys; longest: of the longest sequences, likewise. log-sum-exp:
 * ALWAYS written, or the place of a flag. window: the place of the number of preceding keys visible to a query,
 * followed by the number of subsequent ones (negative: all); if layout is MASKED, of the total number. fewest: a call
 * with fewer arguments is of an older version, described by the next row. */
#ifndef FS_WORK_ATEN_ATTENTION_H
#define FS_WORK_ATEN_ATTENTION_H

#include "work/aten/convolution.h"

/* X(NAME, place): the table of the blocks in which keys and values are cached. With it they are [blocks, rows of a
 * block, heads, size], and how many rows are read is bounded by the longest sequence. */
#define FS_PAGED_LIST(X)    \
    X(FLASH2_PACKED, 15)    \
    X(FLASH2_VLLM, 8)       \
    X(FLASH3, 14)           \
    X(FLASH3_SCALED, 14)    \
    X(AITER_PACKED, 19)     \
    X(AITER_PACKED_0_1, 18) \
    X(XFORMERS, 14)         \
    X(XFORMERS3, 16)        \
    X(XFORMERS3_1, 15)

/* Layouts of queries: [batch, heads, sequence, size] or [batch, sequence, heads, size]; MASKED is the latter with a
 * mask number. With offsets, the sequences are concatenated: [sequence, heads, size]. */
enum { FS_HEADS_FIRST, FS_SEQUENCE_FIRST, FS_MASKED };

/* X(NAME): a causal mask begins at the first query and the first key, as torch.nn.functional.
 * scaled_dot_product_attention documents it. The others end at the last query and the last key; so does flash attention
 * inside torch on CUDA, which torch calls with such a mask for torch.nn.attention.bias.causal_lower_right alone. A mask
 * number tells which: see mask_of. */
#define FS_TOP_LEFT_LIST(X)   \
    X(ATEN)                   \
    X(FLASH_CPU)              \
    X(EFFICIENT)              \
    X(EFFICIENT_2_0)          \
    X(CUDNN_KERNEL)           \
    X(CPU_BACKWARD)           \
    X(EFFICIENT_BACKWARD)     \
    X(EFFICIENT_BACKWARD_2_0) \
    X(CUDNN_BACKWARD)         \
    X(FUSED_BACKWARD)

#define FS_ATTENTION_LIST(X)                                                                                           \
    X(ATEN, 0, FS_HEADS_FIRST, 3, 5, FS_NOT_THERE, FS_NOT_THERE, FS_NOT_THERE, FS_NOT_THERE, 0)                        \
    X(FLASH_SCALED, 0, FS_HEADS_FIRST, FS_NOT_THERE, 7, FS_NOT_THERE, FS_NOT_THERE, FS_ALWAYS, FS_NOT_THERE, 10)       \
    X(FLASH, 0, FS_HEADS_FIRST, FS_NOT_THERE, 4, FS_NOT_THERE, FS_NOT_THERE, FS_ALWAYS, FS_NOT_THERE, 0)               \
    X(FLASH_CPU, 0, FS_HEADS_FIRST, 5, 4, FS_NOT_THERE, FS_NOT_THERE, FS_ALWAYS, FS_NOT_THERE, 0)                      \
    X(EFFICIENT, 0, FS_HEADS_FIRST, 3, 6, FS_NOT_THERE, FS_NOT_THERE, 4, FS_NOT_THERE, 7)                              \
    X(EFFICIENT_2_0, 0, FS_HEADS_FIRST, FS_NOT_THERE, 4, FS_NOT_THERE, FS_NOT_THERE, 3, FS_NOT_THERE, 0)               \
    X(CUDNN_KERNEL, 0, FS_HEADS_FIRST, 3, 10, 4, 6, 8, FS_NOT_THERE, 0)                                                \
    X(FLASH_KERNEL, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 8, 3, 5, FS_ALWAYS, 11, 0)                                     \
    X(EFFICIENT_KERNEL, 0, FS_MASKED, 3, 9, 4, 6, 10, 13, 14)                                                          \
    X(EFFICIENT_KERNEL_2_2, 0, FS_MASKED, 3, 8, 4, 6, 9, FS_NOT_THERE, 0)                                              \
    X(FLASH_BACKWARD, 1, FS_HEADS_FIRST, FS_NOT_THERE, 11, 6, 8, FS_ALWAYS, FS_NOT_THERE, 0)                           \
    X(CPU_BACKWARD, 1, FS_HEADS_FIRST, 8, 7, FS_NOT_THERE, FS_NOT_THERE, FS_ALWAYS, FS_NOT_THERE, 0)                   \
    X(EFFICIENT_BACKWARD, 1, FS_HEADS_FIRST, 4, 11, FS_NOT_THERE, FS_NOT_THERE, FS_ALWAYS, FS_NOT_THERE, 11)           \
    X(EFFICIENT_BACKWARD_2_0, 1, FS_HEADS_FIRST, FS_NOT_THERE, 6, FS_NOT_THERE, FS_NOT_THERE, FS_ALWAYS, FS_NOT_THERE, \
      0)                                                                                                               \
    X(CUDNN_BACKWARD, 1, FS_HEADS_FIRST, 8, 14, 9, 11, FS_ALWAYS, FS_NOT_THERE, 0)                                     \
    X(FUSED_BACKWARD, 1, FS_HEADS_FIRST, 4, 13, 8, 10, FS_ALWAYS, FS_NOT_THERE, 0)                                     \
    X(FLASH_KERNEL_BACKWARD, 1, FS_SEQUENCE_FIRST, FS_NOT_THERE, 11, 6, 8, FS_ALWAYS, 15, 0)                           \
    X(EFFICIENT_KERNEL_BACKWARD, 1, FS_MASKED, 4, 14, 6, 8, FS_ALWAYS, 18, 0)                                          \
    X(FLASH2, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 5, FS_NOT_THERE, FS_NOT_THERE, FS_ALWAYS, 6, 0)                      \
    X(FLASH2_PACKED, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 9, 3, 5, FS_ALWAYS, 10, 0)                                    \
    X(FLASH2_VLLM, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 15, 4, 10, FS_ALWAYS, 16, 0)                                    \
    X(FLASH2_BACKWARD, 1, FS_SEQUENCE_FIRST, FS_NOT_THERE, 11, FS_NOT_THERE, FS_NOT_THERE, FS_ALWAYS, 12, 0)           \
    X(FLASH2_PACKED_BACKWARD, 1, FS_SEQUENCE_FIRST, FS_NOT_THERE, 15, 9, 11, FS_ALWAYS, 16, 0)                         \
    X(FLASH3, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 24, 7, 12, FS_ALWAYS, 25, 0)                                         \
    X(FLASH3_SCALED, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 25, 7, 12, FS_ALWAYS, 26, 0)                                  \
    X(FLASH3_BACKWARD, 1, FS_SEQUENCE_FIRST, FS_NOT_THERE, 16, 6, 10, FS_ALWAYS, 17, 0)                                \
    X(FLASH3_KERNEL_BACKWARD, 1, FS_SEQUENCE_FIRST, FS_NOT_THERE, 16, 9, 13, FS_ALWAYS, 17, 0)                         \
    X(FLASH_FUNCTION, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 5, FS_NOT_THERE, FS_NOT_THERE, FS_ALWAYS, FS_NOT_THERE, 0)   \
    X(FLASH_FUNCTION_PACKED, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 9, 3, 5, FS_ALWAYS, FS_NOT_THERE, 0)                  \
    X(AITER_BACKWARD, 1, FS_SEQUENCE_FIRST, FS_NOT_THERE, 8, FS_NOT_THERE, FS_NOT_THERE, FS_ALWAYS, 9, 0)              \
    X(AITER_PACKED, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 12, 3, 5, FS_ALWAYS, 13, 0)                                    \
    X(AITER_PACKED_0_1, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 12, 3, 5, FS_ALWAYS, 13, 0)                                \
    X(AITER_PACKED_BACKWARD, 1, FS_SEQUENCE_FIRST, FS_NOT_THERE, 13, 6, 8, FS_ALWAYS, 14, 0)                           \
    X(XFORMERS, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 10, 3, 6, FS_ALWAYS, 11, 0)                                        \
    X(XFORMERS_CK, 0, FS_MASKED, 3, 9, 4, FS_NOT_THERE, 8, 12, 0)                                                      \
    X(FLASH3_FUNCTION, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 4, FS_NOT_THERE, FS_NOT_THERE, FS_ALWAYS, FS_NOT_THERE, 0)  \
    X(FLASH3_FUNCTION_PACKED, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 10, 3, 7, FS_ALWAYS, FS_NOT_THERE, 0)                \
    X(FLASH4_FUNCTION, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 6, FS_NOT_THERE, FS_NOT_THERE, FS_ALWAYS, FS_NOT_THERE, 0)  \
    X(XFORMERS3, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 10, 3, 6, FS_ALWAYS, 11, 0)                                       \
    X(XFORMERS3_1, 0, FS_SEQUENCE_FIRST, FS_NOT_THERE, 11, 3, 7, FS_ALWAYS, 17, 0)                                     \
    X(XFORMERS_BACKWARD, 2, FS_SEQUENCE_FIRST, FS_NOT_THERE, 13, 7, 9, FS_ALWAYS, 14, 0)                               \
    X(XFORMERS3_BACKWARD, 2, FS_SEQUENCE_FIRST, FS_NOT_THERE, 12, 7, 9, FS_ALWAYS, 13, 0)                              \
    X(XFORMERS_CK_BACKWARD, 1, FS_MASKED, 4, 15, 5, 7, FS_ALWAYS, 17, 0)

enum {
#define FS_ATTENTION_ENUM(NAME, ...) FS_ATTENTION_##NAME,
    FS_ATTENTION_LIST(FS_ATTENTION_ENUM)
#undef FS_ATTENTION_ENUM
};

/* Return the sum of i + shift for i from 0 to rows - 1, each clamped to 0 … columns: the keys that a mask leaves. */
double fs_attention_reached(double rows, double columns, double shift);

#endif
