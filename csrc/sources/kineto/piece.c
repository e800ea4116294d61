/* The window of a piece, and the structure around the events. */
#include "sources/kineto/piece.h"

#include <stdio.h>
#include <string.h>

#include "base/interrupt.h"
#include "base/memory.h"
#include "sources/kineto/event.h"

/* Limits for one event or member and for the windows of all threads together, so that an endless text cannot exhaust
 * memory. An event larger than the second limit is read again by one thread alone. */
static const size_t most_element_bytes = (size_t)64 << 20, most_guessed_bytes = (size_t)4 << 20;
/* Members besides the events are kept up to this many bytes in total. */
static const size_t most_head_bytes = (size_t)16 << 20;

void fs_piece_init(fs_piece *piece, fs_record_pool *pool, int64_t offset, int64_t until, fs_piece_state state)
{
    memset(piece, 0, sizeof *piece);
    piece->pool = pool;
    piece->offset = offset;
    piece->until = until;
    piece->state = state;
    piece->last_lane = FS_NONE;
    piece->window_begin = piece->window_end = FS_MISSING;
}

void fs_piece_clear(fs_piece *piece)
{
    fs_piece_drop_records(piece);
    fs_free(piece->text);
    fs_free(piece->scratch);
    fs_free(piece->call_signatures);
    fs_free(piece->states);
    fs_torch_builder_clear(&piece->builder);
    fs_counters_clear(&piece->counters);
    fs_stack_points_clear(&piece->stacks);
    fs_intern *tables[] = {&piece->names, &piece->calls, &piece->signatures, &piece->lanes, &piece->head};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) fs_intern_clear(tables[i]);
    piece->text = piece->scratch = NULL;
    piece->call_signatures = NULL;
    piece->states = NULL;
}

/* The window ------------------------------------------------------------------------------------------------------- */

static size_t most_bytes(const fs_piece *piece)
{
    return piece->guessed ? most_guessed_bytes : most_element_bytes;
}

/* Release the window; reading can continue at the same byte. */
static void drop_window(fs_piece *piece)
{
    piece->offset += (int64_t)piece->done;
    fs_free(piece->text);
    piece->text = NULL;
    piece->size = piece->capacity = piece->done = 0;
}

fs_status fs_piece_room(fs_piece *piece, size_t size, fs_error *err)
{
    size_t left = piece->size - piece->done;
    if (piece->done > 0) {
        memmove(piece->text, piece->text + piece->done, left);
        piece->offset += (int64_t)piece->done;
        piece->size = left;
        piece->done = 0;
    }
    size_t needed = left + size + FS_SCAN_PADDING;
    if (needed <= piece->capacity) return FS_OK;
    size_t capacity = needed > 2 * piece->capacity ? needed : 2 * piece->capacity;
    char *text = fs_realloc(piece->text, capacity);
    if (text == NULL) return fs_no_memory(err);
    piece->text = text;
    piece->capacity = capacity;
    return FS_OK;
}

/* Errors ----------------------------------------------------------------------------------------------------------- */

static fs_status fail_at(const fs_piece *piece, const fs_scan *scan, fs_error *err)
{
    char found[24];
    int64_t byte = piece->offset + (int64_t)(scan->at - piece->text);
    unsigned char c = (unsigned char)*scan->at;
    snprintf(found, sizeof found, c > ' ' && c < 0x7f ? "'%c'" : "the byte 0x%02x", c);
    return fs_fail(err, FS_VALUE_ERROR, "byte %lld: expected %s, found %s", (long long)byte, scan->expected, found);
}

/* Structure -------------------------------------------------------------------------------------------------------- */

static fs_scan_status read_start(fs_piece *piece, fs_scan *scan)
{
    static const char mark[] = "\xef\xbb\xbf"; /* the byte order mark of UTF-8, which some editors write */
    if (scan->end - scan->at < 3 && *scan->at == *mark) return FS_SCAN_MORE;
    if (memcmp(scan->at, mark, 3) == 0) scan->at += 3;
    fs_scan_space(scan);
    if (*scan->at == '[') {
        piece->top_array = piece->seen_events = true;
        piece->state = FS_PIECE_EVENTS;
    } else if (*scan->at == '{') {
        piece->state = FS_PIECE_MEMBERS;
    } else {
        return fs_scan_bad(scan, "a trace, which begins with '{' or '['");
    }
    scan->at++;
    return FS_SCAN_GOOD;
}

