/* Ranks that meet in a store of the program, and a group that takes in a newcomer. All ranks are
 * threads, but communicate over TCP. */
#include "check.h"

#define MAX_ENTRIES 256
#define COUNT 5000

/* A store in memory. */
typedef struct {
    pthread_mutex_t lock;
    int n;
    char *keys[MAX_ENTRIES];
    void *values[MAX_ENTRIES];
    size_t lengths[MAX_ENTRIES];
    int fails;
} Values;

static Values values = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *copy(const void *bytes, size_t n) {
    void *made = malloc(n + 1);
    CHECK(made != NULL);
    memcpy(made, bytes, n);
    return made;
}

static int find(const Values *in, const char *key) {
    for (int i = 0; i < in->n; i++) {
        if (strcmp(in->keys[i], key) == 0) {
            return i;
        }
    }
    return -1;
}

static int32_t set(void *context, const char *key, const void *value, size_t n_bytes) {
    Values *in = context;
    pthread_mutex_lock(&in->lock);
    int at = find(in, key);
    if (at < 0) {
        CHECK(in->n < MAX_ENTRIES);
        at = in->n++;
        in->keys[at] = copy(key, strlen(key) + 1);
    } else {
        free(in->values[at]);
    }
    in->values[at] = copy(value, n_bytes);
    in->lengths[at] = n_bytes;
    pthread_mutex_unlock(&in->lock);
    return in->fails ? 7 : 0;
}

static int32_t get(void *context, const char *key, void *value, size_t capacity, size_t *n_bytes) {
    Values *in = context;
    pthread_mutex_lock(&in->lock);
    const int at = find(in, key);
    if (at >= 0) {
        *n_bytes = in->lengths[at];
        memcpy(value, in->values[at], *n_bytes < capacity ? *n_bytes : capacity);
    }
    pthread_mutex_unlock(&in->lock);
    return at < 0;
}

/* May return before the limit. */
static int32_t wait_briefly(void *context, const char *key, double limit) {
    size_t n_bytes;
    CHECK(limit >= 0);
    sched_yield();
    return get(context, key, NULL, 0, &n_bytes);
}

static fwStore store_of(const char *job, int waits) {
    fwStore store = FW_STORE_INIT;
    store.context = &values;
    store.set = set;
    store.get = get;
    store.wait = waits ? wait_briefly : NULL;
    store.job = job;
    return store;
}

static void sums(fwComm_t comm) {
    static const double each = 0.5;
    int32_t rank, size;
    double data[COUNT];
    OK(fwCommUserRank(comm, &rank));
    OK(fwCommCount(comm, &size));
    for (int i = 0; i < COUNT; i++) {
        data[i] = each * i + rank;
    }
    OK(fwAllReduce(data, data, COUNT, FW_FLOAT64, FW_SUM, NULL, comm, NULL));
    for (int i = 0; i < COUNT; i++) {
        CHECK(data[i] == each * i * size + size * (size - 1) / 2);
    }
}

/* Ranks 0 to 2 meet. Rank 1 leaves, and the others admit a newcomer, which becomes rank 1. */
static void *member(void *argument) {
    const int rank = *(const int *)argument;
    fwConfig config = FW_CONFIG_INIT;
    fwStore store = store_of("job-1", rank % 2);
    fwAdmission admission = FW_ADMISSION_INIT;
    fwComm_t comm, grown;
    char facts[8] = {0};
    size_t n_bytes = 99;
    int32_t now, size;
    config.timeout = 30;
    if (rank < RANKS) {
        OK(fwCommInitStore(&comm, RANKS, &store, rank, &config));
        sums(comm);
        OK(fwCommFacts(comm, facts, sizeof facts, &n_bytes));
        CHECK(n_bytes == 0);
        if (rank == 1) {
            OK(fwCommDestroy(comm));
            return NULL;
        }
        admission.n_ranks = RANKS;
        admission.limit = 30;
        admission.facts = "step 7";
        admission.n_fact_bytes = 6;
        OK(fwCommAdmit(comm, &store, &admission, &grown));
        FAILS(FW_INVALID_HANDLE, fwCommCount(comm, &size));
    } else {
        OK(fwCommRejoin(&grown, &store, 30, &config));
    }
    OK(fwCommUserRank(grown, &now));
    OK(fwCommCount(grown, &size));
    CHECK(size == RANKS && now == (rank < RANKS ? rank : 1));
    OK(fwCommFacts(grown, facts, 4, &n_bytes));
    CHECK(n_bytes == 6 && memcmp(facts, "step\0\0\0", 8) == 0);
    sums(grown);
    OK(fwCommDestroy(grown));
    return NULL;
}

