/* Tying kernels to schedules. Programs of fusions, library calls, copies, loops and branches are executed here, which
 * gives the works and the slot of each; the alignment must find the slots from the names alone. */
#include "tests/c/check.h"
#include "work/hlo/align.h"

typedef enum { KERNEL, LIBRARY, COPY, MOVER, TRANSFER, LOOP, END, EITHER, OR } what; /* the first: fs_slot_kind */

/* name: of the instruction; shared: deduplicated_name; kernel: that it launches, of a library or a copy `times` ones.
 * Of a loop: `times` iterations. */
typedef struct {
    what is;
    const char *name, *shared, *kernel;
    int times;
    bool fills; /* a library's first work is a fill */
} item;

enum { MOST_WORKS = 1 << 15 };

typedef struct {
    fs_schedules schedules;
    fs_aligned_work works[MOST_WORKS];
    struct {
        uint32_t slot;
        bool begins, starts; /* an execution of an instruction, of a module */
    } truth[MOST_WORKS];
    uint32_t count;
    fs_tie ties[MOST_WORKS];
} trial;

static trial *now; /* of this test */

static void begin(void)
{
    now = calloc(1, sizeof *now);
}

static void end(void)
{
    fs_schedules_clear(&now->schedules);
    free(now);
}

static void begin_again(void)
{
    end();
    begin();
}

__attribute__((constructor)) static void begin_each_test(void)
{
    before_each = begin;
    after_each = end;
}

static void add_module(const item *items)
{
    fs_error err;
    CHECK_OK(fs_schedules_begin(&now->schedules, &err));
    bool loops[16];
    int depth = 0;
    for (uint32_t i = 0; items[i].name != NULL; i++) {
        const item *one = &items[i];
        switch (one->is) {
        case LOOP:
            CHECK_OK(fs_schedules_open_loop(&now->schedules, (uint32_t)one->times, &err));
            loops[depth++] = true;
            break;
        case EITHER:
            now->schedules.branches++;
            loops[depth++] = false;
            break;
        case OR:
            break;
        case END:
            if (loops[--depth]) fs_schedules_close_loop(&now->schedules);
            else now->schedules.branches--;
            break;
        default:
            CHECK_OK(fs_schedules_add(&now->schedules, i, (fs_slot_kind)one->is, FS_FAMILY_ANY, one->name, one->shared,
                                      &err));
        }
    }
}

static void emit(const char *name, int kind, uint32_t slot, bool begins)
{
    fs_aligned_work *work = &now->works[now->count];
    *work = name != NULL ? fs_schedules_kernel(&now->schedules, name)
                         : (fs_aligned_work){FS_NONE, (uint8_t)kind, FS_FAMILY_ANY, false, 0};
    now->truth[now->count].slot = slot;
    now->truth[now->count].begins = begins;
    now->truth[now->count++].starts = false;
}

/* Execute items up to their end. *slot: of the first; returns the index after the last. In a branch: `taken`. */
static uint32_t execute(const item *items, uint32_t at, uint32_t *slot, bool taken)
{
    for (; items[at].name != NULL; at++) {
        const item *one = &items[at];
        if (one->is == END || one->is == OR) return at;
        if (one->is == LOOP) {
            uint32_t first = *slot, end = at;
            for (int i = 0; i < one->times; i++) {
                *slot = first;
                end = execute(items, at + 1, slot, taken);
            }
            at = end;
        } else if (one->is == EITHER) {
            bool second = taken && random_below(2) == 0;
            at = execute(items, at + 1, slot, taken && !second);
            if (items[at].is == OR) at = execute(items, at + 1, slot, second);
        } else {
            if (taken && one->fills) emit(NULL, FS_WORK_FILLS, *slot, true);
            int kind = one->is == MOVER ? FS_SLOT_COPY : (int)one->is;
            for (int i = 0; taken && i < one->times; i++) emit(one->kernel, kind, *slot, i == 0 && !one->fills);
            ++*slot;
        }
    }
    return at;
}