static fs_status keep_member(fs_piece *piece, const char *from, const char *to, fs_error *err)
{
    uint32_t id;
    size_t size = (size_t)(to - from);
    if (piece->head_bytes + size > most_head_bytes) return FS_OK;
    piece->head_bytes += size;
    return fs_intern_bytes(&piece->head, from, size, &id, err);
}

static fs_scan_status read_member(fs_piece *piece, fs_scan *scan, fs_status *status, fs_error *err)
{
    static const char events[] = "traceEvents";
    fs_scan_span key;
    fs_scan_space(scan);
    if (*scan->at == ',') {
        scan->at++;
        return FS_SCAN_GOOD;
    }
    if (*scan->at == '}') {
        scan->at++;
        piece->state = FS_PIECE_END;
        return FS_SCAN_GOOD;
    }
    const char *began = scan->at;
    if (*scan->at != '"') return fs_scan_bad(scan, "a member's key or '}'");
    fs_scan_status scanned = fs_scan_string(scan, &key);
    if (scanned != FS_SCAN_GOOD) return scanned;
    fs_scan_space(scan);
    if (*scan->at != ':') return fs_scan_bad(scan, "':'");
    scan->at++;
    fs_scan_space(scan);
    if (key.size == sizeof events - 1 && memcmp(key.text, events, key.size) == 0) {
        if (*scan->at != '[') return fs_scan_bad(scan, "'[' and the events");
        scan->at++;
        piece->seen_events = true;
        piece->state = FS_PIECE_EVENTS;
        return FS_SCAN_GOOD;
    }
    scanned = fs_scan_skip(scan);
    if (scanned == FS_SCAN_GOOD) *status = keep_member(piece, began, scan->at, err);
    return scanned;
}

static fs_scan_status read_element(fs_piece *piece, fs_scan *scan, fs_status *status, fs_error *err)
{
    fs_scan_space(scan);
    while (*scan->at == ',') {
        scan->at++;
        fs_scan_space(scan);
    }
    piece->done = (size_t)(scan->at - piece->text);
    if (*scan->at == ']') {
        scan->at++;
        piece->state = piece->top_array ? FS_PIECE_END : FS_PIECE_MEMBERS;
        return FS_SCAN_GOOD;
    }
    if (*scan->at != '{') return fs_scan_bad(scan, "an event, which begins with '{'");
    if (piece->offset + (int64_t)piece->done >= piece->until) {
        piece->stopped = true;
        return FS_SCAN_GOOD;
    }
    fs_scan_status scanned = fs_piece_event(piece, scan, status, err);
    if (scanned == FS_SCAN_GOOD) piece->report.events++;
    return scanned;
}

static fs_scan_status read_step(fs_piece *piece, fs_scan *scan, fs_status *status, fs_error *err)
{
    switch (piece->state) {
    case FS_PIECE_START:
        return read_start(piece, scan);
    case FS_PIECE_MEMBERS:
        return read_member(piece, scan, status, err);
    case FS_PIECE_EVENTS:
        return read_element(piece, scan, status, err);
    case FS_PIECE_END:
        fs_scan_space(scan);
        return fs_scan_bad(scan, "the end of the file");
    }
    return FS_SCAN_BAD;
}

fs_status fs_piece_read(fs_piece *piece, size_t size, fs_error *err)
{
    piece->size += size;
    if (piece->text == NULL) return FS_OK;
    memset(piece->text + piece->size, 0, FS_SCAN_PADDING);
    fs_scan scan = {.at = piece->text + piece->done, .end = piece->text + piece->size};
    fs_status status = FS_OK;
    fs_scan_status scanned = FS_SCAN_GOOD;
    while (!piece->stopped && scan.at < scan.end) {
        scanned = read_step(piece, &scan, &status, err);
        if (status != FS_OK) return status;
        if (scanned != FS_SCAN_GOOD) break;
        piece->done = (size_t)(scan.at - piece->text);
    }
    if (scanned == FS_SCAN_BAD) return fail_at(piece, &scan, err);
    if (piece->size - piece->done > most_bytes(piece)) {
        return fs_fail(err, FS_VALUE_ERROR, "byte %lld: the element that begins here exceeds the limit of %zu MB",
                       (long long)fs_piece_at(piece), most_bytes(piece) >> 20);
    }
    return FS_OK;
}

