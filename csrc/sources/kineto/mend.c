/* A mended copy. Brackets are followed, so that it is known what may come after each string. */
#include "sources/kineto/mend.h"

#include <string.h>

#include "base/memory.h"

enum { MOST_OPEN = 64, LONGEST_KEY = 64 };

typedef struct {
    const char *at, *end; /* of what is left of the text; nothing is read beyond its padding */
    bool whole, event, wants_key;
    int depth;
    bool objects[MOST_OPEN + 1]; /* which of the open values are objects; those of a trace's member are in one */
    fs_mended *copy;
} mending;

/* The keys of events in Chrome's format. */
static const char *const event_keys[] = {"ph",  "cat",   "name", "pid",  "tid", "ts", "dur", "args",  "id",
                                         "id2", "scope", "tts",  "tdur", "bp",  "s",  "sf",  "stack", "cname"};

/* Return whether a value may begin at `at`: of a number or a word, up to what follows it. */
static bool is_value(const char *at)
{
    if (*at != 0 && strchr("\"[{", *at) != NULL) return true;
    const char *end = at + strspn(at, "0123456789+-.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return end > at && *fs_scan_behind_space(end) != 0 && strchr(",}]", *fs_scan_behind_space(end)) != NULL;
}

/* Return whether a key of an object, with its colon and a value, is at `at`. */
static bool is_key(const char *at, bool of_event)
{
    if (*at != '"') return false;
    const char *first = ++at;
    while (*at != '"' && *at != 0 && at - first <= LONGEST_KEY) at++;
    fs_text key = {first, (size_t)(at - first)};
    if (*at != '"' || *fs_scan_behind_space(at + 1) != ':' ||
        !is_value(fs_scan_behind_space(fs_scan_behind_space(at + 1) + 1)))
        return false;
    bool known = !of_event;
    for (size_t i = 0; i < sizeof event_keys / sizeof *event_keys && !known; i++)
        known = fs_text_is(key, event_keys[i]);
    return known;
}

/* Return whether `at`, behind a comma, is where a value of an array or the next key of an object begins. */
static bool continues(const mending *text, const char *at, int depth)
{
    if (text->objects[depth]) return is_key(at, text->event && depth == 1);
    return *at != 0 && strchr("\"[{-0123456789tfnNI", *at) != NULL;
}

/* Return whether what follows a string, from `at`, can follow it: one comma or bracket, and what must be behind that.
 */
static bool can_follow(const mending *text, const char *at)
{
    int depth = text->depth;
    at = fs_scan_behind_space(at);
    if (*at == ',') return continues(text, fs_scan_behind_space(at + 1), depth);
    if (*at != (text->objects[depth] ? '}' : ']')) return false;
    at = fs_scan_behind_space(at + 1);
    bool ended = text->whole && at >= text->end;
    if (--depth < 0) return ended;
    if (depth == 0 && text->event) return (*at == ',' && *fs_scan_behind_space(at + 1) == '{') || *at == ']' || ended;
    return *at == (text->objects[depth] ? '}' : ']') ||
           (*at == ',' && continues(text, fs_scan_behind_space(at + 1), depth));
}

static bool put(fs_mended *copy, char c)
{
    fs_error err;
    if (FS_LIST_ROOM(&copy->text, copy->size + FS_SCAN_PADDING, &copy->capacity, 4096, &err) != FS_OK) return false;
    copy->text[copy->size++] = c;
    return true;
}

/* Copy the string at text->at. */
static fs_scan_status mend_string(mending *text)
{
    bool good = put(text->copy, '"'), of_event = text->event && text->depth == 1;
    for (const char *at = text->at + 1; good && at < text->end; at++) {
        bool escaped = *at == '\\' && at[1] == '"'; /* or the string ends in a backslash */
        const char *after = at + 1 + escaped;
        if (*at != '"' && !escaped) {
            good = put(text->copy, *at);
            if (*at == '\\') good = good && put(text->copy, *++at);
        } else if (text->wants_key ? *fs_scan_behind_space(after) == ':' : can_follow(text, after)) {
            text->at = after;
            return (!escaped || (put(text->copy, '\\') && put(text->copy, '\\'))) && put(text->copy, '"') ? FS_SCAN_GOOD
                                                                                                          : FS_SCAN_BAD;
        } else {
            if (text->wants_key) return fs_scan_behind_space(after) < text->end ? FS_SCAN_BAD : FS_SCAN_MORE;
            if (of_event && is_key(fs_scan_behind_space(after), true)) return FS_SCAN_BAD; /* a comma is missing */
            good = put(text->copy, '\\') && put(text->copy, '"');
            at = after - 1;
        }
    }
    return good ? FS_SCAN_MORE : FS_SCAN_BAD;
}

/* Copy one character outside strings. */
static bool mend_other(mending *text)
{
    char c = *text->at++;
    if (c == '{' || c == '[') {
        if (text->depth == MOST_OPEN) return false;
        text->objects[++text->depth] = c == '{';
    }
    if (c == '}' || c == ']') {
        if (text->depth == 0 || text->objects[text->depth] != (c == '}')) return false;
        text->depth--;
    }
    if (c == '{' || c == ',') text->wants_key = text->objects[text->depth];
    if (c == ':') text->wants_key = false;
    return put(text->copy, c);
}

fs_scan_status fs_mend(fs_scan *scan, const char *key, bool whole, fs_mended *copy)
{
    mending text = {scan->at, scan->end, whole, scan->at == key, .objects = {true}, .copy = copy};
    if (text.end - text.at > FS_MEND_LONGEST) text.end = text.at + FS_MEND_LONGEST;
    fs_scan_status status = FS_SCAN_GOOD;
    copy->size = 0;
    for (const char *at = key; at < scan->at; at++)
        if (!put(copy, *at)) return FS_SCAN_BAD;
    do {
        if (*text.at == '"') status = mend_string(&text);
        else if (!mend_other(&text)) status = FS_SCAN_BAD;
    } while (status == FS_SCAN_GOOD && text.depth > 0 && text.at < text.end);
    if (status == FS_SCAN_GOOD && text.depth > 0) status = FS_SCAN_MORE;
    if (status == FS_SCAN_MORE && text.end < scan->end) status = FS_SCAN_BAD;
    if (status != FS_SCAN_GOOD) return status;
    memset(copy->text + copy->size, 0, FS_SCAN_PADDING);
    scan->at = text.at;
    return FS_SCAN_GOOD;
}
