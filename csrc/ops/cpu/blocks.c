/* The dimensions are put into walk order first: the tile's columns last, its rows before them, so that all that follows
 * looks at the last two only. A tile never exceeds FS_BLOCK_ELEMENTS, so buffers on the stack suffice. Tiles are
 * numbered and independent of each other: threads take ranges of numbers, and the answer does not depend on how many
 * there are. A loop gets dense blocks alone, or one single value in place of an input. */
#include "ops/cpu/blocks.h"

#include <string.h>

#include "base/parallel.h"
#include "base/search.h"
#include "ops/cpu/cpu_rows.h"

enum {
    OPERANDS = 3,         /* out, in[0], in[1] */
    TRANSPOSED_ROWS = 64, /* rows of a tile with a transposed operand */
    SHORT_ROW = 1024,     /* shorter rows share a tile */
    COLUMNS_AHEAD = 8,    /* columns of a tile prefetched in advance */
    TILES_PER_GRAIN = 16  /* enough work to wake a thread */
};

typedef struct {
    char *data;
    size_t size;
    int64_t strides[FS_MAX_DIMS]; /* in the order of the walk's dimensions */
} operand;

/* The job with its dimensions in walk order: the tile's rows second to last, its columns last. */
typedef struct {
    const fs_block_job *job;
    int ndim;
    int64_t shape[FS_MAX_DIMS];
    operand operands[OPERANDS];
    int64_t tile_rows, tile_columns;
    int64_t row_tiles, column_tiles;
    bool streams;
} walk;

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t magnitude(int64_t x)
{
    return x < 0 ? -x : x;
}

static inline int64_t pieces(int64_t count, int64_t size)
{
    return (count - 1) / size + 1;
}

/* Columns of a transposed operand are pages apart, beyond the reach of hardware prefetchers. */
static inline void column_prefetch(const char *from, int64_t row_stride, int64_t offset, int64_t rows, size_t size)
{
    uintptr_t column = (uintptr_t)from + (uintptr_t)offset * size;
    uintptr_t nbytes = (uintptr_t)rows * size;
    if (row_stride != 1) return;
    for (uintptr_t i = 0; i < nbytes; i += 64) __builtin_prefetch((const void *)(column + i));
}

#define COPY_STRIDED(type)                                                                      \
    do {                                                                                        \
        type *to_ = (type *)(void *)to;                                                         \
        const type *from_ = (const type *)(const void *)from;                                   \
        if (outer_first) {                                                                      \
            for (int64_t c = 0; c < columns; c++) {                                             \
                column_prefetch(from, from_row, (c + COLUMNS_AHEAD) * from_column, rows, size); \
                for (int64_t r = 0; r < rows; r++) {                                            \
                    to_[r * to_row + c * to_column] = from_[r * from_row + c * from_column];    \
                }                                                                               \
            }                                                                                   \
        } else {                                                                                \
            for (int64_t r = 0; r < rows; r++) {                                                \
                for (int64_t c = 0; c < columns; c++) {                                         \
                    to_[r * to_row + c * to_column] = from_[r * from_row + c * from_column];    \
                }                                                                               \
            }                                                                                   \
        }                                                                                       \
    } while (0)

/* Copy a tile from one layout to another; strides in elements. The loop order suits the side that is in memory. */
static void tile_copy(char *to, int64_t to_row, int64_t to_column, const char *from, int64_t from_row,
                      int64_t from_column, int64_t rows, int64_t columns, size_t size)
{
    if (to_column == 1 && from_column == 1) {
        for (int64_t r = 0; r < rows; r++) {
            memcpy(to + r * to_row * (int64_t)size, from + r * from_row * (int64_t)size, (size_t)columns * size);
        }
        return;
    }
    bool outer_first = magnitude(from_row) + magnitude(to_row) < magnitude(from_column) + magnitude(to_column);
    switch (size) {
    case 1:
        COPY_STRIDED(uint8_t);
        break;
    case 2:
        COPY_STRIDED(uint16_t);
        break;
    case 4:
        COPY_STRIDED(uint32_t);
        break;
    default:
        COPY_STRIDED(uint64_t);
        break;
    }
}

