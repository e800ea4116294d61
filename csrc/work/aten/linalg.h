/* Costs of matrix factorizations and of solving with them. Private to csrc/work.
 *
 * X(NAME, matrix, right-hand side, FLOPs as multiples of m n^2, n^3 and n^2 k, elements written as multiples of m n,
 * n^2 and n k): places of the matrix of m rows and n columns (m is the larger; a wide matrix is counted as its
 * transpose) and of the right-hand side of k columns, NOT_THERE for none.
 *
 * The leading terms of LAPACK Working Note 41, table 4: potrf n^3/3, potri 2n^3/3, getrf m n^2 - n^3/3, getri after it
 * 2n^3, geqrf and orgqr 2m n^2 - 2n^3/3 each, a triangular solve n^2 k, potrs, sytrs and getrs 2n^2 k. */
#ifndef FS_WORK_ATEN_LINALG_H
#define FS_WORK_ATEN_LINALG_H

#include "work/aten/convolution.h"

#define FS_FACTOR_LIST(X)                                                                                              \
    X(CHOLESKY, 0, FS_NOT_THERE, 0, 1. / 3, 0, 1, 0, 0)                                                                \
    X(CHOLESKY_INVERSE, 0, FS_NOT_THERE, 0, 2. / 3, 0, 1, 0, 0)                                                        \
    X(LU, 0, FS_NOT_THERE, 1, -1. / 3, 0, 1, 0, 0)                                                                     \
    X(INVERSE, 0, FS_NOT_THERE, 0, 2, 0, 1, 0, 0)                                                                      \
    X(QR, 0, FS_NOT_THERE, 4, -4. / 3, 0, 1, 1, 0) /* assumes mode "reduced", the usual one: a trace has no strings */ \
    X(REFLECTORS, 0, FS_NOT_THERE, 2, -2. / 3, 0, 1, 0, 0)                                                             \
    X(FROM_REFLECTORS, 0, FS_NOT_THERE, 2, -2. / 3, 0, 1, 0, 0)                                                        \
    X(SOLVE_TRIANGULAR, 0, 1, 0, 0, 1, 0, 0, 1)                                                                        \
    X(SOLVE_TRIANGULAR_AFTER, 1, 0, 0, 0, 1, 0, 0, 1)                                                                  \
    X(SOLVE_FACTORED, 0, 2, 0, 0, 2, 0, 0, 1)                                                                          \
    X(SOLVE_FACTORED_AFTER, 1, 0, 0, 0, 2, 0, 0, 1)

enum {
#define FS_FACTOR_ENUM(NAME, ...) FS_FACTOR_##NAME,
    FS_FACTOR_LIST(FS_FACTOR_ENUM)
#undef FS_FACTOR_ENUM
};

/* Singular values, eigenvalues of symmetric and of general matrices. */
enum { FS_SPECTRUM_SINGULAR, FS_SPECTRUM_SYMMETRIC, FS_SPECTRUM_GENERAL };

#endif
