/* The key is a kernel's name and launch, and its op is known only while all agree: an op that launched this kernel
 * alone, and the same op with the same arguments each time. The first contradiction makes the key unknown for good,
 * because a guess among ops would give the kernel the wrong work. */
#include "sources/graphs/elsewhere.h"

#include <string.h>

#include "base/interrupt.h"
#include "base/list.h"
#include "store/event.h"
#include "store/signature.h"

void fs_elsewhere_clear(fs_elsewhere *elsewhere)
{
    fs_intern_clear(&elsewhere->kernels);
    fs_free(elsewhere->ops);
}

typedef struct {
    uint32_t name, grid[3], block[3];
} kernel_key;

/* Return false if the grid is unknown. */
static bool key_of(const fs_store *store, uint32_t event, kernel_key *key)
{
    fs_launch launch;
    uint32_t signature = FS_EVENT_AT(store, event, signature);
    memset(key, 0, sizeof *key);
    if (signature == FS_NONE || !fs_launch_decode(fs_store_signature_bytes(store, signature).bytes, &launch))
        return false;
    if (launch.grid[0] == 0) return false;
    key->name = FS_EVENT_AT(store, event, name);
    memcpy(key->grid, launch.grid, sizeof key->grid);
    memcpy(key->block, launch.block, sizeof key->block);
    return key->name != FS_NONE;
}

static bool is_alike(const fs_store *store, uint32_t a, uint32_t b)
{
    return FS_EVENT_AT(store, a, name) == FS_EVENT_AT(store, b, name) &&
           FS_EVENT_AT(store, a, signature) == FS_EVENT_AT(store, b, signature);
}

static fs_status add_kernel(fs_elsewhere *elsewhere, const kernel_key *key, uint32_t op, fs_error *err)
{
    uint32_t id, count = elsewhere->kernels.count;
    FS_TRY(fs_intern_bytes(&elsewhere->kernels, key, sizeof *key, &id, err));
    FS_TRY(FS_LIST_ROOM(&elsewhere->ops, id, &elsewhere->capacity, 256, "ops of kernels", err));
    uint32_t *known = &elsewhere->ops[id];
    if (id >= count) *known = op;
    else if (*known != FS_NONE && (op == FS_NONE || !is_alike(elsewhere->store, *known, op))) *known = FS_NONE;
    return FS_OK;
}

fs_status fs_elsewhere_create(fs_elsewhere *elsewhere, const fs_store *store, const uint32_t *replayed, fs_error *err)
{
    uint32_t count = fs_store_count(store);
    bool any = false;
    elsewhere->store = store;
    for (uint32_t i = 0; i < count && !any; i++) any = replayed[i] != 0;
    if (!any) return FS_OK;
    uint8_t *launched = fs_calloc((size_t)count + 1, sizeof *launched); /* by op: number of its works, at most 2 */
    if (launched == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory for the ops of %u kernels", count);
    fs_status status = FS_OK;
    uint32_t at;
    for (uint32_t i = 0; i < count; i++) {
        const fs_chunk *chunk = fs_event_chunk(store, i, &at);
        if (!fs_event_kind_on_device[chunk->kind[at]] || chunk->launcher[at] >= count) continue;
        if (launched[chunk->launcher[at]] < 2) launched[chunk->launcher[at]]++;
    }
    for (uint32_t i = 0; status == FS_OK && i < count; i++) {
        kernel_key key;
        const fs_chunk *chunk = fs_event_chunk(store, i, &at);
        if (chunk->kind[at] != FS_EVENT_KERNEL || replayed[i] != 0 || !key_of(store, i, &key)) continue;
        uint32_t op = chunk->launcher[at];
        if (op >= count || FS_EVENT_AT(store, op, kind) != FS_EVENT_OP || launched[op] != 1) op = FS_NONE;
        status = add_kernel(elsewhere, &key, op, err);
    }
    fs_free(launched);
    return status;
}

uint32_t fs_elsewhere_find(const fs_elsewhere *elsewhere, uint32_t kernel)
{
    kernel_key key;
    if (elsewhere->kernels.count == 0 || FS_EVENT_AT(elsewhere->store, kernel, kind) != FS_EVENT_KERNEL) return FS_NONE;
    if (!key_of(elsewhere->store, kernel, &key)) return FS_NONE;
    uint32_t id = fs_intern_find(&elsewhere->kernels, &key, sizeof key);
    return id != FS_NONE ? elsewhere->ops[id] : FS_NONE;
}