static void run_module(const item *items, uint32_t module, int times)
{
    for (int i = 0; i < times; i++) {
        uint32_t slot = now->schedules.modules[module], first = now->count;
        execute(items, 0, &slot, true);
        if (now->count > first) now->truth[first].starts = true;
    }
}

static void align(void)
{
    fs_error err;
    CHECK_OK(fs_schedules_align(&now->schedules, now->works, now->count, now->ties, &err));
}

/* Align, and return the share of the works with the right slot, in thousandths. */
static int right(void)
{
    uint32_t found = 0;
    align();
    for (uint32_t i = 0; i < now->count; i++) found += now->ties[i].slot == now->truth[i].slot;
    return (int)(1000 * (uint64_t)found / now->count);
}

/* The beginnings that were found are those that were. */
static void check_beginnings(void)
{
    for (uint32_t i = 0; i < now->count; i++) {
        CHECK(now->ties[i].begins == now->truth[i].begins, "instruction at work %u", i);
        CHECK(now->ties[i].begins_module == now->truth[i].starts, "module at work %u", i);
    }
}

static void check_right(void)
{
    CHECK(right() == 1000);
    check_beginnings();
}

/* The only module runs so often. */
static void check_runs(const item *items, int times)
{
    add_module(items);
    run_module(items, 0, times);
    check_right();
}

/* Leave out works for which `keeps` is false. */
static void keep(bool (*keeps)(uint32_t index))
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < now->count; i++) {
        if (!keeps(i)) continue;
        now->works[kept] = now->works[i];
        now->truth[kept++] = now->truth[i];
    }
    now->count = kept;
}

static void swap_works(uint32_t a, uint32_t b)
{
    fs_aligned_work work = now->works[a];
    uint32_t slot = now->truth[a].slot;
    now->works[a] = now->works[b];
    now->truth[a].slot = now->truth[b].slot;
    now->works[b] = work;
    now->truth[b].slot = slot;
}

#define ITEMS(...) ((const item[]){__VA_ARGS__, {.name = NULL}})
#define FUSION(its_name) {KERNEL, its_name, NULL, its_name, 1, false}
#define SHARED(its_name, label, its_kernel) {KERNEL, its_name, label, its_kernel, 1, false}
#define CALL(its_name, its_kernel, count, fill) {LIBRARY, its_name, NULL, its_kernel, count, fill}
#define COPIED(its_name) {COPY, its_name, NULL, "memcpy128", 1, false}
#define MOVED(its_name) {MOVER, its_name, NULL, NULL, 1, false} /* compiled to a copy of the driver */
#define DUPLICATED(its_name) {COPY, its_name, NULL, NULL, 1, false}
#define CALLBACK(its_name) {TRANSFER, its_name, NULL, NULL, 2, false}
#define LOOPED(count) {LOOP, "while", NULL, NULL, count, false}
#define ONE_OF {EITHER, "conditional", NULL, NULL, 0, false}
#define OTHERWISE {OR, "or", NULL, NULL, 0, false}
#define ENDED {END, "end", NULL, NULL, 0, false}

static const item plain[] = {FUSION("gather"),
                             SHARED("norm_2", "norm_1", "norm_2"),
                             CALL("custom-call.1", "nvjet_NNT", 1, true),
                             SHARED("norm_1", "norm_1", "norm_2"),
                             CALL("custom-call.2", "nvjet_TNN", 1, false),
                             COPIED("copy.1"),
                             FUSION("gelu"),
                             SHARED("norm.3", "norm_1", "norm_2"),
                             CALL("custom-call.3", "nvjet_NNT", 1, false),
                             FUSION("loss"),
                             {.name = NULL}};

TEST(a_schedule_repeats)
{
    check_runs(plain, 50);
    CHECK(now->ties[0].proof == FS_TIE_BY_NAME);  /* gather */
    CHECK(now->ties[1].proof == FS_TIE_BY_ORDER); /* norm, one of three */
    CHECK(now->ties[2].proof == FS_TIE_BY_ORDER); /* the fill */
}

