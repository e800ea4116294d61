/* Where the Python threads of this process are, read without the GIL by a thread that Python does not know.
 *
 *   thread state  ->  frame  ->  frame of its caller  ->  …      each with its code object and instruction
 *
 * To take the GIL would choose the instant: code gives it up between two instructions or in a call that waits, so the
 * time of an operator would be found on a later line. What is read may change meanwhile, so no pointer is followed:
 * memory is copied by the kernel, which fails where there is none, and a frame is believed only if its code is a code
 * object that the instruction lies in. */
#ifndef FS_PYTHON_STACK_READER_H
#define FS_PYTHON_STACK_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "store/stacks.h"

/* A code object and an instruction of it. All but `at` together tell one code object from another that later has its
 * address. */
typedef struct {
    const void *code, *lines, *file, *function;
    int32_t first, at; /* line of the function; offset of the instruction in bytes */
} fs_code_place;

typedef struct {
    uint64_t id;       /* of its state, which no other ever has */
    uint64_t number;   /* of the operating system; 0: it does not run yet */
    const void *frame; /* innermost; NULL: it runs no Python code */
} fs_python_thread;

/* Return NULL, or why stacks cannot be read in this Python or on this machine, as the end of a sentence. */
const char *fs_stack_reader_missing(void);

/* Read the threads of the main interpreter. Return their number; of more than `most`, the first. */
uint32_t fs_read_threads(fs_python_thread *threads, uint32_t most);

/* The CPU clock of a thread by its number. */
clockid_t fs_thread_clock(uint64_t number);

/* Read where the frames of a thread are, innermost first, at most FS_MOST_STACK_DEPTH. Return their number, -1 if they
 * changed while they were read. Not by several threads at once. */
int fs_read_stack(const fs_python_thread *thread, fs_code_place *places);

/* Write "train.py(12): step" for a place. Return false if its code object has changed. */
bool fs_read_place(const fs_code_place *place, char *text, size_t size);

#endif
