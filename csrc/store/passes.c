/* An anchor is a run of 1, 2, 4, … launches whose names occur again. Its places cut the launches into segments, which
 * may be passes if most are alike: nearly all names of each, in any order, are those of a usual one, so some kernels
 * may change with sizes. Segments that are not alike, or longer than a log makes them, are odd.
 *
 * Layers repeat within a pass, with an odd one where a pass ends. So a longer repetition replaces a shorter one if it
 * explains its odd segments: there is about one for each of the longer ones, of which fewer are odd. Two equal passes
 * are never one, as there are no odd segments to explain. */
#include "store/passes.h"

#include <stdio.h>
#include <string.h>

#include "base/id_map.h"
#include "base/interrupt.h"
#include "base/sort.h"
#include "base/statistics.h"
#include "base/text.h"
#include "store/event.h"
#include "store/step_marks.h"

enum {
    LEAST_PASSES = 3,
    ALIKE_PCT = 80,     /* of the names of a segment */
    EXPLAINED_PCT = 60, /* of all launches: those of passes that are alike */
    MOST_TAIL_PCT = 20, /* of all launches: those after the last pass. The main part of a program is not at its begin */
    /* A log or a metric every now and then is part of a pass: */
    LOG_PCT = 5,         /* a log adds no more to the launches of a pass, */
    LOG_LAUNCHES = 3,    /* and no more launches than this */
    SAME_PCT = 10,       /* lengths of segments that differ by no more are of one repetition */
    LONGEST_ANCHOR = 32, /* launches */
    CUTS = 6,            /* of different lengths, by anchors of one length, that are looked at closely */
    SAMPLES = 63,        /* of a median; odd, so that it is one of them */
    WINDOW = 8,          /* launches at the start of a pass by which other starts are found */
    MOST_LAYERS = 96,    /* of a model */
    LAYER = 8,           /* launches; what is shorter must occur the more often, such as the start of a parameter */
    FEW = 4,             /* launches; fewer of them in less time are a loop over elements, of which advice tells */
    SHORT = 100000,      /* ns */
};

typedef struct {
    int64_t begin, end;        /* of the host's event */
    uint32_t from, name, lane; /* from: the host's event, or the work itself if its launch is unknown */
} launch;

/* The segments between the places of an anchor. */
typedef struct {
    const uint32_t *places;
    uint32_t count, length;       /* places; launches of a usual segment */
    uint32_t first, last, passes; /* the first and the last segment that is alike, and how many are */
    uint32_t odd, far;            /* segments of another length or not alike; of a length that no log explains */
    uint32_t head, tail;          /* launches before and after these that repeat as well */
    uint64_t regular, explained;  /* launches of segments whose length is usual; of those alike, of head and of tail */
} cut;

typedef struct {
    fs_store *store;
    fs_step_marks marks; /* none: for the launches */
    launch *launches;
    uint32_t count, symbol_count, class_count, stamp;
    uint64_t repeated;                            /* the most passes of a cut, times their length up to LAYER */
    uint32_t *symbols, *classes, *order, *firsts; /* by launch: its name; its anchor, or FS_NONE; launches by anchor */
    uint32_t *wanted, *places;                    /* by symbol: in the usual segment; of the best cut */
    uint64_t *left;                               /* by symbol: number of a segment, and how often it is wanted there */
    cut best;
} search;

/* Launches --------------------------------------------------------------------------------------------------------- */

/* Kernels of one launch of a graph may run in any order, so their names decide. */
FS_ORDER_BY(compare_launches, launch, begin, from, name)

/* Return the outermost op around an event or itself; or, if `any`, the outermost op, range or module; FS_NONE: none. */
static uint32_t outermost(const fs_store *store, uint32_t index, bool any)
{
    uint32_t found = FS_NONE, at;
    for (int depth = 0; depth < FS_MOST_ENCLOSING && index != FS_NONE; depth++) {
        const fs_chunk *chunk = fs_event_chunk(store, index, &at);
        const char *name = any && chunk->name[at] != FS_NONE ? fs_store_name_text(store, chunk->name[at]) : "";
        bool module = chunk->kind[at] == FS_EVENT_FRAME && fs_begins(name, "nn.Module: ");
        bool range = any && chunk->kind[at] == FS_EVENT_RANGE && !fs_begins(name, "ProfilerStep#"); /* unfinished */
        if (chunk->kind[at] == FS_EVENT_OP || module || range) found = index;
        index = chunk->parent[at] < index ? chunk->parent[at] : FS_NONE;
    }
    return found;
}

