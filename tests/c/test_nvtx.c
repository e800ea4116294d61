/* NVTX's tool, called as a library's implementation of NVTX calls it: through the tables that it fills in. What ranges,
 * domains and payloads of real libraries become is tested in tests/recording/test_nvtx.py. */
#include <pthread.h>
#include <unistd.h>

#include "sources/nvtx/abi.h"
#include "sources/nvtx/nvtx.h"
#include "store/note.h"
#include "tests/c/events.h"

int InitializeInjectionNvtx2(fs_nvtx_export export_table);
int InitializeInjectionNvtxExtension(const fs_nvtx_extension *extension);

/* A library's tables, with room for more functions than there are; where it has none, a null pointer. */
enum { CORE_SIZE = 16, SLOTS = 63 };
static fs_nvtx_function core[CORE_SIZE], core2[CORE_SIZE], *core_table[CORE_SIZE], *core2_table[CORE_SIZE];
static intptr_t slots[SLOTS];

static int module_table(int module, fs_nvtx_function ***table, unsigned *size)
{
    *table = module == FS_NVTX_CORE ? core_table : core2_table;
    *size = CORE_SIZE;
    return module == FS_NVTX_CORE || module == FS_NVTX_CORE2;
}

static const void *export_table(uint32_t table)
{
    static const fs_nvtx_callbacks callbacks = {sizeof callbacks, module_table};
    return table == FS_NVTX_CALLBACKS ? &callbacks : NULL;
}

static const void *export_nothing(uint32_t table)
{
    (void)table;
    return NULL;
}

/* NVTX's names, by their numbers in its headers. */
#define push_text ((int (*)(const char *))core[9])
#define push_wide_text ((int (*)(const wchar_t *))core[10])
#define pop_text ((int (*)(void))core[11])
#define start_text ((uint64_t (*)(const char *))core[5])
#define end_id ((void (*)(uint64_t))core[7])
#define push_in ((int (*)(fs_nvtx_handle, const fs_nvtx_attributes *))core2[4])
#define pop_in ((int (*)(fs_nvtx_handle))core2[5])
#define name_category_in ((void (*)(fs_nvtx_handle, uint32_t, const char *))core2[8])
#define register_in ((fs_nvtx_handle (*)(fs_nvtx_handle, const char *))core2[10])
#define create ((fs_nvtx_handle (*)(const char *))core2[12])
#define register_schema ((uint64_t (*)(fs_nvtx_handle, const fs_nvtx_schema_attributes *))slots[0])
#define pop_payload ((int (*)(fs_nvtx_handle, const fs_nvtx_data *, size_t))slots[4])

/* The library's domains and texts stay for the process. */
__attribute__((constructor)) static void keep_memory(void)
{
    keeps_memory = true;
}

static void begin(void)
{
    CHECK(fs_nvtx_begin(store));
}

static void range_of(const char *text)
{
    push_text(text);
    pop_text();
}

static void range_in(fs_nvtx_handle domain, const fs_nvtx_attributes *attributes)
{
    push_in(domain, attributes);
    pop_in(domain);
}

static bool note_at(uint32_t index, fs_note *note)
{
    uint32_t signature = event_at(index).signature;
    if (signature == FS_NONE) return false;
    fs_span bytes = fs_store_signature_bytes(store, signature);
    return fs_note_decode(bytes.bytes, bytes.size, note);
}

static fs_nvtx_attributes text_of(const char *text)
{
    return (fs_nvtx_attributes){.size = sizeof(fs_nvtx_attributes), .message_type = FS_NVTX_ASCII, .message = text};
}

TEST(a_library_without_tables_is_refused)
{
    CHECK(InitializeInjectionNvtx2(NULL) == 0);
    CHECK(InitializeInjectionNvtx2(export_nothing) == 0);
    CHECK(InitializeInjectionNvtxExtension(NULL) == 0);
}