static void dimensions_swap(walk *w, int a, int b)
{
    int64_t extent = w->shape[a];
    w->shape[a] = w->shape[b];
    w->shape[b] = extent;
    for (int i = 0; i < OPERANDS; i++) {
        int64_t *strides = w->operands[i].strides;
        int64_t stride = strides[a];
        strides[a] = strides[b];
        strides[b] = stride;
    }
}

/* The dimension, other than the last, along which an operand that is strided along the last has its smallest stride;
 * -1: none. */
static int dimension_transposed(const walk *w)
{
    int last = w->ndim - 1, best = -1;
    int64_t least = INT64_MAX;
    for (int i = 0; i < OPERANDS; i++) {
        const int64_t *strides = w->operands[i].strides;
        int64_t apart = magnitude(strides[last]);
        if (apart <= 1) continue;
        for (int d = 0; d < last; d++) {
            int64_t stride = magnitude(strides[d]);
            if (stride > 0 && stride < apart && stride < least && w->shape[d] > 1) {
                least = stride;
                best = d;
            }
        }
    }
    return best;
}

static int dimension_longest(const walk *w)
{
    int best = w->ndim - 2;
    for (int d = w->ndim - 3; d >= 0; d--) {
        if (w->shape[d] > w->shape[best]) best = d;
    }
    return best;
}

/* Columns: where out's stride is smallest. Rows: where a transposed operand is fast, or short rows are combined. */
static void tile_choose(walk *w, int64_t block)
{
    int last = w->ndim - 1;
    const int64_t *out_strides = w->operands[0].strides;
    int column = last;
    for (int d = last - 1; d >= 0; d--) {
        if (w->shape[d] > 1 && magnitude(out_strides[d]) < magnitude(out_strides[column])) column = d;
    }
    if (column != last) dimensions_swap(w, column, last);

    int64_t columns = w->shape[last];
    w->tile_rows = 1;
    if (last > 0) {
        int transposed = dimension_transposed(w);
        if (transposed >= 0) {
            dimensions_swap(w, transposed, last - 1);
            int64_t rows = w->shape[last - 1];
            w->tile_rows = smaller(rows, columns < block / TRANSPOSED_ROWS ? block / columns : TRANSPOSED_ROWS);
        } else if (columns < SHORT_ROW) {
            dimensions_swap(w, dimension_longest(w), last - 1);
            w->tile_rows = smaller(w->shape[last - 1], block / columns);
        }
    }
    w->tile_columns = smaller(columns, block / w->tile_rows);
    w->row_tiles = last > 0 ? pieces(w->shape[last - 1], w->tile_rows) : 1;
    w->column_tiles = pieces(columns, w->tile_columns);
}

/* Output that does not fit in the cache is stored past it, so that its old content is not read first. This pays off
 * only for whole blocks: short pieces of many rows at a time are slower that way. */
static bool output_streams(const fs_block_job *job)
{
    const fs_elementwise *space = job->space;
    if (!fs_cpu_streams(space->count * (int64_t)job->out_size)) return false;
    return !FS_ANY(i, job->inputs, space->in[i] == space->out);
}

static void walk_init(walk *w, const fs_block_job *job)
{
    const fs_elementwise *space = job->space;
    *w = (walk){.job = job, .ndim = space->ndim};
    memcpy(w->shape, space->shape, sizeof w->shape);
    w->operands[0] = (operand){.data = space->out, .size = job->out_size};
    memcpy(w->operands[0].strides, space->out_strides, sizeof space->out_strides);
    size_t widest = job->out_size;
    for (int i = 0; i < job->inputs; i++) {
        operand *in = &w->operands[i + 1];
        in->size = job->in_size[i];
        if (in->size > widest) widest = in->size;
        if (space->in[i] == NULL) continue;
        in->data = (char *)(uintptr_t)space->in[i];
        memcpy(in->strides, space->in_strides[i], sizeof in->strides);
    }
    w->streams = output_streams(job);
    tile_choose(w, smaller((w->streams ? FS_STREAM_BYTES : FS_BLOCK_BYTES) / (int64_t)widest, FS_BLOCK_ELEMENTS));
}

static bool tile_is_dense(int64_t row_stride, int64_t column_stride, int64_t rows, int64_t columns)
{
    return (columns == 1 || column_stride == 1) && (rows == 1 || row_stride == columns);
}

