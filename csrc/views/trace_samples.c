/* Hardware counters of a trace: the samples of a store as events. */
#include <string.h>

#include "base/interrupt.h"
#include "store/samples.h"
#include "views/chrome_trace.h"

static void put_point(fs_json *out, const fs_store *store, const fs_counter_track *track, uint64_t time,
                      const char *key)
{
    FS_JSON_LITERAL(out, "{\"ph\": \"C\", \"name\": ");
    fs_json_string(out, fs_store_name_text(store, track->name));
    FS_JSON_LITERAL(out, ", \"pid\": ");
    fs_json_integer(out, track->device);
    FS_JSON_LITERAL(out, ", \"ts\": ");
    fs_json_time(out, time);
    FS_JSON_LITERAL(out, ", \"args\": {\"");
    fs_json_put(out, key, strlen(key));
    FS_JSON_LITERAL(out, "\": ");
}

static fs_status put_track(fs_json *out, const fs_store *store, const fs_counter_track *track, uint64_t shift,
                           fs_error *err)
{
    const fs_metric_row *metric = track->metric >= 0 ? &fs_metrics[track->metric] : NULL;
    bool amounts = metric != NULL && metric->kind == FS_METRIC_AMOUNT_KIND;
    const char *key = amounts ? "GB/s" : metric != NULL ? metric->unit : "value";
    for (uint32_t i = 0; i < track->count && out->status == FS_OK; i++) {
        const fs_sample *sample = &track->samples[i];
        int64_t length = sample->end - sample->start;
        FS_POLL(i, err);
        if (length <= 0) continue;
        put_point(out, store, track, (uint64_t)sample->start + shift, key);
        fs_json_decimal(out, amounts ? sample->value / (double)length : sample->value, 3);
        FS_JSON_LITERAL(out, "}},\n");
        if (i + 1 < track->count && track->samples[i + 1].start == sample->end) continue;
        put_point(out, store, track, (uint64_t)sample->end + shift, key);
        FS_JSON_LITERAL(out, "0, \"missing\": 1}},\n");
    }
    return out->status;
}

fs_status fs_trace_samples(fs_json *out, const fs_store *store, uint64_t shift, fs_error *err)
{
    for (uint32_t i = 0; i < fs_store_track_count(store); i++)
        FS_TRY(put_track(out, store, fs_store_track(store, i), shift, err));
    return FS_OK;
}
