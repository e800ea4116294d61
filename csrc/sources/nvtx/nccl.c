/* Notes tell what was sent: a range of NCCL's domain without a note is still a call, whose size is unknown. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "sources/kineto/records.h"
#include "sources/nccl.h"
#include "sources/nvtx/nvtx.h"
#include "store/event.h"
#include "store/note.h"

static const char domain[] = "NCCL: ";

/* Return a field of a note that is an integer from 0 on; false if it has none. */
static bool take_field(const fs_note *note, const char *name, uint64_t *value)
{
    for (const char *at = note->fields, *end = at + note->fields_size; at < end;) {
        const char *text = at + strlen(at) + 1;
        if (strcmp(at, name) == 0 && text[0] == FS_NOTE_NUMBER && text[1] >= '0' && text[1] <= '9') {
            *value = strtoull(text + 1, NULL, 10);
            return true;
        }
        at = text + strlen(text) + 1;
    }
    return false;
}

static bool read_call(const fs_store *store, uint32_t index, fs_nccl_call *call)
{
    fs_event event;
    fs_note note = {0};
    uint64_t size, ranks;
    if (FS_EVENT_AT(store, index, kind) != FS_EVENT_RANGE) return false;
    fs_store_get(store, index, &event);
    if (event.device >= 0 || event.lane == FS_NONE || event.name == FS_NONE) return false;
    const char *name = fs_store_name_text(store, event.name);
    if (strncmp(name, domain, sizeof domain - 1) != 0) return false;
    name += sizeof domain - 1;
    *call = (fs_nccl_call){.lane = event.lane,
                           .event = index,
                           .size = FS_MISSING,
                           .kind = fs_nccl_kind((fs_span){name, (uint32_t)strlen(name), 0})};
    if (call->kind == FS_NCCL_NO_CALL) return false;
    if (event.signature == FS_NONE) return true;
    fs_span bytes = fs_store_signature_bytes(store, event.signature);
    if (!fs_note_decode(bytes.bytes, bytes.size, &note)) return true;
    call->known = take_field(&note, FS_NCCL_COMMUNICATOR_FIELD, &call->communicator);
    if (take_field(&note, FS_NCCL_SIZE_FIELD, &size) && size <= FS_MOST_AMOUNT) call->size = (int64_t)size;
    if (take_field(&note, FS_NCCL_RANKS_FIELD, &ranks) && ranks <= INT32_MAX) call->ranks = (int32_t)ranks;
    return true;
}

fs_status fs_nvtx_join_nccl(fs_store *store, fs_error *err)
{
    fs_nccl_call call, *calls = NULL;
    uint32_t count = 0, capacity = 0;
    fs_nccl_report report = {0};
    fs_status status = FS_OK;
    for (uint32_t i = 0; status == FS_OK && i < fs_store_count(store); i++) {
        if (!read_call(store, i, &call)) continue;
        status = FS_LIST_ROOM(&calls, count, &capacity, 64, err);
        if (status == FS_OK) calls[count++] = call;
    }
    if (status == FS_OK) status = fs_nccl_join(store, calls, count, &report, err);
    fs_free(calls);
    return status;
}