/* Make the launch that an event stands for; false: for none. */
static bool make_launch(const search *all, uint32_t index, bool on_device, launch *made)
{
    uint32_t at, place, from = index;
    const fs_chunk *chunk = fs_event_chunk(all->store, index, &at);
    if (on_device ? !fs_event_is_placed_work(chunk, at)
                  : chunk->kind[at] != FS_EVENT_OP || !fs_event_is_timed(chunk, at) || chunk->lane[at] == FS_NONE ||
                        outermost(all->store, index, false) != index)
        return false;
    if (on_device) from = fs_step_marks_launch(&all->marks, chunk, at);
    if (from >= fs_store_count(all->store) || FS_EVENT_AT(all->store, from, start) == FS_MISSING) from = index;
    const fs_chunk *host = fs_event_chunk(all->store, from, &place);
    *made = (launch){.begin = host->start[place], .end = fs_event_later_end(host, place), .from = from};
    made->name = chunk->name[at] != FS_NONE ? chunk->name[at] : fs_store_name_count(all->store);
    made->lane = on_device ? (uint32_t)fs_event_device(chunk, at) : chunk->lane[at];
    return true;
}

/* List the launches of the device with most of them, or of the thread with most time in them, in order. */
static fs_status list_launches(search *all, fs_error *err)
{
    bool on_device = false, sorted = true;
    uint32_t at, events = fs_store_count(all->store), found = 0, chosen = 0;
    int64_t *weights;
    for (uint32_t index = 0; index < events && !on_device; index++) {
        const fs_chunk *chunk = fs_event_chunk(all->store, index, &at);
        on_device = fs_event_is_placed_work(chunk, at);
    }
    all->marks.calls = &all->marks.own;
    if (on_device) FS_TRY(fs_api_calls_create(&all->marks.own, all->store, err));
    FS_TRY(FS_NEW(&all->launches, events, err));
    FS_TRY(FS_NEW_ZEROED(&weights, fs_store_lane_count(all->store) + (size_t)FS_DEVICE_LIMIT, err));
    for (uint32_t index = 0; index < events; index++) {
        launch *next = &all->launches[found];
        if (!make_launch(all, index, on_device, next)) continue;
        fs_add_to(&weights[next->lane], on_device ? 1 : fs_sub_saturated(next->end, next->begin));
        if (weights[next->lane] > weights[chosen]) chosen = next->lane;
        found++;
    }
    fs_free(weights);
    for (uint32_t i = 0; i < found; i++) {
        launch *next = &all->launches[all->count];
        if (all->launches[i].lane != chosen) continue;
        *next = all->launches[i];
        sorted = sorted && (all->count == 0 || compare_launches(next - 1, next) <= 0);
        all->count++;
    }
    FS_TRY(fs_sort(all->launches, sorted ? 0 : all->count, sizeof *all->launches, compare_launches, err));
    FS_TRY(FS_NEW(&all->symbols, all->count, err));
    for (uint32_t i = 0; i < all->count; i++) all->symbols[i] = all->launches[i].name;
    return FS_OK;
}

/* Segments --------------------------------------------------------------------------------------------------------- */

static bool is_most(uint64_t part, uint64_t all, uint32_t percent)
{
    return part * 100 >= all * percent;
}

/* Whether a length differs from the usual one by at most so many percent. */
static bool is_near(uint32_t length, uint32_t usual, uint32_t percent)
{
    return is_most(percent * (uint64_t)usual, length > usual ? length - usual : usual - length, 10000);
}

/* Whether two lengths of a segment are no more different than a log makes them. */
static bool is_close(uint32_t length, uint32_t usual)
{
    return is_near(length, usual, LOG_PCT) && length <= usual + LOG_LAUNCHES && usual <= length + LOG_LAUNCHES;
}

static uint32_t length_of(const cut *of, uint32_t segment)
{
    return of->places[segment + 1] - of->places[segment];
}

