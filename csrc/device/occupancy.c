/* Products saturate, because launches come from files and may hold any number: what overflows exceeds every limit.
 * Every limit is computed and the least one wins. A fact that is missing makes the result NaN, not a guess by the other
 * limits. */
#include "device/occupancy.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/saturate.h"

/* Registers are allocated to warps in units, from the quarter of the SM that the warp runs on. */
enum { REGISTER_UNIT = 256, QUARTERS = 4, MOST_REGISTERS = 256 };

/* Properties of an architecture that are absent from cudaDeviceProp. */
static const struct {
    int major, minor;        /* minor -1: all others of the major */
    int64_t blocks_per_sm;   /* used if the device's properties lack it */
    int64_t shared_unit;     /* allocation unit of shared memory in bytes */
    int64_t reserved_shared; /* bytes that the driver reserves in each block */
} architectures[] = {
    {7, 5, 16, 256, 0},     {7, -1, 32, 256, 0},     {8, 0, 32, 128, 1024},   {8, 9, 24, 128, 1024},
    {8, -1, 16, 128, 1024}, {9, -1, 32, 128, 1024},  {10, 1, 24, 128, 1024},  {10, -1, 32, 128, 1024},
    {11, 0, 24, 128, 1024}, {11, -1, 32, 128, 1024}, {12, -1, 24, 128, 1024},
};

/* The index of the row of the device's architecture, or -1. */
static int architecture_of(const fs_device_facts *facts)
{
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        bool same = architectures[i].major == facts->compute_major;
        if (same && (architectures[i].minor == facts->compute_minor || architectures[i].minor < 0)) return (int)i;
    }
    return -1;
}

static int64_t round_up(int64_t value, int64_t unit)
{
    return fs_mul_saturated(value / unit + (value % unit != 0), unit);
}

static int64_t blocks_by_registers(const fs_launch *launch, const fs_device_facts *facts, int64_t warps)
{
    int64_t per_warp = round_up(fs_mul_saturated(launch->registers, facts->warp_size), REGISTER_UNIT);
    if (per_warp == 0) return INT64_MAX;
    if (launch->registers > MOST_REGISTERS) return 0;
    /* A block is checked as if its warps were spread evenly over the quarters. */
    if (fs_mul_saturated(per_warp, round_up(warps, QUARTERS)) > facts->registers_per_block) return 0;
    return facts->registers_per_sm / QUARTERS / per_warp * QUARTERS / warps;
}

static int64_t blocks_by_shared(const fs_launch *launch, const fs_device_facts *facts, int architecture)
{
    int64_t reserved = architectures[architecture].reserved_shared;
    int64_t requested = (int64_t)launch->static_shared + launch->dynamic_shared;
    int64_t allocated = round_up(requested + reserved, architectures[architecture].shared_unit);
    if (allocated == 0) return INT64_MAX;
    if (allocated > fs_add_saturated(facts->shared_memory_per_block_optin, reserved)) return 0;
    return facts->shared_memory_per_sm / allocated;
}

static bool know_enough(const fs_launch *launch, const fs_device_facts *facts)
{
    return fs_product_of_three(launch->grid) > 0 && fs_product_of_three(launch->block) > 0 && facts->warp_size > 0 &&
           facts->max_threads_per_block > 0 && facts->max_threads_per_sm > 0 && facts->registers_per_block > 0 &&
           facts->registers_per_sm > 0 && facts->shared_memory_per_sm > 0 && facts->shared_memory_per_block_optin > 0;
}

const char *const fs_occupancy_limit_names[FS_OCCUPANCY_LIMIT_COUNT] = {
#define FS_OCCUPANCY_LIMIT_NAME(NAME, name) [FS_OCCUPANCY_LIMIT_##NAME] = name,
    FS_OCCUPANCY_LIMIT_LIST(FS_OCCUPANCY_LIMIT_NAME)
#undef FS_OCCUPANCY_LIMIT_NAME
};

const fs_residency fs_residency_unknown = {NAN, NAN, FS_OCCUPANCY_LIMIT_NONE};

fs_residency fs_occupancy_residency(const fs_launch *launch, const fs_device_facts *facts)
{
    int architecture = architecture_of(facts);
    if (architecture < 0 || !know_enough(launch, facts)) return fs_residency_unknown;
    int64_t threads = fs_product_of_three(launch->block), sm_warps = facts->max_threads_per_sm / facts->warp_size;
    int64_t warps = round_up(threads, facts->warp_size) / facts->warp_size;
    int64_t tracked = facts->max_blocks_per_sm;
    const int64_t limits[FS_OCCUPANCY_LIMIT_COUNT] = {
        [FS_OCCUPANCY_LIMIT_NONE] = INT64_MAX,
        [FS_OCCUPANCY_LIMIT_REGISTERS] = blocks_by_registers(launch, facts, warps),
        [FS_OCCUPANCY_LIMIT_SHARED_MEMORY] = blocks_by_shared(launch, facts, architecture),
        [FS_OCCUPANCY_LIMIT_BLOCK_SIZE] = threads > facts->max_threads_per_block ? 0 : sm_warps / warps,
        [FS_OCCUPANCY_LIMIT_BLOCKS] = tracked > 0 ? tracked : architectures[architecture].blocks_per_sm,
    };
    /* Of equal limits the first is named: with another block, the others may allow more. */
    fs_occupancy_limit least = FS_OCCUPANCY_LIMIT_NONE;
    for (int i = 0; i < FS_OCCUPANCY_LIMIT_COUNT; i++)
        if (limits[i] < limits[least]) least = (fs_occupancy_limit)i;
    /* Warps that the SM cannot hold since a block's do not divide its number are lost to the block size. */
    int64_t blocks = limits[least], held = fs_mul_saturated(blocks, warps);
    if (held == sm_warps) least = FS_OCCUPANCY_LIMIT_NONE;
    return (fs_residency){(double)blocks, 100 * (double)held / (double)sm_warps, least};
}

fs_occupancy fs_occupancy_estimate(const fs_launch *launch, const fs_device_facts *facts)
{
    int64_t blocks = fs_product_of_three(launch->grid), threads = fs_product_of_three(launch->block);
    fs_occupancy estimate = {NAN, NAN, NAN};
    if (blocks == 0 || threads == 0 || facts->sm_count <= 0) return estimate;
    float per_sm = (float)blocks / (float)facts->sm_count;
    estimate.blocks_per_sm = per_sm;
    if (facts->warp_size > 0) estimate.warps_per_sm = per_sm * (float)threads / (float)facts->warp_size;
    double held = fs_occupancy_residency(launch, facts).blocks;
    if (isnan(held)) return estimate;
    float resident = held < per_sm ? (float)held : per_sm;
    estimate.achieved_pct = (double)(resident * (float)threads / (float)facts->max_threads_per_sm) * 100;
    return estimate;
}