static bool tile_is_single(int64_t row_stride, int64_t column_stride, int64_t rows, int64_t columns)
{
    return (columns == 1 || column_stride == 0) && (rows == 1 || row_stride == 0);
}

static void tile_run(const walk *w, char *const *at, int64_t rows, int64_t columns)
{
    _Alignas(64) char buffers[OPERANDS][FS_BLOCK_BYTES];
    const fs_block_job *job = w->job;
    int row = w->ndim - 2, column = w->ndim - 1;
    const void *in[2] = {NULL, NULL};
    unsigned singles = 0; /* at most one bit: the other input determines the block's length */
    for (int i = 0; i < job->inputs; i++) {
        if (w->operands[i + 1].data == NULL) singles |= 1u << i;
    }
    for (int i = 0; i < job->inputs; i++) {
        const operand *source = &w->operands[i + 1];
        if (source->data == NULL) {
            in[i] = job->scalar[i];
            continue;
        }
        int64_t row_stride = row >= 0 ? source->strides[row] : 0;
        int64_t column_stride = source->strides[column];
        in[i] = at[i + 1];
        if (tile_is_dense(row_stride, column_stride, rows, columns)) continue;
        if (job->takes_singles && singles == 0 && tile_is_single(row_stride, column_stride, rows, columns)) {
            singles |= 1u << i;
            continue;
        }
        tile_copy(buffers[i + 1], columns, 1, at[i + 1], row_stride, column_stride, rows, columns, source->size);
        in[i] = buffers[i + 1];
    }

    const operand *out = &w->operands[0];
    int64_t row_stride = row >= 0 ? out->strides[row] : 0;
    int64_t column_stride = out->strides[column];
    if (!tile_is_dense(row_stride, column_stride, rows, columns)) {
        job->compute(job, buffers[0], in, singles, rows * columns);
        tile_copy(at[0], row_stride, column_stride, buffers[0], columns, 1, rows, columns, out->size);
    } else if (w->streams && ((uintptr_t)at[0] & 63) == 0) {
        job->compute(job, buffers[0], in, singles, rows * columns);
        job->loops->stream(at[0], buffers[0], rows * columns * (int64_t)out->size);
    } else {
        job->compute(job, at[0], in, singles, rows * columns);
    }
}

/* Tiles are numbered along the columns first, then the rows, then the other dimensions, innermost first. */
static void tiles_run(void *context, int64_t begin, int64_t end)
{
    const walk *w = context;
    int outer = w->ndim - 2; /* dimensions outside the tile */
    int64_t tile_dims[FS_MAX_DIMS];
    for (int64_t tile = begin; tile < end; tile++) {
        int64_t rest = tile;
        int64_t first_column = rest % w->column_tiles * w->tile_columns;
        rest /= w->column_tiles;
        int64_t first_row = 0;
        if (w->ndim > 1) {
            first_row = rest % w->row_tiles * w->tile_rows;
            rest /= w->row_tiles;
        }
        for (int d = outer - 1; d >= 0; d--) {
            tile_dims[d] = rest % w->shape[d];
            rest /= w->shape[d];
        }
        char *at[OPERANDS];
        for (int i = 0; i < OPERANDS; i++) {
            const operand *used = &w->operands[i];
            if (used->data == NULL) continue;
            int64_t offset = first_column * used->strides[w->ndim - 1];
            if (w->ndim > 1) offset += first_row * used->strides[outer];
            for (int d = 0; d < outer; d++) offset += tile_dims[d] * used->strides[d];
            at[i] = used->data + offset * (int64_t)used->size;
        }
        int64_t rows = w->ndim > 1 ? smaller(w->tile_rows, w->shape[outer] - first_row) : 1;
        tile_run(w, at, rows, smaller(w->tile_columns, w->shape[w->ndim - 1] - first_column));
    }
    if (w->streams) w->job->loops->stream_end();
}

void fs_blocks_run(const fs_block_job *job)
{
    walk w;
    walk_init(&w, job);
    int64_t tiles = w.row_tiles * w.column_tiles;
    for (int d = 0; d < w.ndim - 2; d++) tiles *= w.shape[d];
    fs_parallel_for(tiles, TILES_PER_GRAIN, tiles_run, &w);
}