/* Whether a segment is like the usual one. */
static bool is_alike(search *all, const cut *of, uint32_t segment)
{
    uint32_t common = 0, length = length_of(of, segment), longer = length > of->length ? length : of->length;
    if (!is_near(length, of->length, 100 - ALIKE_PCT)) return false;
    uint64_t stamp = (uint64_t)++all->stamp << 32;
    for (uint32_t i = of->places[segment]; i < of->places[segment + 1]; i++) {
        uint64_t *left = &all->left[all->symbols[i]];
        if (*left < stamp) *left = stamp + all->wanted[all->symbols[i]];
        common += *left > stamp;
        *left -= *left > stamp;
    }
    return is_most(common, longer, ALIKE_PCT);
}

/* Return how many launches from `a` on, in direction `by`, repeat those from `b` on. */
static uint32_t extent(const search *all, int64_t a, int64_t b, int64_t by, uint32_t most)
{
    uint32_t same = 0, found = 0;
    for (uint32_t i = 0; i < most && a >= 0 && b >= 0 && a < all->count && b < all->count; i++, a += by, b += by) {
        same += all->symbols[a] == all->symbols[b];
        if (!is_most(same, i + (uint64_t)1, ALIKE_PCT)) break;
        if (all->symbols[a] == all->symbols[b]) found = i + 1;
    }
    return found;
}

/* Whether passes begin within one launch, op, range or module, of which they are parts then. */
static bool is_within(const search *all, const cut *of)
{
    uint32_t within = 0, most = of->last - of->first < SAMPLES ? of->last - of->first : SAMPLES;
    for (uint32_t i = 0; i < most; i++) {
        const uint32_t *place = &of->places[of->first + (uint64_t)i * (of->last - of->first) / most];
        uint32_t one = all->launches[place[0]].from, next = all->launches[place[1]].from;
        uint32_t around = outermost(all->store, one, true);
        within += one == next || (around != FS_NONE && around == outermost(all->store, next, true));
    }
    return 2 * within > most;
}

/* Compare the segments with a usual one, from the segment `from` on. Return whether they may be passes. */
static bool compare_segments(search *all, cut *of, uint32_t from)
{
    uint32_t distinct = 0, odd = 0, far = 0, usual = from;
    while (usual + 1 < of->count && length_of(of, usual) != of->length) usual++;
    if (usual + 1 >= of->count) return false;
    memset(all->wanted, 0, all->symbol_count * sizeof *all->wanted);
    for (uint32_t i = 0; i < of->length; i++) distinct += all->wanted[all->symbols[of->places[usual] + i]]++ == 0;
    of->explained = of->passes = 0;
    for (uint32_t i = 0; i + 1 < of->count; i++) {
        bool alike = is_alike(all, of, i);
        odd += !alike || length_of(of, i) != of->length;
        far += !alike || !is_close(length_of(of, i), of->length);
        if (!alike) continue;
        if (of->passes++ == 0) of->first = i, odd = far = 0;
        of->explained += length_of(of, i);
        of->last = i;
        of->odd = odd;
        of->far = far;
    }
    of->head =
        extent(all, of->places[of->first] - (int64_t)1, of->places[of->first + 1] - (int64_t)1, -1, of->length - 1);
    of->tail = extent(all, of->places[of->last + 1], of->places[of->last], 1, of->length);
    of->explained += of->head + of->tail;
    return distinct > 1 && of->passes + (of->head + of->tail >= of->length) >= LEAST_PASSES && !is_within(all, of) &&
           is_most(of->explained, all->count, EXPLAINED_PCT);
}

/* Whether the odd ones of shorter segments are the ends of longer ones. That a log makes a longer one odd does not
 * matter, but the least difference makes a shorter one odd: between its layers, a pass may do no more than embed. What
 * both explain must be about the same, or a few long stretches would resemble each other by chance. */
static bool explains(const cut *longer, const cut *shorter)
{
    return shorter->odd >= 2 && 2 * (uint64_t)shorter->odd + 1 >= longer->passes &&
           3 * (uint64_t)longer->far <= 2 * (uint64_t)shorter->odd && 4 * (uint64_t)longer->far <= longer->passes &&
           is_most(longer->explained, shorter->explained, 75);
}