/* Loops within loops. */
TEST(loops_repeat)
{
    for (int times = 1; times < 8; times++) {
        const item *nested =
            ITEMS(FUSION("start"), LOOPED(times), FUSION("body_1"), CALL("call", "nvjet", 2, true), LOOPED(3),
                  COPIED("copy"), FUSION("inner"), ENDED, FUSION("counter"), ENDED, FUSION("last"));
        begin_again();
        check_runs(nested, 5);
    }
}

/* Iterations of a call of a library alone are executions, not further kernels of one. */
TEST(a_loop_of_one_call_repeats)
{
    const item *one = ITEMS(FUSION("start"), LOOPED(6), CALL("call", "nvjet", 1, false), ENDED, FUSION("last"));
    check_runs(one, 3);
}

static const item copying[] = {DUPLICATED("copy.1"),  DUPLICATED("copy.2"),      LOOPED(4),
                               MOVED("fusion-start"), FUSION("loop_add_fusion"), ENDED,
                               {.name = NULL}};

/* Copies before a loop are no iterations of it: the loop has run as often as it does. Nor do they belong to another
 * module, which is a copy alone. */
TEST(copies_before_a_loop_are_no_iterations)
{
    add_module(ITEMS(DUPLICATED("copy.1")));
    add_module(copying);
    run_module(copying, 1, 6);
    check_right();
}

/* Copies have sizes. The small one may be launched before the large one, which precedes it in the schedule. */
TEST(copies_have_sizes)
{
    enum { SMALL = 4, LARGE = 1 << 29 };
    for (int swapped = 0; swapped < 2; swapped++) {
        begin_again();
        add_module(ITEMS(DUPLICATED("copy.1")));
        add_module(copying);
        now->schedules.slots[0].bytes = now->schedules.slots[2].bytes = SMALL;
        now->schedules.slots[1].bytes = LARGE;
        for (int i = 0; i < 6; i++) {
            uint32_t first = now->count;
            run_module(copying, 1, 1);
            now->works[first].bytes = LARGE;
            now->works[first + 1].bytes = SMALL;
            if (swapped) swap_works(first, first + 1);
            for (uint32_t k = first + 2; k < now->count; k += 2) now->works[k].bytes = 1 << 14;
        }
        check_right();
    }
}

/* A copy is no kernel that computes, and one between host and device belongs to a callback, or to nothing. */
TEST(copies_belong_where_they_can_run)
{
    const item *called = ITEMS(FUSION("wrapped_sine"), CALLBACK("pure_callback.1"), FUSION("wrapped_tanh"));
    add_module(called);
    add_module(ITEMS(FUSION("wrapped_broadcast"))); /* it never ran */
    for (int i = 0; i < 5; i++) {
        run_module(called, 0, 1);
        emit(NULL, FS_SLOT_TRANSFER, FS_NONE, false);
        emit(NULL, FS_SLOT_COPY, FS_NONE, false);
    }
    CHECK(right() == 1000);
}

TEST(one_branch_runs)
{
    const item *branching = ITEMS(FUSION("start"), ONE_OF, FUSION("a"), CALL("call.1", "nvjet", 1, false), FUSION("b"),
                                  OTHERWISE, FUSION("c"), COPIED("copy"), ENDED, FUSION("last"));
    check_runs(branching, 60);
}

TEST(calls_launch_several_kernels)
{
    const item *calls = ITEMS(FUSION("a"), CALL("call.1", "nchwToNhwc", 3, false), FUSION("b"),
                              CALL("call.2", "cudnn_conv", 2, true), FUSION("c"), CALL("call.3", "gemv", 1, false));
    check_runs(calls, 20);
}

/* XLA found the kernels of three fusions equal, and tells of none. */
TEST(kernels_are_shared_silently)
{
    const item *shared = ITEMS(FUSION("a"), SHARED("wrapped_transpose", NULL, "wrapped_transpose"), FUSION("b"),
                               SHARED("wrapped_transpose.1", NULL, "wrapped_transpose"), FUSION("c"),
                               SHARED("wrapped_transpose.2", NULL, "wrapped_transpose"));
    check_runs(shared, 20);
    CHECK(now->ties[1].proof == FS_TIE_BY_ORDER);
}

