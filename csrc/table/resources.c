/* A signature is decoded once for each device: a program has few, and launches them a million times. */
#include "table/resources.h"

#include <math.h>

#include "base/saturate.h"
#include "store/signature.h"

static fs_launch_resources resources_of(const fs_store *store, int device, uint32_t signature)
{
    fs_launch launch;
    fs_launch_resources found = {.known_for = device + 1, .residency = fs_residency_unknown, .waves = NAN};
    if (signature == FS_NONE || !fs_launch_decode(fs_store_signature_bytes(store, signature).bytes, &launch))
        return found;
    if (launch.registers == 0) return found; /* no kernel has none: what its source did not record is unknown */
    fs_device_facts facts = fs_store_device(store, device);
    found.registers = launch.registers;
    found.shared = (int64_t)launch.static_shared + launch.dynamic_shared;
    found.residency = fs_occupancy_residency(&launch, &facts);
    double held = found.residency.blocks * (double)facts.sm_count;
    if (held > 0) found.waves = (double)fs_product_of_three(launch.grid) / held;
    return found;
}

void fs_resources_add(fs_resources *sums, fs_launch_resources *known, const fs_store *store, int device,
                      uint32_t signature, int64_t ns)
{
    if (known->known_for != device + 1) *known = resources_of(store, device, signature);
    double weight = ns > 0 ? (double)ns : 1; /* what takes no time is not nothing */
    if (known->registers > sums->registers) sums->registers = known->registers;
    if (known->shared > sums->shared) sums->shared = known->shared;
    if (isnan(known->waves)) return;
    sums->ns += weight;
    sums->occupancy += weight * known->residency.percent;
    sums->waves += weight * known->waves;
    sums->limited_ns[known->residency.limit] += weight;
}

void fs_resources_join(fs_resources *to, const fs_resources *from)
{
    if (from->registers > to->registers) to->registers = from->registers;
    if (from->shared > to->shared) to->shared = from->shared;
    to->ns += from->ns;
    to->occupancy += from->occupancy;
    to->waves += from->waves;
    for (int i = 0; i < FS_OCCUPANCY_LIMIT_COUNT; i++) to->limited_ns[i] += from->limited_ns[i];
}

double fs_resources_mean(const fs_resources *sums, double sum)
{
    return sums->ns > 0 ? sum / sums->ns : (double)NAN;
}

fs_occupancy_limit fs_resources_limit(const fs_resources *sums)
{
    fs_occupancy_limit most = FS_OCCUPANCY_LIMIT_NONE;
    for (int i = 0; i < FS_OCCUPANCY_LIMIT_COUNT; i++)
        if (sums->limited_ns[i] > sums->limited_ns[most]) most = (fs_occupancy_limit)i;
    return most;
}