/* Keep a cut if it is better than the best one. */
static void compete(search *all, cut *of)
{
    cut *best = &all->best;
    bool same = is_near(of->length, best->length, SAME_PCT), longer = of->length > best->length;
    uint64_t repeated = of->passes * (uint64_t)(of->length < LAYER ? of->length : LAYER);
    if (repeated > all->repeated) all->repeated = repeated;
    if (best->count > 0 && (same ? of->passes <= best->passes : longer ? !explains(of, best) : explains(best, of)))
        return;
    memcpy(all->places, of->places, of->count * sizeof *all->places);
    *best = *of;
    best->places = all->places;
}

/* Join each anchor and the one that begins where it ends, `length` launches later. */
static fs_status join_anchors(search *all, uint32_t length, fs_error *err)
{
    fs_status status = fs_interrupt_poll(err);
    fs_id_map pairs = {0};
    for (uint32_t i = 0; i < all->count && status == FS_OK; i++) {
        uint32_t class = all->classes[i], next = i + length < all->count ? all->classes[i + length] : FS_NONE;
        all->classes[i] = FS_NONE;
        if (class == FS_NONE || next == FS_NONE) continue;
        all->classes[i] = fs_id_map_get(&pairs, class, next);
        if (all->classes[i] == FS_NONE) status = fs_id_map_set(&pairs, class, next, all->classes[i] = pairs.count, err);
    }
    all->class_count = pairs.count;
    fs_id_map_clear(&pairs);
    return status;
}

/* List the launches of each anchor; a rare one is none any more. Return how many launches are listed. */
static uint32_t list_places(search *all)
{
    uint32_t *ends = all->firsts + 1, total = 0; /* by anchor: first the number of its places, then their begin */
    memset(all->firsts, 0, (all->class_count + (size_t)1) * sizeof *all->firsts);
    for (uint32_t i = 0; i < all->count; i++)
        if (all->classes[i] != FS_NONE) ends[all->classes[i]]++;
    for (uint32_t class = 0, places; class < all->class_count; class++, total += places) {
        places = ends[class] < LEAST_PASSES ? 0 : ends[class];
        ends[class] = places > 0 ? total : FS_NONE;
    }
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->classes[i] == FS_NONE) continue;
        if (ends[all->classes[i]] == FS_NONE) all->classes[i] = FS_NONE;
        else all->order[ends[all->classes[i]]++] = i;
    }
    for (uint32_t class = 0; class < all->class_count; class++)
        if (ends[class] == FS_NONE) ends[class] = all->firsts[class];
    return total;
}

/* Cut the launches at an anchor; false: its places are not regular. */
static bool cut_at(const search *all, uint32_t class, cut *of)
{
    int64_t samples[SAMPLES];
    uint64_t near = 0;
    uint32_t count = all->firsts[class + 1] - all->firsts[class], segments = count - 1;
    if (count < LEAST_PASSES) return false;
    *of = (cut){.places = all->order + all->firsts[class], .count = count};
    uint32_t taken = segments < SAMPLES ? segments - (segments % 2 == 0) : SAMPLES;
    for (uint32_t i = 0; i < taken; i++) samples[i] = length_of(of, (uint32_t)((uint64_t)i * segments / taken));
    of->length = (uint32_t)fs_median_of(samples, taken);
    for (uint32_t i = 0; i < segments; i++) {
        uint32_t length = length_of(of, i);
        near += is_near(length, of->length, 100 - ALIKE_PCT) ? length : 0;
        of->regular += is_close(length, of->length) ? length : 0;
    }
    return of->length > 1 && is_most(near + of->length, all->count, EXPLAINED_PCT);
}

/* Let the most regular cuts of different lengths compete. */
static void find_cuts(search *all)
{
    cut cuts[CUTS], of;
    uint32_t count = 0;
    for (uint32_t class = 0, place; class < all->class_count; class++) {
        if (!cut_at(all, class, &of)) continue;
        for (place = 0; place < count && !is_near(of.length, cuts[place].length, SAME_PCT);) place++;
        if (place == CUTS || (place < count && cuts[place].regular >= of.regular)) continue;
        count += place == count;
        cuts[place] = of;
    }
    for (uint32_t i = 0; i < count; i++)
        if (compare_segments(all, &cuts[i], cuts[i].count / 2) || compare_segments(all, &cuts[i], cuts[i].count / 4))
            compete(all, &cuts[i]);
}

