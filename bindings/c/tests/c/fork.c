/* Tests of fork: a child cannot use its parent's communicators, and never closes them. Run by
 * tests/all/programs.rs. */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

static void sums(fwComm_t comm) {
    double values[3] = {1, 2, 3};
    OK(fwAllReduce(values, values, 3, FW_FLOAT64, FW_SUM, NULL, comm, NULL));
    CHECK(values[0] == 2 && values[1] == 4 && values[2] == 6);
}

/* Every function refuses a parent's communicator and request in a child. */
static void has_nothing(fwComm_t comm, fwRequest_t request) {
    float x[8] = {0}, y[8];
    const size_t counts[2] = {4, 4};
    fwReport report = FW_REPORT_INIT;
    fwComm_t none;
    fwResult state;
    int32_t number;
    FAILS(FW_INVALID_HANDLE, fwCommCount(comm, &number));
    FAILS(FW_INVALID_HANDLE, fwCommUserRank(comm, &number));
    FAILS(FW_INVALID_HANDLE, fwCommReport(comm, &report));
    FAILS(FW_INVALID_HANDLE, fwCommGetAsyncError(comm, &state));
    FAILS(FW_INVALID_HANDLE, fwCommSplit(comm, 0, 0, &none, NULL));
    FAILS(FW_INVALID_HANDLE, fwCommShrink(comm, 1, &none));
    FAILS(FW_INVALID_HANDLE, fwAllReduce(x, y, 8, FW_FLOAT32, FW_SUM, NULL, comm, NULL));
    CHECK(strstr(fwGetLastError(), "fork") != NULL);
    FAILS(FW_INVALID_HANDLE, fwReduceScatterV(x, y, counts, FW_FLOAT32, FW_SUM, NULL, comm, NULL));
    FAILS(FW_INVALID_HANDLE, fwBroadcast(x, x, 8, FW_FLOAT32, 0, NULL, comm, NULL));
    FAILS(FW_INVALID_HANDLE, fwBarrier(comm, &request));
    FAILS(FW_INVALID_HANDLE, fwSend(x, 8, FW_FLOAT32, 1, 0, NULL, comm, NULL));
    FAILS(FW_INVALID_HANDLE, fwRecv(x, 8, FW_FLOAT32, 1, 0, comm, NULL));
    FAILS(FW_INVALID_HANDLE, fwSendRecv(x, 4, 1, y, 4, 1, FW_FLOAT32, 0, NULL, comm));
    OK(fwGroupStart());
    FAILS(FW_INVALID_HANDLE, fwBarrier(comm, NULL));
    FAILS(FW_INVALID_HANDLE, fwGroupEnd());
    FAILS(FW_INVALID_HANDLE, fwCommAbort(comm));
    FAILS(FW_INVALID_HANDLE, fwCommDestroy(comm));
}

static void has_no_request(fwRequest_t request) {
    fwRequest_t again = request;
    int32_t done;
    FAILS(FW_INVALID_HANDLE, fwTest(&again, &done));
    FAILS(FW_INVALID_HANDLE, fwWait(&again));
    FAILS(FW_INVALID_HANDLE, fwWaitAll(1, &again));
}

/* A child can create its own communicators. */
static void has_its_own(void) {
    fwComm_t comm;
    double value = 3;
    OK(fwCommInitAll(&comm, 1, NULL));
    OK(fwAllReduce(&value, &value, 1, FW_FLOAT64, FW_SUM, NULL, comm, NULL));
    CHECK(value == 3);
    OK(fwCommDestroy(comm));
}

static _Atomic int is_over;

/* Looks up handles all the time, so that a fork happens while their table is locked. */
static void *looks_up(void *comm) {
    int32_t size;
    while (!is_over) {
        OK(fwCommCount(comm, &size));
        CHECK(fwRedOpDestroy(1 << 20) == FW_INVALID_ARGUMENT);
    }
    return NULL;
}

/* Waits for a child, which must not hang. */
static void ends_well(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
    fwUniqueId id;
    fwComm_t comm;
    fwRequest_t request;
    fwConfig config = FW_CONFIG_INIT;
    double value = 1;
    config.timeout = 60;
    OK(fwGetUniqueId(&id));
    const pid_t peer = fork();
    CHECK(peer >= 0);
    const int rank = peer == 0;
    OK(fwCommInitRank(&comm, 2, id, rank, &config));
    sums(comm);
    for (int way = 0; way < 5 && rank == 0; way++) {
        OK(fwAllReduce(&value, &value, 1, FW_FLOAT64, FW_SUM, NULL, comm, &request));
        if (way == 3) {
            /* A group that is open when the process forks. */
            OK(fwGroupStart());
            OK(fwBarrier(comm, NULL));
        }
        const pid_t child = fork();
        if (child == 0) {
            alarm(30);
            if (way == 3) {
                FAILS(FW_INVALID_HANDLE, fwGroupEnd());
            }
            has_no_request(request);
            has_nothing(comm, NULL);
            has_its_own();
            if (way == 1) {
                _exit(0);
            }
            exit(0);
        }
        ends_well(child);
        if (way == 3) {
            OK(fwGroupEnd());
        }
        OK(fwWait(&request));
        CHECK(value == 2);
        value = 1;
        sums(comm);
    }
    for (int way = 0; way < 5 && rank == 1; way++) {
        OK(fwAllReduce(&value, &value, 1, FW_FLOAT64, FW_SUM, NULL, comm, NULL));
        value = 1;
        if (way == 3) {
            OK(fwBarrier(comm, NULL));
        }
        sums(comm);
    }
    if (rank == 1) {
        OK(fwCommDestroy(comm));
        exit(0);
    }
    ends_well(peer);
    pthread_t thread;
    OK(fwCommDestroy(comm));
    OK(fwCommInitAll(&comm, 1, NULL));
    CHECK(pthread_create(&thread, NULL, looks_up, comm) == 0);
    for (int i = 0; i < 100; i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(30);
            has_nothing(comm, NULL);
            has_its_own();
            exit(0);
        }
        ends_well(child);
    }
    is_over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    OK(fwCommDestroy(comm));
    printf("%d checks\n", n_checks);
    return 0;
}
