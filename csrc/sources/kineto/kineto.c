/* Pieces are in the order of the text, without gaps or overlaps: each ends where the next begins. Threads begin at
 * guesses ("here an event seems to begin"), which are facts only once the piece before has ended at that very byte; a
 * piece that guessed wrong is read again. So the events are those that one thread would find, whatever the number of
 * threads. Only the last piece takes text that is fed later. Text that is fed ahead is read by the pool while the
 * caller makes the text that follows; its pieces are checked by the next call. */
#include "sources/kineto/kineto.h"

#include <string.h>

#include "base/fork.h"
#include "base/interrupt.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "base/search.h"
#include "sources/kineto/join.h"
#include "sources/kineto/piece.h"
#include "sources/kineto/records.h"
#include "store/accelerator.h"

/* Device properties and clock from the head of a trace. */

static int64_t *fact_named(fs_device_facts *facts, const fs_scan_span *key)
{
#define FACT_NAMED(field, trace_name, prose) \
    if (fs_scan_is(key, #trace_name)) return &facts->field;
    FS_DEVICE_FACT_LIST(FACT_NAMED)
#undef FACT_NAMED
    return NULL;
}

/* Return whether a value is possible for a fact: counts fit 32 bits, memory is a number of bytes. Others are
 * unknown. */
static bool is_possible(const fs_device_facts *facts, const int64_t *fact, int64_t value)
{
    return value >= 0 && value <= (fact == &facts->total_memory ? FS_MOST_AMOUNT : INT32_MAX);
}

static void take_name(const fs_scan_span *text, fs_device_facts *facts)
{
    char plain[4 * sizeof facts->name];
    fs_scan_span part = *text;
    if (part.size >= sizeof plain) part.size = sizeof plain - 1;
    size_t size = fs_scan_unescape(&part, plain);
    if (size >= sizeof facts->name) size = sizeof facts->name - 1;
    memcpy(facts->name, plain, size);
    facts->name[size] = 0;
}

static uint32_t accelerator_named(const fs_scan_span *text)
{
    char name[16];
    if (text->size >= sizeof name) return 0;
    memcpy(name, text->text, text->size);
    name[text->size] = 0;
    return fs_accelerators_named(name);
}

/* Read one device's object, up to its end. */
static fs_status take_device(fs_scan_pull *pull, fs_store *store, uint32_t *accelerators, fs_error *err)
{
    fs_device_facts facts = fs_device_facts_missing;
    fs_scan_token token;
    fs_scan_span key = {"", 0, false}, span;
    uint32_t depth = pull->depth;
    int64_t id = -1;
    while (fs_scan_next(pull, &token, &span) == FS_SCAN_GOOD) {
        if (token == FS_SCAN_OBJECT_END && pull->depth < depth) break;
        if (token == FS_SCAN_KEY) key = span;
        if (pull->depth != depth) continue;
        if (token == FS_SCAN_STRING && fs_scan_is(&key, "name")) take_name(&span, &facts);
        if (token != FS_SCAN_NUMBER) continue;
        int64_t value, *fact = fact_named(&facts, &key);
        if (!fs_scan_decimal(span.text, span.size, 0, false, &value)) continue;
        if (fs_scan_is(&key, "id")) id = value;
        else if (fact != NULL && is_possible(&facts, fact, value)) *fact = value;
    }
    *accelerators |= fs_accelerators_of_device(facts.name);
    if (id < 0 || id > INT8_MAX) return FS_OK;
    return fs_store_set_device(store, (int)id, &facts, err);
}

fs_status fs_kineto_read_head(const char *head, size_t size, fs_store *store, fs_kineto_head_facts *facts,
                              fs_error *err)
{
    fs_scan_pull pull;
    fs_scan_token token;
    fs_scan_span span;
    bool here = false, is_base = false, is_accelerator = false;
    fs_scan_pull_begin(&pull, head, size);
    while (fs_scan_next(&pull, &token, &span) == FS_SCAN_GOOD) {
        if (token == FS_SCAN_KEY && pull.depth == 1) {
            here = fs_scan_is(&span, "deviceProperties");
            facts->own = facts->own || fs_scan_is(&span, "flopscope");
            is_base = fs_scan_is(&span, "baseTimeNanoseconds");
            is_accelerator = fs_scan_is(&span, "accelerator");
            if (fs_scan_begins(&span, "hip_")) facts->accelerators |= 1U << FS_ACCELERATOR_HIP;
        }
        bool value = token == FS_SCAN_NUMBER || token == FS_SCAN_STRING;
        if (is_base && value && pull.depth == 1) fs_scan_decimal(span.text, span.size, 0, false, &facts->base);
        if (is_accelerator && token == FS_SCAN_STRING && pull.depth == 1)
            facts->accelerators |= accelerator_named(&span);
        if (here && token == FS_SCAN_OBJECT && pull.depth == 3)
            FS_TRY(take_device(&pull, store, &facts->accelerators, err));
        if (pull.depth == 0) break;
    }
    return FS_OK;
}

/* A piece for a thread has at least this many bytes; there are several per thread, because some take longer. Text that
 * is fed is cut again and again, so its pieces are larger: each has tables of its own. */
enum { LEAST_PIECE_BYTES = 1 << 18, LEAST_FED_BYTES = 1 << 19, PIECES_PER_THREAD = 4, MOST_PIECES = 1024 };

/* The text before the events is read in parts of this many bytes. */
enum { HEAD_PART = FS_BLOCK(1 << 16, 1 << 6) };

static int64_t piece_bytes; /* instead of both, if not 0 */

void fs_kineto_set_piece_bytes(int64_t bytes)
{
    piece_bytes = bytes > 0 ? bytes : 0;
}

/* The text that is fed, in memory; its first byte is byte `offset` of the whole. */
typedef struct {
    fs_kineto_part *parts;
    size_t count;
    int64_t offset;
} fed_text;

/* Pieces that several threads read. */
typedef struct {
    fs_kineto *kineto;
    fs_kineto_read read;
    void *context;
    uint32_t first, count; /* the piece at the reading position, and the number of pieces from there on */
    int64_t *starts;       /* by piece from there: where its reading began, -1: nowhere */
    fs_status *statuses;
    fs_error *errors;
} scanning;

struct fs_kineto {
    fs_piece *pieces; /* in order of the text; the last one is still being read */
    uint32_t count;
    fs_record_pool pool;
    int64_t size; /* of the text, known so far */
    char *head;
    size_t head_size;
    bool is_ahead;       /* the pool reads `fed`, by `ahead` */
    uint32_t generation; /* of the process that began to */
    scanning ahead;
    fed_text fed;
};

fs_status fs_kineto_create(fs_kineto **kineto, fs_error *err)
{
    fs_kineto *created = fs_calloc(1, sizeof *created);
    if (created != NULL) created->pieces = fs_malloc(sizeof *created->pieces);
    if (created == NULL || created->pieces == NULL) {
        fs_free(created);
        return fs_no_memory(err);
    }
    fs_piece_init(&created->pieces[0], &created->pool, 0, INT64_MAX, FS_PIECE_START);
    created->count = 1;
    *kineto = created;
    return FS_OK;
}

static void clear_scanning(scanning *all)
{
    fs_free(all->starts);
    fs_free(all->statuses);
    fs_free(all->errors);
    *all = (scanning){.kineto = NULL};
}

/* Return whether the threads that read ahead are those of a parent of this process: what they wrote is unusable. */
static bool is_lost(const fs_kineto *kineto)
{
    return kineto->is_ahead && kineto->generation != fs_fork_generation();
}

void fs_kineto_destroy(fs_kineto *kineto)
{
    if (kineto == NULL || is_lost(kineto)) return;
    if (kineto->is_ahead) fs_parallel_end();
    clear_scanning(&kineto->ahead);
    for (uint32_t i = 0; i < kineto->count; i++) fs_piece_clear(&kineto->pieces[i]);
    fs_record_pool_clear(&kineto->pool);
    fs_free(kineto->pieces);
    fs_free(kineto->fed.parts);
    fs_free(kineto->head);
    fs_free(kineto);
}

/* Several threads -------------------------------------------------------------------------------------------------- */

static void scan_pieces(void *context, int64_t begin, int64_t end)
{
    scanning *all = context;
    for (int64_t i = begin; i < end; i++) {
        all->statuses[i] = fs_piece_scan(&all->kineto->pieces[all->first + i], all->read, all->context, i == 0,
                                         &all->starts[i], &all->errors[i]);
    }
}

/* Each piece began where an event seemed to begin. This is confirmed if the previous piece ended there; otherwise the
 * piece is read again from that end. */
static fs_status check_piece(scanning *all, uint32_t i, fs_error *err)
{
    fs_piece *piece = &all->kineto->pieces[all->first + i];
    int64_t from = fs_piece_at(piece - 1), until = piece->until;
    bool top_array = piece->top_array;
    piece->guessed = false;
    if (all->statuses[i] == FS_OK && all->starts[i] == from) return FS_OK;
    fs_piece_clear(piece);
    fs_piece_init(piece, &all->kineto->pool, from, until, FS_PIECE_EVENTS);
    piece->top_array = top_array;
    return fs_piece_scan(piece, all->read, all->context, true, &all->starts[i], err);
}

/* A piece that did not stop has read all remaining text. Later pieces are then invalid, and it continues with the
 * following text. */
static void drop_pieces_after(fs_kineto *kineto, uint32_t last)
{
    while (kineto->count > last + 1) fs_piece_clear(&kineto->pieces[--kineto->count]);
    kineto->pieces[last].until = INT64_MAX; /* the text fed next belongs to it */
}

/* Begin to read the text from `begin` to `end` in `count` parts: the last piece continues, and new ones follow. The
 * last of them will continue with later text. */
static fs_status begin_parts(scanning *all, int64_t begin, int64_t end, uint32_t count, fs_error *err)
{
    fs_kineto *kineto = all->kineto;
    uint32_t first = all->first = kineto->count - 1;
    fs_piece *pieces = fs_realloc(kineto->pieces, (first + count) * sizeof *pieces);
    all->count = count;
    all->starts = fs_calloc(count, sizeof *all->starts);
    all->statuses = fs_calloc(count, sizeof *all->statuses);
    all->errors = fs_calloc(count, sizeof *all->errors);
    if (pieces != NULL) kineto->pieces = pieces;
    if (pieces == NULL || all->starts == NULL || all->statuses == NULL || all->errors == NULL) {
        clear_scanning(all);
        return fs_no_memory(err);
    }
    bool top_array = pieces[first].top_array;
    for (uint32_t i = 0; i < count; i++) {
        int64_t from = begin + (end - begin) * i / count, until = begin + (end - begin) * (i + 1) / count;
        if (i > 0) fs_piece_init(&pieces[first + i], &kineto->pool, from, until, FS_PIECE_EVENTS);
        pieces[first + i].until = i + 1 < count ? until : INT64_MAX;
        pieces[first + i].top_array = top_array;
    }
    kineto->count = first + count;
    return FS_OK;
}

/* Check what the threads have read. */
static fs_status check_parts(scanning *all, fs_error *err)
{
    FS_TRY(fs_interrupt_poll(err));
    FS_TRY(fs_status_of(all->statuses[0], &all->errors[0], err));
    for (uint32_t i = 1; i < all->count; i++) {
        if (!all->kineto->pieces[all->first + i - 1].stopped) {
            drop_pieces_after(all->kineto, all->first + i - 1);
            break;
        }
        if (all->statuses[i] == FS_OUT_OF_MEMORY || all->statuses[i] == FS_RUNTIME_ERROR)
            return fs_status_of(all->statuses[i], &all->errors[i], err);
        FS_TRY(check_piece(all, i, err));
    }
    return FS_OK;
}

static fs_status end_parts(scanning *all, fs_error *err)
{
    fs_status status = check_parts(all, err);
    clear_scanning(all);
    return status;
}

static uint32_t piece_count(int64_t size, int64_t least)
{
    if (fs_parallel_threads() == 1) return 1;
    int64_t most = (int64_t)fs_parallel_threads() * PIECES_PER_THREAD,
            useful = size / (piece_bytes > 0 ? piece_bytes : least);
    if (most > MOST_PIECES) most = MOST_PIECES;
    return (uint32_t)(useful < 1 ? 1 : useful < most ? useful : most);
}

/* Read up to the first event. Then it is known whether the trace is an array, and threads can begin anywhere. */
static fs_status scan_to_events(fs_kineto *kineto, fs_kineto_read read, void *context, fs_error *err)
{
    fs_piece *piece = &kineto->pieces[0];
    piece->until = 0;
    while (!piece->stopped && piece->state != FS_PIECE_END) {
        size_t left = piece->size - piece->done, part = left > HEAD_PART ? left : HEAD_PART;
        FS_TRY(fs_piece_room(piece, part, err));
        int64_t count = read(context, piece->offset + (int64_t)piece->size, piece->text + piece->size, part, err);
        if (count < 0) return FS_RUNTIME_ERROR;
        if (count == 0) break;
        FS_TRY(fs_piece_read(piece, (size_t)count, err));
    }
    piece->stopped = false;
    piece->until = INT64_MAX;
    return FS_OK;
}

/* Wait for what was fed last. */
static fs_status settle(fs_kineto *kineto, fs_error *err)
{
    if (!kineto->is_ahead) return FS_OK;
    if (is_lost(kineto))
        return fs_fail(err, FS_RUNTIME_ERROR, "the threads that read this trace are those of the parent process");
    fs_parallel_end();
    kineto->is_ahead = false;
    return end_parts(&kineto->ahead, err);
}

fs_status fs_kineto_scan(fs_kineto *kineto, fs_kineto_read read, void *context, int64_t size, fs_error *err)
{
    scanning all = {.kineto = kineto, .read = read, .context = context};
    FS_TRY(settle(kineto, err));
    kineto->size = size;
    FS_TRY(scan_to_events(kineto, read, context, err));
    FS_TRY(begin_parts(&all, fs_piece_at(&kineto->pieces[0]), size, piece_count(size, LEAST_PIECE_BYTES), err));
    fs_parallel_for(all.count, 1, scan_pieces, &all);
    return end_parts(&all, err);
}

/* Feeding ---------------------------------------------------------------------------------------------------------- */

static int64_t read_fed(void *context, int64_t offset, char *to, size_t size, fs_error *err)
{
    (void)err;
    const fed_text *fed = context;
    size_t at = (size_t)(offset - fed->offset), done = 0;
    for (const fs_kineto_part *part = fed->parts; part < fed->parts + fed->count && done < size; part++) {
        size_t skipped = at < part->size ? at : part->size, count = part->size - skipped;
        if (count > size - done) count = size - done;
        memcpy(to + done, part->text + skipped, count);
        at -= skipped;
        done += count;
    }
    return (int64_t)done;
}

/* Read by one thread, up to where several can. Returns the number of bytes read in *count. */
static fs_status feed_one(fs_kineto *kineto, size_t size, size_t *count, fs_error *err)
{
    fs_piece *piece = &kineto->pieces[kineto->count - 1];
    *count = 0;
    while (*count < size &&
           (piece->state != FS_PIECE_EVENTS || piece_count((int64_t)(size - *count), LEAST_FED_BYTES) == 1)) {
        size_t least = piece->state < FS_PIECE_EVENTS ? HEAD_PART : LEAST_FED_BYTES;
        size_t left = piece->size - piece->done, most = left > least ? left : least;
        size_t part = size - *count < most ? size - *count : most;
        FS_TRY(fs_interrupt_poll(err));
        FS_TRY(fs_piece_room(piece, part, err));
        read_fed(&kineto->fed, kineto->size + (int64_t)*count, piece->text + piece->size, part, err);
        FS_TRY(fs_piece_read(piece, part, err));
        *count += part;
    }
    return FS_OK;
}

static fs_status feed(fs_kineto *kineto, const fs_kineto_part *parts, size_t count, bool ahead, fs_error *err)
{
    size_t done, size = 0;
    scanning *all = &kineto->ahead;
    FS_TRY(settle(kineto, err));
    fs_kineto_part *fed = fs_realloc(kineto->fed.parts, count * sizeof *fed);
    if (fed == NULL) return fs_no_memory(err);
    memcpy(fed, parts, count * sizeof *fed);
    kineto->fed = (fed_text){fed, count, kineto->size};
    for (size_t i = 0; i < count; i++) size += fed[i].size;
    FS_TRY(feed_one(kineto, size, &done, err));
    int64_t begin = kineto->size + (int64_t)done;
    kineto->size += (int64_t)size;
    if (done == size) return FS_OK;
    *all = (scanning){.kineto = kineto, .read = read_fed, .context = &kineto->fed};
    FS_TRY(begin_parts(all, begin, kineto->size, piece_count((int64_t)(size - done), LEAST_FED_BYTES), err));
    kineto->generation = fs_fork_generation();
    kineto->is_ahead = ahead && fs_parallel_begin(all->count, 1, scan_pieces, all);
    if (kineto->is_ahead) return FS_OK;
    fs_parallel_for(all->count, 1, scan_pieces, all);
    return end_parts(all, err);
}

fs_status fs_kineto_feed_ahead(fs_kineto *kineto, const fs_kineto_part *parts, size_t count, fs_error *err)
{
    return feed(kineto, parts, count, true, err);
}

/* Threads that read ahead cannot be interrupted; these can. */
fs_status fs_kineto_feed(fs_kineto *kineto, const char *text, size_t size, fs_error *err)
{
    return feed(kineto, &(fs_kineto_part){text, size}, 1, false, err);
}

/* Finishing -------------------------------------------------------------------------------------------------------- */

static fs_status join_head(fs_kineto *kineto, fs_error *err)
{
    size_t size = 3;
    for (uint32_t i = 0; i < kineto->count; i++) size += kineto->pieces[i].head_bytes + kineto->pieces[i].head.count;
    char *to = kineto->head = fs_malloc(size + FS_SCAN_PADDING);
    if (to == NULL) return fs_no_memory(err);
    *to++ = '{';
    for (uint32_t i = 0; i < kineto->count; i++) {
        for (uint32_t id = 0; id < kineto->pieces[i].head.count; id++) {
            fs_span member = fs_intern_get(&kineto->pieces[i].head, id);
            if (to > kineto->head + 1) *to++ = ',';
            memcpy(to, member.bytes, member.size);
            to += member.size;
        }
    }
    *to++ = '}';
    kineto->head_size = (size_t)(to - kineto->head);
    memset(to, 0, FS_SCAN_PADDING);
    return FS_OK;
}

const char *fs_kineto_head(const fs_kineto *kineto, size_t *size)
{
    *size = kineto->head_size;
    return kineto->head;
}

static void add_report(const fs_piece *piece, fs_kineto_report *report)
{
    report->events += piece->report.events;
    report->without_time += piece->report.without_time;
    report->too_many += piece->report.too_many;
    report->mended += piece->report.mended;
    report->without_duration += piece->report.without_duration;
    if (report->unknown == 0) memcpy(report->first_unknown, piece->report.first_unknown, sizeof report->first_unknown);
    report->unknown += piece->report.unknown;
    report->metadata += piece->report.metadata;
    report->understood += piece->report.understood + (int64_t)piece->counters.count + piece->stacks.count;
}

/* Check that the text was a trace and whether it was complete. */
static fs_status check_end(const fs_kineto *kineto, fs_kineto_report *report, fs_error *err)
{
    const fs_piece *last = &kineto->pieces[kineto->count - 1];
    bool over = last->state == FS_PIECE_END;
    report->bytes = kineto->size;
    report->truncated = !over;
    if (FS_ANY(i, kineto->count, kineto->pieces[i].seen_events)) return FS_OK;
    if (over) return fs_fail(err, FS_VALUE_ERROR, "not a trace: the JSON object has no member \"traceEvents\"");
    return fs_fail(err, FS_VALUE_ERROR, "byte %lld: the text ends where %s was expected", (long long)report->bytes,
                   last->state == FS_PIECE_START ? "a trace, which begins with '{' or '[',"
                                                 : "a member \"traceEvents\"");
}

static void set_window(const fs_kineto *kineto, fs_store *store)
{
    int64_t begin = FS_MISSING, end = FS_MISSING;
    for (uint32_t i = 0; i < kineto->count; i++) {
        const fs_piece *piece = &kineto->pieces[i];
        if (piece->window_begin == FS_MISSING) continue;
        if (begin == FS_MISSING || piece->window_begin < begin) begin = piece->window_begin;
        if (end == FS_MISSING || piece->window_end > end) end = piece->window_end;
    }
    fs_store_set_window(store, begin, end);
}

/* The profiler's own records are in process -1. */
static int64_t host_process(const fs_kineto *kineto)
{
    for (uint32_t i = 0; i < kineto->count; i++) {
        for (uint32_t id = 0; id < kineto->pieces[i].lanes.count; id++) {
            const fs_record_lane *lane = fs_intern_get(&kineto->pieces[i].lanes, id).bytes;
            if (lane->device < 0 && lane->process >= 0) return lane->process;
        }
    }
    return -1;
}

static fs_status join_counters(fs_kineto *kineto, fs_store *store, fs_error *err)
{
    fs_counter_points **points = fs_malloc((size_t)kineto->count * sizeof *points);
    if (points == NULL && kineto->count > 0) return fs_no_memory(err);
    for (uint32_t i = 0; i < kineto->count; i++) points[i] = &kineto->pieces[i].counters;
    fs_status status = fs_counters_join(points, kineto->count, store, err);
    fs_free(points);
    return status;
}

static fs_status join_stacks(fs_kineto *kineto, fs_store *store, fs_error *err)
{
    const fs_stack_points **points = fs_malloc((kineto->count + (size_t)1) * sizeof *points);
    if (points == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < kineto->count; i++) points[i] = &kineto->pieces[i].stacks;
    fs_status status = fs_stack_points_join(points, kineto->count, kineto->head, kineto->head_size, store, err);
    fs_free(points);
    return status;
}

fs_status fs_kineto_finish(fs_kineto *kineto, fs_store *store, fs_kineto_report *report, fs_error *err)
{
    memset(report, 0, sizeof *report);
    FS_TRY(settle(kineto, err));
    fs_piece *last = &kineto->pieces[kineto->count - 1];
    last->whole = true;
    FS_TRY(fs_piece_read(last, 0, err));
    FS_TRY(check_end(kineto, report, err));
    for (uint32_t i = 0; i < kineto->count; i++) add_report(&kineto->pieces[i], report);
    FS_TRY(join_head(kineto, err));
    fs_kineto_head_facts facts = {0, false, 0};
    FS_TRY(fs_kineto_read_head(kineto->head, kineto->head_size, store, &facts, err));
    report->base = facts.base;
    report->process = host_process(kineto);
    FS_TRY(fs_join_pieces(kineto->pieces, kineto->count, (fs_join_options){.own = facts.own}, store, report, err));
    FS_TRY(join_counters(kineto, store, err));
    FS_TRY(join_stacks(kineto, store, err));
    for (uint32_t i = 0; i < kineto->count; i++) facts.accelerators |= kineto->pieces[i].accelerators;
    FS_TRY(fs_store_set_accelerator(store, fs_accelerator_told(facts.accelerators), err));
    set_window(kineto, store);
    report->kept = fs_store_count(store);
    return FS_OK;
}
