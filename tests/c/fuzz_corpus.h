/* Run a fuzz target over the files of its corpora, without libFuzzer. */
#ifndef FS_TESTS_FUZZ_CORPUS_H
#define FS_TESTS_FUZZ_CORPUS_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Run the target on each file of the folder (a path relative to tests/), copied to a block of exactly its size. Return
 * the number of files. The target aborts on failure. */
static inline int fuzz_folder(const char *folder)
{
    enum { MOST_BYTES = 1 << 20 };
    char path[1024];
    snprintf(path, sizeof path, "%s", __FILE__);
    *strrchr(path, '/') = 0; /* tests/c */
    snprintf(strrchr(path, '/'), sizeof path / 2, "/%s", folder);
    DIR *entries = opendir(path);
    size_t length = strlen(path);
    int count = 0;
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path + length, sizeof path - length, "/%s", entry->d_name);
        FILE *file = fopen(path, "rb");
        char *bytes = malloc(MOST_BYTES);
        size_t size = file != NULL && bytes != NULL ? fread(bytes, 1, MOST_BYTES, file) : 0;
        uint8_t *exact = malloc(size ? size : 1);
        if (exact != NULL && size > 0) memcpy(exact, bytes, size);
        if (exact != NULL) LLVMFuzzerTestOneInput(exact, size);
        free(exact);
        free(bytes);
        if (file != NULL) fclose(file);
        count++;
    }
    if (entries != NULL) closedir(entries);
    return count;
}

#endif
