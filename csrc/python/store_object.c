/* A store is recorded into, changed or read by one at a time, each with or without the GIL. After a fork the child has
 * none of the parent's threads, so what they had begun no longer counts there. */
#include "python/store_object.h"

#include "base/fork.h"

PyTypeObject *fs_store_type;

fs_store_object *fs_store_object_create(void)
{
    fs_error err;
    fs_store_object *self = (fs_store_object *)fs_store_type->tp_alloc(fs_store_type, 0);
    if (self == NULL || fs_store_create(&self->store, &err) == FS_OK) return self;
    Py_DECREF(self);
    fs_raise(&err);
    return NULL;
}

bool fs_store_object_is_filled(const fs_store_object *self)
{
    return self->filled && self->generation == fs_fork_generation();
}

bool fs_store_object_may_change(const fs_store_object *self)
{
    bool changing = self->changing && self->generation == fs_fork_generation();
    bool read = self->readers > 0 && self->readers_generation == fs_fork_generation();
    if (!changing && !read) return true;
    return fs_refuse(PyExc_RuntimeError, changing
                                             ? "another thread is starting or stopping this profile"
                                             : "this profile is being read: nothing may change it until its table, "
                                               "trace or summary is made");
}

bool fs_store_object_is_stopped(const fs_store_object *self, const char *what)
{
    bool runs = fs_store_object_is_filled(self) || (self->changing && self->generation == fs_fork_generation());
    if (runs) PyErr_Format(PyExc_RuntimeError, "the profile is still running; stop it before asking for its %s", what);
    return !runs;
}

void fs_store_object_empty(fs_store_object *self)
{
    fs_store *store = NULL;
    if (fs_store_create(&store, NULL) != FS_OK) return;
    fs_store_destroy(self->store);
    self->store = store;
}