/* All other tests use these tables. */
TEST(a_library_gets_the_functions_of_the_tool)
{
    for (int i = 1; i < CORE_SIZE; i++) {
        core_table[i] = &core[i];
        core2_table[i] = &core2[i];
    }
    CHECK(InitializeInjectionNvtx2(export_table) == 1);
    fs_nvtx_segment segment = {0, SLOTS, slots};
    CHECK(InitializeInjectionNvtxExtension(&(fs_nvtx_extension){3, sizeof(fs_nvtx_extension), FS_NVTX_PAYLOAD_MODULE, 0,
                                                                1, &segment, NULL, NULL}) == 1);
}

/* The place of a text may hold another one later. */
TEST(a_text_is_read_each_time)
{
    char text[] = "first";
    begin();
    range_of(text);
    memcpy(text, "other", sizeof text);
    range_of(text);
    fs_nvtx_end();
    CHECK(strcmp(name_at(0), "first") == 0 && strcmp(name_at(1), "other") == 0);
}

/* A range of one domain that ends while one of another is open inside nests in nothing. */
TEST(ranges_of_two_domains_may_overlap)
{
    fs_nvtx_handle one = create("one"), other = create("other");
    fs_nvtx_attributes first = text_of("a"), second = text_of("b"), third = text_of("c");
    begin();
    push_in(one, &first);
    push_in(other, &second);
    CHECK(pop_in(one) == 1);
    push_in(one, &third);
    CHECK(pop_in(one) == 1 && pop_in(other) == 0);
    range_of("after");
    CHECK(fs_nvtx_end().unmatched == 0);
    CHECK(event_at(0).lane == FS_NONE && event_at(1).lane != FS_NONE && event_at(2).lane == event_at(1).lane);
    CHECK(event_at(1).parent == 0 && event_at(2).parent == 1 && event_at(3).parent == FS_NONE);
    CHECK(event_at(1).start + event_at(1).duration >= event_at(0).start + event_at(0).duration);
}

static void *end_it(void *id)
{
    end_id(*(uint64_t *)id);
    CHECK(pop_text() == FS_NVTX_NO_DEPTH); /* what this thread has pushed: nothing */
    return NULL;
}

TEST(a_range_may_end_on_another_thread_but_is_popped_by_its_own)
{
    pthread_t thread;
    begin();
    uint64_t id = start_text("started"), nested = start_text("nested");
    push_text("pushed");
    CHECK(pthread_create(&thread, NULL, end_it, &id) == 0 && pthread_join(thread, NULL) == 0);
    pop_text();
    end_id(nested);
    end_id(nested); /* it has ended */
    end_id(id + 100);
    end_id(0);
    CHECK(fs_nvtx_end().unmatched == 4);
    CHECK(event_at(0).lane == FS_NONE && event_at(0).duration >= 0);
    CHECK(event_at(1).lane != FS_NONE && event_at(2).parent == 1 && event_at(2).lane == event_at(1).lane);
}

TEST(what_began_before_the_recording_is_no_part_of_it)
{
    CHECK(push_text("early") == FS_NVTX_NO_DEPTH);
    uint64_t early = start_text("early");
    begin();
    CHECK(pop_text() == FS_NVTX_NO_DEPTH);
    end_id(early);
    push_text("open");
    uint64_t open = start_text("started");
    fs_store *first = store, *second = NULL;
    CHECK_OK(fs_store_create(&second, NULL));
    CHECK(!fs_nvtx_begin(second)); /* one at a time */
    fs_nvtx_report report = fs_nvtx_move(second);
    CHECK(report.ranges == 2 && report.unmatched == 2);
    CHECK(pop_text() == FS_NVTX_NO_DEPTH);
    end_id(open);
    range_of("second");
    report = fs_nvtx_end();
    CHECK(report.ranges == 1 && report.unmatched == 2);
    CHECK(event_at(0).duration == FS_MISSING && fs_store_count(first) == 2);
    store = second;
    CHECK(fs_store_count(store) == 1 && strcmp(name_at(0), "second") == 0);
    range_of("late");
    CHECK(fs_store_count(store) == 1);
    fs_store_destroy(first);
}

/* As NCCL describes and sends what a collective does. */
typedef struct {
    uint64_t communicator;
    size_t bytes;
    int32_t root;
    float ratio;
    const void *name;
} message;

