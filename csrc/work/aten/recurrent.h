/* Recurrent networks. Private to csrc/work/aten. */
#ifndef FS_WORK_ATEN_RECURRENT_H
#define FS_WORK_ATEN_RECURRENT_H

#include "work/aten/convolution.h"

/* X(NAME, weights in one buffer, hidden state, mode, hidden size, projected size, layers, bidirectional): places; the
 * cell state follows the hidden state. Rows of gradients follow the forward row of the same library. */
#define FS_RNN_LIST(X)                                    \
    X(CUDNN, 3, 4, 6, 7, 8, 9, 13)                        \
    X(CUDNN_BACKWARD, 3, 4, 10, 11, 12, 13, 17)           \
    X(MIOPEN, FS_NOT_THERE, 3, 5, 6, FS_NOT_THERE, 7, 11) \
    X(MIOPEN_BACKWARD, 3, 4, 10, 11, FS_NOT_THERE, 12, 16)

enum {
#define FS_RNN_ENUM(NAME, ...) FS_RNN_##NAME,
    FS_RNN_LIST(FS_RNN_ENUM)
#undef FS_RNN_ENUM
};

/* X(NAME, state, first bias, FLOPs, FLOPs for each bias, elements written): the places of a tensor with the state's
 * shape and of the biases; the numbers are per element of the state.
 *
 * LSTM: 4 gates of a sum and a function each; f c + i g, its tanh and the product with o. Written: both states, and the
 * gates for the gradients.
 * GRU: r and z, of a sum and a function each; n = tanh(a + r b), n + z (h - n). Written: the state, and r, z, n, h, b.
 * Gradients of the LSTM: tanh c and its product with dh; dh o (1 - tanh^2 c) + dc; four products with it; three
 * sigmoids of 3 each, a tanh of 3. Written: the gradients of the gates and of the cell state.
 * Gradients of the GRU: dz 5, dh 1, dn 5, dn r 1, dr 4. Written: the gradients of both sets of gates, and of the
 * state. */
#define FS_CELL_LIST(X)                         \
    X(LSTM, 2, 3, 13, 4, 6)                     \
    X(GRU, 2, 3, 10, 3, 6)                      \
    X(LSTM_BACKWARD, 2, FS_NOT_THERE, 23, 0, 5) \
    X(GRU_BACKWARD, 0, FS_NOT_THERE, 16, 0, 7)

enum {
#define FS_CELL_ENUM(NAME, ...) FS_CELL_##NAME,
    FS_CELL_LIST(FS_CELL_ENUM)
#undef FS_CELL_ENUM
};

#endif
