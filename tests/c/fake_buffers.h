/* Requesting, filling and completing the fake CUPTI's buffers; part of fake_cupti.c. */
#ifndef FS_TESTS_FAKE_BUFFERS_H
#define FS_TESTS_FAKE_BUFFERS_H

typedef struct fake_job {
    struct fake_job *next;
    fs_cupti_complete complete;
    uint8_t *buffer;
    size_t size, used;
} fake_job;

static void *fake_hand_back(void *context)
{
    fake_job *job = context;
    job->complete(NULL, 0, job->buffer, job->size, job->used);
    free(job);
    return NULL;
}

/* Take the buffer that is being filled, or return NULL without one. The caller holds the lock. */
static fake_job *fake_take_buffer(void)
{
    if (fake.buffer == NULL) return NULL;
    fake_job *job = malloc(sizeof *job);
    if (job == NULL) abort();
    *job = (fake_job){NULL, fake.complete, fake.buffer, fake.size, fake.used};
    fake.buffer = NULL;
    fake.used = 0;
    fake.unfinished = false;
    fake.completed++;
    return job;
}

/* Complete a buffer. The caller must not hold the lock: the client may call CUPTI from its callback. */
static void fake_give(fake_job *job)
{
    if (job == NULL) return;
    if (!fake.uses_workers) {
        fake_hand_back(job);
        return;
    }
    pthread_mutex_lock(&fake.lock);
    if (fake.worker_count == FAKE_WORKERS) abort();
    if (pthread_create(&fake.workers[fake.worker_count++], NULL, fake_hand_back, job) != 0) abort();
    pthread_mutex_unlock(&fake.lock);
}

static void fake_join_workers(void)
{
    pthread_mutex_lock(&fake.lock);
    while (fake.worker_count > 0) {
        pthread_t worker = fake.workers[--fake.worker_count];
        pthread_mutex_unlock(&fake.lock);
        pthread_join(worker, NULL);
        pthread_mutex_lock(&fake.lock);
    }
    pthread_mutex_unlock(&fake.lock);
}

/* Request a buffer, holding the lock as CUPTI does: a call to CUPTI from the request callback would deadlock. */
static void fake_ask_for_buffer(void)
{
    size_t most = 0;
    fake.request(&fake.buffer, &fake.size, &most);
    fake.used = 0;
    fake.requested++;
    if (fake.buffer == NULL) fake.refused++;
    if ((uintptr_t)fake.buffer % 8 != 0) fake.misaligned++;
    for (size_t at = 0; fake.buffer != NULL && fake.zeroed && at < fake.size; at++)
        if (fake.buffer[at] != 0) fake.unclean++;
}

/* Write a record into the current buffer, or into a new one if it is full. */
static void fake_record(const void *record, size_t size, bool finished)
{
    pthread_mutex_lock(&fake.lock);
    while (fake.buffer != NULL && fake.used + size > fake.size) {
        fake_job *full = fake_take_buffer();
        if (fake.is_late) {
            full->next = fake.late;
            fake.late = full;
            continue;
        }
        pthread_mutex_unlock(&fake.lock);
        fake_give(full);
        pthread_mutex_lock(&fake.lock);
    }
    if (fake.buffer == NULL && fake.request != NULL) fake_ask_for_buffer();
    if (fake.buffer == NULL || size > fake.size) {
        fake.dropped++;
    } else {
        memcpy(fake.buffer + fake.used, record, size);
        fake.used += size;
        if (!finished) fake.unfinished = true;
    }
    pthread_mutex_unlock(&fake.lock);
}

/* Another client that registers its callbacks: it receives flopscope's buffers, and keeps them. */
static uint8_t *fake_kept[64];

static void fake_others_request(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = NULL;
    *size = *most = 0;
}

static void fake_others_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size, (void)valid;
    fake_kept[fake.other_buffers++ % 64] = buffer;
}

void fake_other_client_captures(void)
{
    fake.request = fake_others_request;
    fake.complete = fake_others_complete;
}

#endif
