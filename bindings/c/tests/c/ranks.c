/* Tests of ranks that are processes. tests/all/processes.rs starts one for each rank.
 *
 *     ranks RANK SIZE FOLDER       all checks; the last rank kills itself in the last one
 *     ranks RANK SIZE FOLDER env   joins with fwCommInitEnv; FOLDER is not used
 *
 * Rank 0 passes unique ids to the other ranks as files in FOLDER.
 */
#include "check.h"
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define COUNT 100000
#define THREADS 2

static int rank, size;
static const char *folder;
static int n_ids;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void pause_for(long milliseconds) {
    const struct timespec time = {0, 1000000 * milliseconds};
    nanosleep(&time, NULL);
}

/* Returns the next id. Rank 0 creates it, and the other ranks wait for its file. */
static fwUniqueId next_id(void) {
    char path[512], written[520];
    fwUniqueId id;
    CHECK(snprintf(path, sizeof path, "%s/id-%d", folder, n_ids++) < (int)sizeof path);
    snprintf(written, sizeof written, "%s.tmp", path);
    if (rank == 0) {
        OK(fwGetUniqueId(&id));
        FILE *file = fopen(written, "wb");
        CHECK(file != NULL && fwrite(&id, sizeof id, 1, file) == 1 && fclose(file) == 0);
        CHECK(rename(written, path) == 0);
        return id;
    }
    const double end = seconds() + 30;
    FILE *file;
    while ((file = fopen(path, "rb")) == NULL) {
        CHECK(seconds() < end);
        pause_for(5);
    }
    CHECK(fread(&id, sizeof id, 1, file) == 1 && fclose(file) == 0);
    return id;
}

static fwComm_t join(fwUniqueId id, double timeout) {
    fwConfig config = FW_CONFIG_INIT;
    fwComm_t comm;
    config.timeout = timeout;
    OK(fwCommInitRank(&comm, size, id, rank, &config));
    return comm;
}

/* Sums of known numbers over the ranks of comm, exact and within a bound. */
static void sums(fwComm_t comm) {
    int32_t own, n;
    OK(fwCommUserRank(comm, &own));
    OK(fwCommCount(comm, &n));
    float *send = malloc(COUNT * sizeof *send), *recv = malloc(COUNT * sizeof *recv);
    CHECK(send != NULL && recv != NULL);
    for (int i = 0; i < COUNT; i++) {
        send[i] = (float)(i % 1000 + own);
    }
    fwPlan plan;
    OK(fwPlanParse("abs:0.01", &plan));
    for (int lossy = 0; lossy < 2; lossy++) {
        OK(fwAllReduce(send, recv, COUNT, FW_FLOAT32, FW_SUM, lossy ? &plan : NULL, comm, NULL));
        for (int i = 0; i < COUNT; i++) {
            const float sum = (float)(n * (i % 1000) + n * (n - 1) / 2);
            const float off = recv[i] > sum ? recv[i] - sum : sum - recv[i];
            if (off > (lossy ? 0.011f * (float)n : 0)) {
                CHECK(!"a sum is wrong");
            }
        }
        fwReport report = FW_REPORT_INIT;
        OK(fwCommReport(comm, &report));
        CHECK(n == 1 || (report.n_messages > 0 && (report.wire_bytes < report.raw_bytes) == lossy));
    }
    free(send);
    free(recv);
}

/* Requests, groups, messages, splits. */
static void calls(fwComm_t comm) {
    double values[4][8], from[8];
    fwRequest_t requests[4];
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 8; j++) {
            values[i][j] = rank + i;
        }
        OK(fwAllReduce(values[i], values[i], 8, FW_FLOAT64, FW_MAX, NULL, comm, &requests[i]));
    }
    OK(fwWaitAll(4, requests));
    OK(fwGroupStart());
    for (int i = 0; i < 4; i++) {
        CHECK(values[i][7] == size - 1 + i);
        values[i][0] = i;
        OK(fwAllReduce(values[i], values[i], 1, FW_FLOAT64, FW_SUM, NULL, comm, NULL));
    }
    OK(fwGroupEnd());
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    const double mine[8] = {rank};
    OK(fwGroupStart());
    OK(fwSend(mine, 8, FW_FLOAT64, right, 5, NULL, comm, NULL));
    OK(fwRecv(from, 8, FW_FLOAT64, left, 5, comm, NULL));
    OK(fwGroupEnd());
    CHECK(values[3][0] == 3 * size && from[0] == left);
    fwComm_t part, other;
    int32_t n;
    OK(fwCommSplit(comm, rank % 2, -rank, &part, NULL));
    OK(fwCommSplit(comm, rank == 1 ? FW_SPLIT_NOCOLOR : 0, 0, &other, NULL));
    OK(fwCommCount(part, &n));
    CHECK(n == (size + 1 - rank % 2) / 2 && (other == NULL) == (rank == 1));
    sums(part);
    if (other != NULL) {
        sums(other);
        OK(fwCommDestroy(other));
    }
    OK(fwCommDestroy(part));
}