/* Find the best cut. Each round takes anchors twice as long, which are rarer, as long as something may be explained. */
static fs_status find_best(search *all, fs_error *err)
{
    uint32_t **const arrays[] = {&all->classes, &all->order, &all->places, &all->firsts, &all->wanted};
    uint32_t most = all->class_count = all->symbol_count = fs_store_name_count(all->store) + 1;
    if (most < all->count) most = all->count;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) FS_TRY(FS_NEW(arrays[i], most + (size_t)2, err));
    FS_TRY(FS_NEW_ZEROED(&all->left, all->symbol_count, err));
    memcpy(all->classes, all->symbols, all->count * sizeof *all->classes);
    for (uint32_t length = 1; length <= LONGEST_ANCHOR && (all->best.count == 0 || all->best.odd > 0); length *= 2) {
        if (length > 1) FS_TRY(join_anchors(all, length / 2, err));
        if (list_places(all) < all->count / 4) break; /* hardly anything repeats */
        find_cuts(all);
    }
    return FS_OK;
}

/* Return the median time of the host between the first launch of a pass and the one before, if passes begin `before`
 * launches before their anchors. */
static double pause_at(const search *all, uint32_t before)
{
    int64_t samples[SAMPLES];
    for (uint32_t i = 0; i < SAMPLES; i++) {
        uint32_t segment =
            all->best.first + 1 + (uint32_t)((uint64_t)i * (all->best.last - all->best.first + 1) / SAMPLES);
        uint32_t place = all->best.places[segment], at = place > before ? place - before : 1;
        samples[i] = fs_sub_saturated(all->launches[at].begin, all->launches[at - 1].end);
    }
    return fs_median_of(samples, SAMPLES);
}

/* Return the place nearest to `at` where launches begin as at `like`, or else nearly so; FS_NONE if there is none. */
static uint32_t align(const search *all, int64_t at, uint32_t like)
{
    uint32_t window = all->best.length < WINDOW ? all->best.length : WINDOW;
    for (uint32_t missing = 0; missing <= window / 4; missing += window < 4 ? 1 : window / 4) {
        for (int64_t i = 0, by = 0; i <= 2 * (all->best.length * LOG_PCT / 100 + LOG_LAUNCHES);
             i++, by = -by + (by <= 0)) {
            uint32_t other = at + by < 0 || at + by + window > all->count ? missing + 1 : 0;
            for (uint32_t k = 0; k < window && other <= missing; k++)
                other += all->symbols[at + by + k] != all->symbols[like + k];
            if (other <= missing) return (uint32_t)(at + by);
        }
    }
    return FS_NONE;
}

/* List where passes start, and last where the last one ends. Return the number of passes.
 *
 * The first launch that repeats may be that of a pass, but also amid one whose begin was compiled or warmed up; the
 * last one that repeats may end a pass, or the recording. If they disagree, the host pauses longer between passes than
 * amid them. */
static uint32_t list_starts(const search *all, uint32_t *starts)
{
    const cut *of = &all->best;
    uint32_t count = 0, length = of->length, before = of->head, last = length_of(of, of->last);
    uint32_t by_end = of->tail < last ? last - of->tail : 0;
    bool agree = by_end <= before + LOG_LAUNCHES && before <= by_end + LOG_LAUNCHES;
    uint32_t around = agree ? 0 : LOG_LAUNCHES, from = by_end > around ? by_end - around : 0;
    double longest = pause_at(all, before) * (agree ? 1 : 2);
    for (uint32_t i = from; i <= by_end + around; i++)
        if (pause_at(all, i) > longest) longest = pause_at(all, before = i);
    uint32_t like = of->places[of->last + 1] - before;
    for (uint32_t i = of->first; i <= of->last + 2; i++) {
        uint32_t start = all->count, next;
        if (i <= of->last + 1) {
            if (of->places[i] < before) continue;
            start = align(all, of->places[i] - before, like);
            if (start == FS_NONE) start = of->places[i] - before;
            if (count == 0 && all->symbols[start] != all->symbols[like]) continue; /* it began in another way */
            while (start > 0 && all->launches[start - 1].from == all->launches[start].from) start--;
        }
        while (count > 0 && (next = align(all, (int64_t)starts[count - 1] + length, like)) != FS_NONE) {
            if (next <= starts[count - 1] || next + length / 2 > start) break;
            starts[count++] = next; /* a pass without the anchor, or one after the last anchor */
        }
        if (i <= of->last + 1 && (count == 0 || start > starts[count - 1] + length / 2)) starts[count++] = start;
    }
    if (all->count - starts[count - 1] < length) return count - 1;
    starts[count] = starts[count - 1] + length;
    return count;
}