static const fs_nvtx_entry entries[] = {
    {.type = 18, .name = "NCCL communicator ID"},
    {.type = 22, .name = "Message size [bytes]", .offset = offsetof(message, bytes)},
    {.type = 5, .name = "Root", .offset = offsetof(message, root)},
    {.type = FS_NVTX_ENTRY_FLOAT, .name = "ratio", .offset = offsetof(message, ratio)},
    {.type = FS_NVTX_ENTRY_STRING_HANDLE, .name = "name", .offset = offsetof(message, name)},
    {.type = 75, .name = "a pointer to text", .offset = offsetof(message, name)},
    {.flags = 2, .type = 5, .name = "a pointer", .offset = offsetof(message, name)},
};

static const char *field_of(const fs_note *note, const char *name)
{
    for (const char *at = note->fields, *last = at + note->fields_size; at < last;) {
        const char *value = at + strlen(at) + 1;
        if (strcmp(at, name) == 0) return value;
        at = value + strlen(value) + 1;
    }
    return "";
}

TEST(structured_payloads_are_read_by_their_schema)
{
    enum { ID = (1 << 24) + 5 };
    fs_note note;
    fs_nvtx_handle domain = create("NCCL");
    fs_nvtx_schema_attributes schema = {.fields = FS_NVTX_SCHEMA_HAS_ENTRIES | FS_NVTX_SCHEMA_HAS_ID,
                                        .type = FS_NVTX_SCHEMA_STATIC,
                                        .entries = entries,
                                        .count = COUNT_OF(entries),
                                        .id = ID};
    CHECK(register_schema(domain, &schema) == ID);
    schema.fields = FS_NVTX_SCHEMA_HAS_ENTRIES;
    CHECK(register_schema(domain, &schema) >= FS_NVTX_DYNAMIC_ID);
    CHECK(register_schema(domain, NULL) == 0);
    schema.type = 3; /* a union */
    CHECK(register_schema(domain, &schema) == 0);
    message sent = {UINT64_MAX, 4096, -1, 0.25F, register_in(domain, "\"text\"")};
    fs_nvtx_data data[] = {{ID, sizeof sent, &sent}, {ID + 77, sizeof sent, &sent}, {ID, 12, &sent}, {ID, 99, NULL}};
    fs_nvtx_attributes attributes = text_of("ncclAllReduce");
    attributes.payload_type = FS_NVTX_STRUCTURED;
    attributes.payload_count = 1;
    attributes.payload.uint64 = (uint64_t)(uintptr_t)data;
    begin();
    range_in(domain, &attributes);
    attributes.payload.uint64 = (uint64_t)(uintptr_t)&data[2]; /* shorter than its schema: what is there */
    range_in(domain, &attributes);
    attributes = text_of("ncclCommInitRank"); /* NCCL tells these at the end */
    push_in(domain, &attributes);
    CHECK(pop_payload(domain, data, 4) == 0);
    push_in(domain, &attributes);
    CHECK(pop_payload(domain, NULL, 4) == 0);
    CHECK(fs_nvtx_end().unmatched == 0);
    for (uint32_t i = 0; i < 3; i += 2) {
        CHECK(note_at(i, &note) && strcmp(field_of(&note, "Message size [bytes]"), "n4096") == 0);
        CHECK(strcmp(field_of(&note, "NCCL communicator ID"), "n18446744073709551615") == 0);
        CHECK(strcmp(field_of(&note, "Root"), "n-1") == 0 && strcmp(field_of(&note, "ratio"), "n0.25") == 0);
        CHECK(strcmp(field_of(&note, "name"), "t\"text\"") == 0);
        CHECK(*field_of(&note, "a pointer to text") == 0 && *field_of(&note, "a pointer") == 0);
    }
    CHECK(note_at(1, &note) && *field_of(&note, "NCCL communicator ID") != 0);
    CHECK(*field_of(&note, "Message size [bytes]") == 0 && event_at(3).signature == FS_NONE);
}

