/* Status codes and the error record.
 *
 * Every function of the core that can fail returns an fs_status and takes an fs_error * as its last parameter. On
 * failure the fs_error holds the status and a one-sentence message with the invalid values and a remedy. The core never
 * prints, exits or calls Python. Only the binding turns a status into an exception.
 */
#ifndef FS_BASE_STATUS_H
#define FS_BASE_STATUS_H

/* X(name, Python exception raised by the binding, description) */
#define FS_STATUS_LIST(X)                                                 \
    X(OK, NULL, "success")                                                \
    X(VALUE_ERROR, "ValueError", "an argument has an invalid value")      \
    X(TYPE_ERROR, "TypeError", "an argument has an invalid type")         \
    X(OUT_OF_MEMORY, "MemoryError", "host or device memory is exhausted") \
    X(RUNTIME_ERROR, "RuntimeError", "a library or device failed")        \
    X(INTERRUPTED, "KeyboardInterrupt", "the caller interrupted the work")

/* Compilers warn where a call's status is ignored. */
#if defined(__clang__)
#define FS_MUST_CHECK __attribute__((warn_unused_result))
#elif defined(__GNUC__) && __GNUC__ >= 10
#define FS_MUST_CHECK [[nodiscard]]
#else
#define FS_MUST_CHECK
#endif

typedef enum FS_MUST_CHECK {
#define FS_STATUS_ENUM(name, exception, prose) FS_##name,
    FS_STATUS_LIST(FS_STATUS_ENUM)
#undef FS_STATUS_ENUM
        FS_STATUS_COUNT
} fs_status;

typedef struct {
    fs_status status;
    char message[1024];
} fs_error;

/* Fill in err, which may be NULL, and return status, so that `return fs_fail(err, FS_VALUE_ERROR, …)` is one
 * statement. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
fs_status fs_fail(fs_error *err, fs_status status, const char *format, ...);

/* Return the status of a part of the work, and copy the record of its failure to err, which may be NULL. */
fs_status fs_status_of(fs_status part, const fs_error *from, fs_error *err);

/* Return from the calling function if the expression fails. */
#define FS_TRY(expression)                                  \
    do {                                                    \
        fs_status fs_try_status_ = (expression);            \
        if (fs_try_status_ != FS_OK) return fs_try_status_; \
    } while (0)

/* Go to a cleanup label if the expression fails. `status` holds the failure. */
#define FS_TRY_GOTO(status, expression, label) \
    do {                                       \
        status = (expression);                 \
        if (status != FS_OK) goto label;       \
    } while (0)

/* Call a function whose failure changes nothing for the caller, or whose error record the caller reads instead. */
#define FS_IGNORE(expression) ((void)(expression))

/* clang's analyzer reads one source at a time and would take fs_fail for a call that may return FS_OK. */
#ifdef __clang_analyzer__
#define fs_fail(err, status, ...) (FS_IGNORE((fs_fail)(err, status, __VA_ARGS__)), (status))
#endif

#endif