/* A few equal parts of a single pass, such as the layers of a model, look like passes: what comes before and after may
 * be the rest of that pass. So they must be too many for layers, or consist of such, or nothing may follow. */
static bool is_certain(const search *all, const cut *passes)
{
    uint32_t end = passes->places[passes->last + 1], first = passes->places[passes->first];
    int64_t lasted = fs_sub_saturated(all->launches[end - 1].end, all->launches[first].begin);
    if (passes->length < FEW && lasted / (passes->last - passes->first + 1) < SHORT) return false;
    return passes->passes >= LEAST_PASSES && is_most(end, all->count, 100 - MOST_TAIL_PCT) &&
           (all->repeated > MOST_LAYERS * LAYER || is_close(passes->length + all->count - end, passes->length));
}

/* Return when the host began a launch: with its outermost op, if nothing was launched in it before. */
static int64_t begin_of(const search *all, uint32_t at)
{
    uint32_t op = outermost(all->store, all->launches[at].from, false);
    int64_t begin = op != FS_NONE ? FS_EVENT_AT(all->store, op, start) : FS_MISSING;
    return begin != FS_MISSING && (at == 0 || begin >= all->launches[at - 1].end) ? begin : all->launches[at].begin;
}

/* Append the marks; the store is as it was if there is no memory for them. */
static fs_status append_marks(search *all, const cut *of, uint32_t *count, fs_error *err)
{
    uint32_t marks = of->last - of->first + 1, index, *names = all->classes;
    char name[32];
    for (uint32_t i = 0; i < marks; i++) {
        snprintf(name, sizeof name, "pass#%u", i);
        FS_TRY(fs_store_name(all->store, name, &names[i], err));
    }
    FS_TRY(fs_store_reserve(all->store, marks, &index, err));
    for (uint32_t i = 0; i < marks; i++) {
        fs_event event = fs_event_missing;
        const uint32_t *place = of->places + of->first + i;
        bool longer = place[1] - place[0] > 2 * of->length;
        int64_t last = all->launches[longer ? place[0] + of->length - 1 : place[1] - 1].end;
        event.kind = FS_EVENT_STEP;
        event.name = names[i];
        event.start = begin_of(all, place[0]);
        event.duration = fs_sub_saturated(longer || i + 1 == marks ? last : begin_of(all, place[1]), event.start);
        fs_store_put(all->store, index + i, &event);
    }
    *count = marks;
    return FS_OK;
}

static fs_status find_and_mark(search *all, uint32_t *count, fs_error *err)
{
    FS_TRY(fs_step_marks_find(&all->marks, all->store, NULL, err));
    if (all->marks.count > 0) return FS_OK;
    FS_TRY(list_launches(all, err));
    FS_TRY(find_best(all, err));
    if (all->best.count == 0) return FS_OK;
    cut passes = {.places = all->order, .length = all->best.length, .count = list_starts(all, all->order) + 1};
    if (!compare_segments(all, &passes, passes.count / 2) && !compare_segments(all, &passes, 0)) return FS_OK;
    return is_certain(all, &passes) ? append_marks(all, &passes, count, err) : FS_OK;
}

fs_status fs_passes_mark(fs_store *store, uint32_t *count, fs_error *err)
{
    search all = {.store = store};
    *count = 0;
    fs_status status = find_and_mark(&all, count, err);
    void *const arrays[] = {all.launches, all.left,   all.symbols, all.classes,
                            all.order,    all.firsts, all.places,  all.wanted};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) fs_free(arrays[i]);
    fs_step_marks_clear(&all.marks);
    return status;
}