/* Parts of a text -------------------------------------------------------------------------------------------------- */

enum { WINDOW_BYTES = FS_BLOCK(1 << 17, 1 << 8) };

/* State of the search for the boundary between two events: "}", ",", "{" and a quote, with optional white space. */
typedef enum { NOTHING, CLOSED, COMMA, OPENED, FOUND } seam;

typedef struct {
    seam state;
    int64_t event; /* the byte of the last "{" */
} seeker;

static seam next_state(seam state, char c)
{
    static const char expected[] = {[NOTHING] = '}', [CLOSED] = ',', [COMMA] = '{', [OPENED] = '"'};
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') return state;
    if (c == expected[state]) return state + 1;
    return c == '}' ? CLOSED : NOTHING;
}

/* Scan `size` bytes, the first of which is byte `offset` of the text. */
static void scan_bytes(seeker *found, const char *text, size_t size, int64_t offset)
{
    for (const char *at = text, *end = text + size; at < end && found->state != FOUND; at++) {
        if (found->state == NOTHING && (at = memchr(at, '}', (size_t)(end - at))) == NULL) return;
        seam before = found->state;
        found->state = next_state(before, *at);
        if (before == COMMA && found->state == OPENED) found->event = offset + (at - text);
    }
}

/* Fill the window; *count: the number of bytes added, 0 at the end of the text. */
static fs_status fill(fs_piece *piece, fs_kineto_read read, void *context, int64_t *count, fs_error *err)
{
    size_t left = piece->size - piece->done, size = left > WINDOW_BYTES / 2 ? left : WINDOW_BYTES - left;
    size_t most = most_bytes(piece) + WINDOW_BYTES;
    if (size > most - left) size = most - left;
    FS_TRY(fs_piece_room(piece, size, err));
    *count = read(context, piece->offset + (int64_t)piece->size, piece->text + piece->size, size, err);
    return *count < 0 ? FS_RUNTIME_ERROR : FS_OK;
}

/* Begin where an event seems to begin; *start is -1 if there is no such place in the piece. */
static fs_status seek(fs_piece *piece, fs_kineto_read read, void *context, int64_t *start, fs_error *err)
{
    seeker found = {NOTHING, -1};
    int64_t count = 1;
    *start = -1;
    while (found.state != FOUND && count > 0) {
        int64_t next = piece->offset + (int64_t)piece->size;
        if ((found.state == OPENED ? found.event : next) >= piece->until) return FS_OK;
        piece->done = piece->size; /* none of it is needed any more */
        FS_TRY(fill(piece, read, context, &count, err));
        scan_bytes(&found, piece->text + piece->size, (size_t)count, next);
        piece->size += (size_t)count;
    }
    if (found.state != FOUND || found.event >= piece->until) return FS_OK;
    *start = found.event;
    if (*start >= piece->offset) {
        piece->done = (size_t)(*start - piece->offset);
    } else { /* it is before the window */
        piece->offset = *start;
        piece->size = piece->done = 0;
    }
    return fs_piece_read(piece, 0, err);
}

fs_status fs_piece_scan(fs_piece *piece, fs_kineto_read read, void *context, bool exact, int64_t *start, fs_error *err)
{
    int64_t count = 1;
    fs_status status = FS_OK;
    *start = piece->offset;
    piece->guessed = !exact;
    if (!exact) status = seek(piece, read, context, start, err);
    while (status == FS_OK && *start >= 0 && !piece->stopped && count > 0) {
        FS_TRY(fs_interrupt_poll(err));
        status = fill(piece, read, context, &count, err);
        if (status == FS_OK) status = fs_piece_read(piece, (size_t)count, err);
    }
    if (piece->stopped || status != FS_OK || *start < 0) drop_window(piece); /* the rest belongs to the next piece */
    return status;
}