TEST(wrong_arguments_are_no_fault)
{
    static char longest[1 << 16];
    memset(longest, 'x', sizeof longest - 1);
    fs_nvtx_attributes wrong[] = {text_of(NULL),    text_of("short"), text_of("type"),        text_of("handle"),
                                  text_of("value"), text_of(longest), text_of("bad \xff\xc3")};
    wrong[1].size = 8;
    wrong[2].message_type = 77;
    wrong[3].message_type = FS_NVTX_REGISTERED;
    wrong[3].message = (const void *)(uintptr_t)0x123456789;
    wrong[4].payload_type = 12345;
    wrong[4].payload.uint64 = 1;
    enum { COUNT = COUNT_OF(wrong) };
    begin();
    CHECK(push_in(NULL, NULL) == 0 && pop_in(NULL) == 0);
    for (int i = 0; i < COUNT; i++) {
        CHECK(push_in((const void *)(uintptr_t)0xdeadbeef, &wrong[i]) == 0);
        CHECK(pop_in((const void *)(uintptr_t)0xfeedbeef) == 0); /* neither is a domain */
    }
    CHECK(push_text(NULL) == 0 && pop_text() == 0 && push_wide_text(NULL) == 0 && pop_text() == 0);
    CHECK(create(NULL) == NULL);
    name_category_in(NULL, 1, NULL);
    fs_nvtx_report report = fs_nvtx_end();
    CHECK(report.ranges == COUNT + 3 && report.unmatched == 0);
    for (uint32_t i = 0; i < 5; i++) CHECK(strcmp(name_at(i), "<unnamed range>") == 0, "%s", name_at(i));
    CHECK(strcmp(name_at(5), "value") == 0 && strlen(name_at(6)) == 1024);
}

TEST(a_nest_that_is_too_deep_is_counted_and_ends_right)
{
    enum { DEEP = 1000, KEPT = 256 };
    begin();
    for (int i = 0; i < DEEP; i++) CHECK(push_text("deep") == (i < KEPT ? i : FS_NVTX_NO_DEPTH));
    for (int i = 0; i < DEEP; i++) pop_text();
    CHECK(pop_text() == FS_NVTX_NO_DEPTH);
    fs_nvtx_report report = fs_nvtx_end();
    CHECK(report.ranges == KEPT && report.lost == DEEP - KEPT && report.unmatched == 1);
    for (uint32_t i = 0; i < KEPT; i++) CHECK(event_at(i).duration >= 0 && event_at(i).lane == event_at(0).lane);
}

TEST(memory_may_run_out)
{
    char text[64];
    begin();
    fs_memory_fail_at(1);
    for (int i = 0; i < 3000; i++) { /* more than the memory that there is already */
        snprintf(text, sizeof text, "a long and different name, number %d", i);
        range_of(text);
    }
    fs_memory_fail_at(0);
    range_of("after");
    fs_nvtx_report report = fs_nvtx_end();
    CHECK(report.lost > 0 && report.ranges + report.lost == 3001 && report.unmatched == report.lost);
    CHECK(fs_store_count(store) == report.ranges);
}

static void *push_and_pop(void *unused)
{
    (void)unused;
    fs_nvtx_handle domain = create("threads");
    fs_nvtx_attributes attributes = text_of("range");
    for (int i = 0; i < 20000; i++) {
        push_in(domain, &attributes);
        range_of("inner");
        pop_in(domain);
    }
    return NULL;
}

/* Recordings begin and end while threads push and pop: each range is whole, and nothing uses a store that is gone. */
TEST(threads)
{
    enum { THREADS = 4, RECORDINGS = 50 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, push_and_pop, NULL) == 0);
    for (int i = 0; i < RECORDINGS; i++) {
        begin();
        usleep(500);
        fs_nvtx_report report = fs_nvtx_end();
        CHECK(report.ranges == fs_store_count(store));
        for (uint32_t index = 0; index < fs_store_count(store); index++) {
            bool inner = strcmp(name_at(index), "inner") == 0;
            CHECK(inner || strcmp(name_at(index), "threads: range") == 0);
            if (event_at(index).parent != FS_NONE)
                CHECK(inner && event_at(event_at(index).parent).lane == event_at(index).lane);
        }
        end_store();
        make_store();
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}