static void misuse(void) {
    static const char long_facts[(64 << 10) + 1];
    fwStore store = store_of("job-2", 0);
    fwComm_t comm, made = NULL;
    fwConfig config = FW_CONFIG_INIT;
    fwAdmission admission = FW_ADMISSION_INIT;
    config.timeout = 0.1;
    FAILS(FW_INVALID_ARGUMENT, fwCommInitStore(NULL, 1, &store, 0, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwCommInitStore(&comm, 1, NULL, 0, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwCommInitStore(&comm, 0, &store, 0, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwCommInitStore(&comm, 2, &store, 2, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwCommInitStore(&comm, 2, &store, -1, NULL));
    FAILS(FW_TIMEOUT, fwCommInitStore(&comm, 2, &store, 0, &config));
    FAILS(FW_TIMEOUT, fwCommRejoin(&comm, &store, 0.1, NULL));
    store.job = "two words";
    FAILS(FW_INVALID_ARGUMENT, fwCommInitStore(&comm, 2, &store, 0, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwCommRejoin(&comm, &store, 0.1, NULL));
    store.job = NULL;
    store.get = NULL;
    FAILS(FW_INVALID_ARGUMENT, fwCommRejoin(&comm, &store, 0.1, NULL));
    store.get = get;
    store.size = 8;
    FAILS(FW_INVALID_ARGUMENT, fwCommRejoin(&comm, &store, 0.1, NULL));
    store.size = sizeof store;
    OK(fwCommInitStore(&comm, 1, &store, 0, NULL));
    admission.reserved = 1;
    FAILS(FW_INVALID_ARGUMENT, fwCommAdmit(comm, &store, &admission, &made));
    admission.reserved = 0;
    admission.n_ranks = -1;
    FAILS(FW_INVALID_ARGUMENT, fwCommAdmit(comm, &store, &admission, &made));
    admission.n_ranks = 0;
    admission.n_fact_bytes = 1;
    FAILS(FW_INVALID_ARGUMENT, fwCommAdmit(comm, &store, &admission, &made));
    admission.facts = long_facts;
    admission.n_fact_bytes = sizeof long_facts;
    FAILS(FW_INVALID_ARGUMENT, fwCommAdmit(comm, &store, &admission, &made));
    admission.n_fact_bytes = 0;
    store.job = "two words";
    FAILS(FW_INVALID_ARGUMENT, fwCommAdmit(comm, &store, &admission, &made));
    store.job = NULL;
    FAILS(FW_INVALID_ARGUMENT, fwCommAdmit(comm, NULL, &admission, &made));
    FAILS(FW_INVALID_ARGUMENT, fwCommFacts(comm, NULL, 1, &admission.n_fact_bytes));
    CHECK(made == NULL);
    /* comm was usable all the time. */
    sums(comm);
    OK(fwCommAdmit(comm, &store, NULL, &made));
    sums(made);
    values.fails = 1;
    FAILS(FW_TRANSPORT_ERROR, fwCommAdmit(made, &store, NULL, &comm));
    FAILS(FW_TRANSPORT_ERROR, fwCommRejoin(&comm, &store, 1, NULL));
    values.fails = 0;
}

int main(void) {
    pthread_t threads[RANKS + 1];
    int ranks[RANKS + 1];
    for (int i = 0; i <= RANKS; i++) {
        ranks[i] = i;
        CHECK(pthread_create(&threads[i], NULL, member, &ranks[i]) == 0);
    }
    for (int i = 0; i <= RANKS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    misuse();
    for (int i = 0; i < values.n; i++) {
        free(values.keys[i]);
        free(values.values[i]);
    }
    printf("%d checks\n", n_checks);
    return 0;
}
