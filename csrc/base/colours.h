/* The colours of pages and plots, one row each. Bounds, parts of the accounting and categories name theirs here. */
#ifndef FS_BASE_COLOURS_H
#define FS_BASE_COLOURS_H

/* X(NAME, on white paper, on dark paper). The first FS_SERIES_COUNT, those of Okabe and Ito (https://jfly.uni-koeln.de/
 * color/), which people with colour blindness can distinguish, are the series of charts; the last of them stands for
 * what is unknown. */
#define FS_COLOUR_LIST(X)              \
    X(BLUE, "#0072b2", "#2f86bd")      \
    X(VERMILION, "#d55e00", "#ee7b2f") \
    X(GREEN, "#009e73", "#23b98f")     \
    X(PURPLE, "#cc79a7", "#dc94bb")    \
    X(ORANGE, "#e69f00", "#edb13a")    \
    X(SKY, "#56b4e9", "#7cc7f2")       \
    X(GREY, "#808080", "#8d959d")      \
    X(BROWN, "#8c510a", "#c4874a")     \
    X(YELLOW, "#d6c400", "#e5d94a")    \
    X(OLIVE, "#b9aa2e", "#b3a63c")     \
    X(RED, "#c44e52", "#e07a7d")       \
    X(VIOLET, "#8172b3", "#a99bd6")    \
    X(CYAN, "#64b5cd", "#7cc4d8")      \
    X(TAN, "#937860", "#b39a80")       \
    X(PALE, "#c9ced3", "#4a5058")      \
    X(SLATE, "#8b949e", "#8d959d")

typedef enum {
#define FS_COLOUR_ENUM(NAME, light, dark) FS_COLOUR_##NAME,
    FS_COLOUR_LIST(FS_COLOUR_ENUM)
#undef FS_COLOUR_ENUM
        FS_COLOUR_COUNT,
    FS_SERIES_COUNT = FS_COLOUR_GREY + 1
} fs_colour;

typedef struct {
    const char *light, *dark; /* as CSS writes them: "#0072b2" */
} fs_colour_row;

extern const fs_colour_row fs_colours[FS_COLOUR_COUNT];

#endif
