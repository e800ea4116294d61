/* Store's table: how much of the work is known, and from where. */
#include <math.h>

#include "python/roofline.h"
#include "python/store_parts.h"
#include "python/store_type.h"
#include "store/torch_signature.h"
#include "table/table.h"

static PyObject *share(double part, double whole)
{
    return PyFloat_FromDouble(whole > 0 ? part / whole : (double)NAN);
}

static PyObject *time_list(const fs_unmodelled *times, uint32_t count)
{
    PyObject *list = PyList_New(count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        const fs_unmodelled *entry = &times[i];
        PyObject *pair = Py_BuildValue("(Nd)", fs_text_object(entry->key), (double)entry->ns / 1000.0);
        if (pair == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, pair);
    }
    return list;
}

/* {name: (arguments as of a registered rule, expected)} */
static PyObject *misfits_of(const fs_store *store, const fs_table *table)
{
    PyObject *dict = PyDict_New();
    for (uint32_t i = 0; dict != NULL && i < table->misfit_count; i++) {
        const fs_misfit *misfit = &table->misfits[i];
        fs_torch_call call;
        fs_span bytes = fs_store_signature_bytes(store, misfit->signature);
        fs_torch_decode(bytes.bytes, bytes.size, &call);
        PyObject *name = fs_text_object(misfit->name);
        PyObject *value = Py_BuildValue("(Ns)", fs_torch_arguments_object(&call), misfit->expected);
        if (name == NULL || value == NULL || PyDict_SetItem(dict, name, value) < 0) Py_CLEAR(dict);
        Py_XDECREF(name);
        Py_XDECREF(value);
    }
    return dict;
}

/* The shares of the time whose work is known from each source. */
static PyObject *sources_of(const double ns[FS_SOURCE_COUNT], double whole)
{
    PyObject *dict = PyDict_New();
    for (int source = FS_SOURCE_NONE + 1; dict != NULL && source < FS_SOURCE_COUNT; source++) {
        PyObject *value = ns[source] > 0 ? share(ns[source], whole) : Py_NewRef(Py_None);
        if (value == NULL || (value != Py_None && PyDict_SetItemString(dict, fs_source_names[source], value) < 0))
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

/* What is known of the work, by time. */
PyObject *fs_coverage_object(const fs_store *store, const fs_table *table)
{
    return Py_BuildValue("{s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:d}", "bytes_source",
                         sources_of(table->bytes_ns, table->modelled_base_ns), "flops_source",
                         sources_of(table->flops_ns, table->modelled_base_ns), "bytes",
                         share(table->bytes_known_ns, table->modelled_base_ns), "flops",
                         share(table->flops_known_ns, table->modelled_base_ns), "unmodelled",
                         time_list(table->unmodelled, table->unmodelled_count), "estimated",
                         time_list(table->estimated, table->estimated_count), "estimated_flops",
                         time_list(table->flops_estimated, table->flops_estimated_count), "misfits",
                         misfits_of(store, table), "unseen_graphs", (double)table->unseen_graph_ns / 1000.0);
}
