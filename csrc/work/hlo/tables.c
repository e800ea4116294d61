/* The tables at the head of a module's text: FileNames, FunctionNames, FileLocations and StackFrames. Each row begins
 * with its number, from 1.
 *
 * XLA prints the parent of a frame as its number plus 1, so that no frame has the parent 0; should a version print the
 * number, the outermost frames have the parent 0. */
#include "work/hlo/parser.h"

typedef fs_status row_taker(fs_hlo_parser *parser);

static fs_status take_file(fs_hlo_parser *parser)
{
    FS_TRY(FS_LIST_ROOM(&parser->files, parser->file_count, &parser->file_capacity, 16, parser->err));
    return fs_hlo_take_text(parser, &parser->files[parser->file_count++]);
}

static fs_status take_function(fs_hlo_parser *parser)
{
    FS_TRY(FS_LIST_ROOM(&parser->functions, parser->function_count, &parser->function_capacity, 16, parser->err));
    return fs_hlo_take_text(parser, &parser->functions[parser->function_count++]);
}

/* Take {name=1 other=2}: the values of these names, 0 where they are missing. */
static fs_status take_fields(fs_hlo_parser *parser, const char *const *names, int count, int64_t *values)
{
    for (int i = 0; i < count; i++) values[i] = 0;
    FS_TRY(fs_hlo_expect(parser, '{'));
    while (fs_hlo_peek(parser) != '}') {
        fs_hlo_word name = fs_hlo_take_name(parser);
        int field = 0;
        if (name.size == 0) return fs_hlo_wrong(parser, parser->at, "the name of a field is missing");
        FS_TRY(fs_hlo_expect(parser, '='));
        while (field < count && !fs_hlo_is(name, names[field])) field++;
        FS_TRY(field < count ? fs_hlo_take_integer(parser, &values[field]) : fs_hlo_skip_value(parser, true));
        fs_hlo_eat(parser, ',');
    }
    return fs_hlo_expect(parser, '}');
}

/* Return the row's text. */
static uint32_t text_at(const uint32_t *texts, uint32_t count, int64_t number)
{
    return number >= 1 && number <= count ? texts[number - 1] : FS_NONE;
}

static fs_status take_location(fs_hlo_parser *parser)
{
    static const char *const FIELDS[] = {"file_name_id", "function_name_id", "line"};
    int64_t values[3];
    FS_TRY(take_fields(parser, FIELDS, 3, values));
    FS_TRY(FS_LIST_ROOM(&parser->locations, parser->location_count, &parser->location_capacity, 16, parser->err));
    parser->locations[parser->location_count++] =
        (fs_hlo_frame){.file = text_at(parser->files, parser->file_count, values[0]),
                       .function = text_at(parser->functions, parser->function_count, values[1]),
                       .line = values[2] > 0 ? values[2] : 0};
    return FS_OK;
}

/* The parent is as printed until all are there. */
static fs_status take_frame(fs_hlo_parser *parser)
{
    static const char *const FIELDS[] = {"file_location_id", "parent_frame_id"};
    int64_t values[2];
    FS_TRY(take_fields(parser, FIELDS, 2, values));
    fs_hlo_frame frame = {.file = FS_NONE, .function = FS_NONE};
    if (values[0] >= 1 && values[0] <= parser->location_count) frame = parser->locations[values[0] - 1];
    frame.parent = values[1] >= 0 && values[1] < FS_NONE ? (uint32_t)values[1] : FS_NONE;
    return fs_hlo_put_frame(parser->module, frame, parser->err);
}

/* A parent precedes the frames that it called. */
static void link_frames(fs_hlo_module *module)
{
    uint32_t least = FS_NONE;
    for (uint32_t i = 0; i < module->frame_count; i++)
        if (module->frames[i].parent < least) least = module->frames[i].parent;
    uint32_t first = least == 0 ? 1 : 2; /* as the first frame is printed */
    for (uint32_t i = 0; i < module->frame_count; i++) {
        uint32_t printed = module->frames[i].parent;
        module->frames[i].parent = printed >= first && printed - first < i ? printed - first : FS_NONE;
    }
}

static fs_status take_rows(fs_hlo_parser *parser, row_taker *take)
{
    int64_t number, count = 0;
    while (fs_hlo_peek(parser) >= '0' && *parser->at <= '9') {
        const char *at = parser->at;
        FS_TRY(fs_hlo_take_integer(parser, &number));
        if (number != ++count) return fs_hlo_wrong(parser, at, "row %lld of a table is missing", (long long)count);
        FS_TRY(take(parser));
    }
    return FS_OK;
}

fs_status fs_hlo_take_tables(fs_hlo_parser *parser)
{
    static const struct {
        const char *name;
        row_taker *take;
    } TABLES[] = {{"FileNames", take_file},
                  {"FunctionNames", take_function},
                  {"FileLocations", take_location},
                  {"StackFrames", take_frame}};
    for (size_t i = 0; i < sizeof TABLES / sizeof *TABLES; i++) {
        fs_hlo_pass_blanks(parser);
        const char *at = parser->at;
        if (!fs_hlo_is(fs_hlo_take_name(parser), TABLES[i].name)) {
            parser->at = at;
            continue;
        }
        FS_TRY(take_rows(parser, TABLES[i].take));
    }
    parser->table_frames = parser->module->frame_count;
    link_frames(parser->module);
    return FS_OK;
}