static bool nine_of_ten(uint32_t index)
{
    (void)index;
    return random_below(10) > 0;
}

/* Without a tenth of the works, hardly any other one is misplaced. */
TEST(works_are_missing)
{
    add_module(plain);
    run_module(plain, 0, 300);
    keep(nine_of_ten);
    int share = right();
    CHECK(share >= 970, "%d of 1000", share);
}

static bool not_at_the_ends(uint32_t index)
{
    return index >= 4 && index + 3 < now->count;
}

TEST(the_recording_cuts_executions_off)
{
    add_module(plain);
    run_module(plain, 0, 3);
    keep(not_at_the_ends);
    CHECK(right() == 1000);
}

/* A second module runs after one, and within another one's execution. */
TEST(modules_interleave)
{
    const item *other = ITEMS(FUSION("x"), CALL("call", "nvjet", 1, false), FUSION("gather"), FUSION("y"), FUSION("z"));
    add_module(plain);
    add_module(other);
    for (int i = 0; i < 40; i++) {
        run_module(plain, 0, 1);
        uint32_t between = now->count;
        run_module(other, 1, 1);
        if (i % 2 == 0) continue;
        /* The other module's works come before the last four of the first one's. */
        for (uint32_t work = between; work < now->count; work++)
            for (uint32_t at = work; at > work - 4; at--) swap_works(at - 1, at);
    }
    int share = right();
    CHECK(share >= 990, "%d of 1000", share);
}

/* Kernels of two streams change places; names that one slot has are tied nevertheless. */
TEST(streams_change_the_order)
{
    const item *many = ITEMS(FUSION("a"), FUSION("b"), FUSION("c"), FUSION("d"), FUSION("e"), FUSION("f"));
    add_module(many);
    run_module(many, 0, 30);
    for (uint32_t i = 2; i + 1 < now->count; i += 6) swap_works(i, i + 1);
    CHECK(right() == 1000);
}

/* A kernel of the program that was timed alone, as autotuning does, belongs to no execution. */
TEST(what_runs_outside_stays_untied)
{
    add_module(plain);
    for (int i = 0; i < 40; i++) emit("gelu", 0, FS_NONE, false);
    for (int i = 0; i < 40; i++) emit("cutlass_gemm", 0, FS_NONE, false);
    uint32_t outside = now->count;
    run_module(plain, 0, 5);
    for (int i = 0; i < 9; i++) emit("an_unknown_kernel", 0, FS_NONE, false);
    align();
    uint32_t tied = 0;
    for (uint32_t i = 0; i < outside; i++) tied += now->ties[i].slot != FS_NONE;
    CHECK(tied <= 2, "%u of %u", tied, outside);
    for (uint32_t i = outside; i < now->count; i++)
        if (now->truth[i].slot != FS_NONE) CHECK(now->ties[i].slot == now->truth[i].slot, "work %u", i);
}

/* Time grows with the works, also where names repeat without end. */
TEST(repeating_names_end)
{
    item many[402] = {{.name = NULL}};
    for (int i = 0; i < 400; i++) many[i] = (item)SHARED(i % 2 ? "a" : "b", "c", "b");
    add_module(many);
    run_module(many, 0, 60);
    keep(nine_of_ten);
    align();
    uint32_t tied = 0;
    for (uint32_t i = 0; i < now->count; i++) tied += now->ties[i].slot != FS_NONE;
    CHECK(tied > now->count / 2);
}

/* Of many modules with the same names, that one ran whose other names were seen. */
TEST(a_module_is_known_by_all_of_its_names)
{
    enum { MODULES = 100, RAN = 70 };
    char names[MODULES][16];
    const item *ran = NULL;
    static item items[MODULES][5];
    for (int i = 0; i < MODULES; i++) {
        snprintf(names[i], sizeof names[i], "only_in_%d", i);
        const item own[] = {FUSION("a"), FUSION("b"), FUSION("c"), FUSION(names[i]), {.name = NULL}};
        memcpy(items[i], own, sizeof own);
        add_module(items[i]);
        if (i == RAN) ran = items[i];
    }
    run_module(ran, RAN, 20);
    check_right();
}
