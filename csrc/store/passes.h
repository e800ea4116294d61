/* Finds the passes of a program that marks no steps, by the repetition of what it launches.
 *
 *   launches   i i  | E L L L H | E L L L H x | E L L L H | t     a letter: a name
 *   marks             pass#0      pass#1        pass#2
 *
 * A launch is a piece of work of the device with most of them, in the order in which the host launched it; the works of
 * one API call, such as a replay of a graph, are one. Without device work, the ops that lie in no other op are the
 * launches, of the thread with most time in them. A pass begins with the op or the call that launches its first work,
 * and ends where the next one begins. One more than twice as long as usual, and the last one, end with the launch at
 * which a usual pass is complete.
 *
 * Only names decide. So equal layers with nothing between the last and the first one are passes; ten passes with an
 * evaluation after exactly each tenth are one; what may as well be the layers of a single pass is none. */
#ifndef FS_STORE_PASSES_H
#define FS_STORE_PASSES_H

#include "store/store.h"

/* Mark the passes of a store without steps: append an asynchronous step (store/event.h) for each, in order, named
 * "pass#0", "pass#1", … *count: how many; 0: there are steps, or no repetition, and the store is unchanged, as after a
 * failure. Nothing else may use the store. FS_OUT_OF_MEMORY; FS_INTERRUPTED. */
fs_status fs_passes_mark(fs_store *store, uint32_t *count, fs_error *err);

#endif
