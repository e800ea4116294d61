#include "table/names.h"

#include <string.h>

#include "base/memory.h"

/* torch/utils/data: enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__, enumerate(DataPipe)#…. */
static const char *const loading[] = {"DataLoader", "enumerate(DataPipe)"};

fs_status fs_names_create(fs_names *names, const fs_store *store, fs_error *err)
{
    size_t count = fs_store_name_count(store);
    *names = (fs_names){.store = store, .kernel_classes = fs_calloc(2 * count + 1, sizeof *names->kernel_classes)};
    if (names->kernel_classes == NULL) return fs_fail(err, FS_OUT_OF_MEMORY, "no memory to look at %zu names", count);
    names->loading = names->kernel_classes + count;
    return FS_OK;
}

void fs_names_clear(fs_names *names)
{
    fs_free(names->kernel_classes);
}

fs_kernel_class fs_names_kernel_class(fs_names *names, uint32_t name)
{
    if (name == FS_NONE) return FS_KERNEL_OTHER;
    if (names->kernel_classes[name] == 0) {
        names->kernel_classes[name] = (uint8_t)(1 + fs_kernel_class_of(fs_store_name_text(names->store, name)));
    }
    return (fs_kernel_class)(names->kernel_classes[name] - 1);
}

bool fs_names_load_data(fs_names *names, uint32_t name)
{
    if (name == FS_NONE) return false;
    if (names->loading[name] == 0) {
        const char *text = fs_store_name_text(names->store, name);
        names->loading[name] = 1;
        for (size_t i = 0; i < sizeof loading / sizeof *loading; i++) {
            if (strstr(text, loading[i]) != NULL) names->loading[name] = 2;
        }
    }
    return names->loading[name] == 2;
}