/* A wrong or used id, or another number of ranks, is an error and does not disturb other ranks. */
static void strangers(void) {
    fwUniqueId id = next_id(), wrong = id;
    fwComm_t comm, none;
    /* A wrong digit of the secret. */
    wrong.internal[30] = wrong.internal[30] == '0' ? '1' : '0';
    if (rank == 1) {
        const double start = seconds();
        FAILS(FW_MISMATCH, fwCommInitRank(&none, size + 1, id, rank, NULL));
        FAILS(FW_PEER_LOST, fwCommInitRank(&none, size, wrong, rank, NULL));
        FAILS(FW_INVALID_ARGUMENT, fwCommInitRank(&none, size, id, 0, NULL));
        CHECK(none == NULL && seconds() - start < 20);
    }
    comm = join(id, 30);
    sums(comm);
    OK(fwBarrier(comm, NULL));
    FAILS(rank == 0 ? FW_INVALID_ARGUMENT : FW_PEER_LOST,
          fwCommInitRank(&none, size, id, rank, NULL));
    OK(fwCommDestroy(comm));
    /* Ranks with different settings. */
    id = next_id();
    setenv("FOLDWIRE_STREAMS", rank == 1 ? "2" : "1", 1);
    FAILS(FW_MISMATCH, fwCommInitRank(&none, size, id, rank, NULL));
    /* The same settings on all ranks. */
    id = next_id();
    setenv("FOLDWIRE_STREAMS", "2", 1);
    setenv("FOLDWIRE_ENCRYPT", "1", 1);
    comm = join(id, 30);
    sums(comm);
    OK(fwCommDestroy(comm));
    unsetenv("FOLDWIRE_STREAMS");
    unsetenv("FOLDWIRE_ENCRYPT");
    /* Rank 0 waits only until its deadline. */
    id = next_id();
    if (rank == 0) {
        fwConfig config = FW_CONFIG_INIT;
        config.deadline = 0.2;
        FAILS(FW_TIMEOUT, fwCommInitRank(&none, size, id, 0, &config));
    }
}

/* One of several ranks in a process. */
static void *one_of_several(void *argument) {
    const Rank *own = argument;
    sums(own->comm);
    OK(fwCommDestroy(own->comm));
    return NULL;
}

/* Several ranks in each process. */
static void mixed(void) {
    fwUniqueId id = next_id();
    Rank ranks[THREADS];
    pthread_t threads[THREADS];
    OK(fwGroupStart());
    for (int i = 0; i < THREADS; i++) {
        ranks[i].rank = THREADS * rank + i;
        OK(fwCommInitRank(&ranks[i].comm, THREADS * size, id, ranks[i].rank, NULL));
    }
    OK(fwGroupEnd());
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, one_of_several, &ranks[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

/* A process is killed: the others get an error, and shrink. */
static void one_dies(void) {
    fwComm_t comm = join(next_id(), 30), survivors;
    fwRequest_t request;
    int32_t n;
    /* Long enough that data is still sent to the killed process. */
    const size_t count = 4000000;
    float *values = calloc(count, sizeof *values);
    CHECK(values != NULL);
    sums(comm);
    OK(fwBarrier(comm, NULL));
    if (rank == size - 1) {
        printf("%d checks\n", n_checks);
        fflush(stdout);
        raise(SIGKILL);
    }
    const double start = seconds();
    pause_for(200);
    OK(fwAllReduce(values, values, count, FW_FLOAT32, FW_SUM, NULL, comm, &request));
    const fwResult result = fwWait(&request);
    CHECK(result == FW_PEER_LOST || result == FW_ABORTED);
    CHECK(seconds() - start < 15);
    FAILS(FW_POISONED, fwBarrier(comm, NULL));
    OK(fwCommShrink(comm, 10, &survivors));
    OK(fwCommCount(survivors, &n));
    CHECK(n == size - 1);
    sums(survivors);
    OK(fwCommDestroy(survivors));
    free(values);
}

int main(int argc, char **argv) {
    CHECK(argc >= 4);
    rank = atoi(argv[1]);
    size = atoi(argv[2]);
    folder = argv[3];
    fwComm_t comm;
    if (argc > 4) {
        OK(fwCommInitEnv(&comm, NULL));
        int32_t own, n;
        OK(fwCommUserRank(comm, &own));
        OK(fwCommCount(comm, &n));
        CHECK(own == rank && n == size);
    } else {
        comm = join(next_id(), 30);
        calls(comm);
    }
    sums(comm);
    OK(fwCommDestroy(comm));
    if (argc == 4) {
        strangers();
        mixed();
        one_dies();
    }
    printf("%d checks\n", n_checks);
    return 0;
}
