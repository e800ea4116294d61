/* The samples of a track are ascending and disjoint, finite, and never end before they begin: what does not follow the
 * last one is counted and left out when it comes, so that readers need no checks. A name that is no metric of ours
 * still has a track, with metric -1. */
#include "store/samples.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/saturate.h"
#include "store/event.h"

const fs_metric_row fs_metrics[FS_METRIC_COUNT] = {
#define FS_METRIC(NAME, name, kind, unit, prose) {#name, unit, prose, FS_METRIC_##kind##_KIND},
#include "store/metrics.def"
#undef FS_METRIC
};

#define KIND_NAME(NAME, name, prose) #name,
const char *const fs_metric_kind_names[] = {FS_METRIC_KIND_LIST(KIND_NAME)};

static int metric_named(const char *name)
{
    for (int i = 0; i < FS_METRIC_COUNT; i++)
        if (strcmp(fs_metrics[i].name, name) == 0) return i;
    return -1;
}

static fs_status find_track(fs_store *store, int device, const char *metric, fs_counter_track **track, fs_error *err)
{
    fs_counter_tracks *all = fs_store_tracks(store);
    uint32_t name;
    FS_TRY(fs_store_name(store, metric, &name, err));
    for (uint32_t i = 0; i < all->count; i++) {
        *track = &all->tracks[i];
        if ((*track)->device == device && (*track)->name == name) return FS_OK;
    }
    FS_TRY(FS_LIST_ROOM(&all->tracks, all->count, &all->capacity, 16, err));
    *track = &all->tracks[all->count++];
    **track = (fs_counter_track){.device = device, .name = name, .metric = metric_named(metric)};
    return FS_OK;
}

static fs_status make_room(fs_counter_track *track, size_t more, fs_error *err)
{
    size_t wanted = track->count + more;
    if (wanted <= track->capacity) return FS_OK;
    if (wanted > UINT32_MAX / 2)
        return fs_fail(err, FS_OUT_OF_MEMORY, "%zu samples exceed what a track holds: count a shorter part", wanted);
    return FS_LIST_ROOM(&track->samples, wanted - 1, &track->capacity, 1, err);
}

fs_status fs_store_add_samples(fs_store *store, int device, const char *metric, const fs_sample *samples, size_t count,
                               size_t *dropped, fs_error *err)
{
    fs_counter_track *track = NULL;
    size_t left_out = 0;
    if (device < 0 || device >= FS_DEVICE_LIMIT)
        return fs_fail(err, FS_VALUE_ERROR, "devices are numbered 0 to %d, not %d", FS_DEVICE_LIMIT - 1, device);
    FS_TRY(find_track(store, device, metric, &track, err));
    FS_TRY(make_room(track, count, err));
    for (size_t i = 0; i < count; i++) {
        fs_sample sample = samples[i];
        bool follows = track->count == 0 || sample.start >= track->samples[track->count - 1].end;
        if (follows && sample.end >= sample.start && isfinite(sample.value)) track->samples[track->count++] = sample;
        else left_out++;
    }
    if (dropped != NULL) *dropped = left_out;
    return FS_OK;
}

static fs_status copy_track(fs_store *store, const fs_store *from, const fs_counter_track *track, int64_t shift,
                            fs_error *err)
{
    fs_sample *samples = fs_malloc(track->count * sizeof *samples);
    if (samples == NULL) return fs_no_memory(err);
    for (uint32_t i = 0; i < track->count; i++) {
        samples[i] = track->samples[i];
        samples[i].start = fs_add_saturated(samples[i].start, shift);
        samples[i].end = fs_add_saturated(samples[i].end, shift);
    }
    const char *name = fs_store_name_text(from, track->name);
    fs_status status = fs_store_add_samples(store, track->device, name, samples, track->count, NULL, err);
    fs_free(samples);
    return status;
}

fs_status fs_store_copy_samples(fs_store *store, const fs_store *from, int64_t shift, fs_error *err)
{
    for (uint32_t i = 0; i < fs_store_track_count(from); i++)
        FS_TRY(copy_track(store, from, fs_store_track(from, i), shift, err));
    return FS_OK;
}

uint32_t fs_store_track_count(const fs_store *store)
{
    return fs_store_tracks(store)->count;
}

const fs_counter_track *fs_store_track(const fs_store *store, uint32_t index)
{
    return &fs_store_tracks(store)->tracks[index];
}

const fs_counter_track *fs_store_track_of(const fs_store *store, int device, fs_metric metric)
{
    const fs_counter_tracks *all = fs_store_tracks(store);
    for (uint32_t i = 0; i < all->count; i++)
        if (all->tracks[i].device == device && all->tracks[i].metric == (int)metric) return &all->tracks[i];
    return NULL;
}

void fs_counter_tracks_clear(fs_counter_tracks *tracks)
{
    for (uint32_t i = 0; i < tracks->count; i++) fs_free(tracks->tracks[i].samples);
    fs_free(tracks->tracks);
    *tracks = (fs_counter_tracks){0};
}
