/* Tests of fwCommAbort and fwCommGetAsyncError in a watchdog thread, while another thread waits in
 * a call. Run by tests/all/programs.rs.
 *
 *     abort            ranks are threads
 *     abort processes  ranks are processes, and one of them is stopped, or destroys while it aborts
 */
#include "check.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void pause_for(long milliseconds) {
    const struct timespec time = {milliseconds / 1000, 1000000 * (milliseconds % 1000)};
    nanosleep(&time, NULL);
}

/* A rank that waits in a call: its communicator, result, time of return, and kind of call. */
typedef struct {
    fwComm_t comm;
    fwResult result;
    double at;
    int way;
} Waiting;

/* Kinds of calls in which a rank waits for a missing rank. */
enum { BLOCKING, BY_REQUEST, MESSAGE, SPLIT, WAYS };

/* Makes a call, and repeats it while another thread is in a call on the communicator. */
#define ENTERED(result, call)                                                                      \
    while (((result) = (call)) == FW_IN_USE) {                                                     \
        sched_yield();                                                                             \
    }

/* Waits for ranks that never call. */
static void *waits(void *argument) {
    Waiting *own = argument;
    fwRequest_t request;
    fwComm_t part;
    float values[100];
    switch (own->way) {
    case BLOCKING: ENTERED(own->result, fwBarrier(own->comm, NULL)) break;
    case BY_REQUEST:
        ENTERED(own->result, fwBarrier(own->comm, &request))
        ENTERED(own->result, fwWait(&request))
        CHECK(request == NULL);
        break;
    case MESSAGE:
        ENTERED(own->result, fwRecv(values, 100, FW_FLOAT32, 1, 5, own->comm, NULL))
        break;
    default: ENTERED(own->result, fwCommSplit(own->comm, 0, 0, &part, NULL))
    }
    own->at = seconds();
    return NULL;
}

/* Another rank of an aborted communicator. A call that has all its input may still succeed. */
static fwResult hears(fwComm_t comm, int way) {
    fwComm_t part;
    fwResult result =
        way == SPLIT ? fwCommSplit(comm, 0, 0, &part, NULL) : fwBarrier(comm, NULL);
    if (result == FW_SUCCESS) {
        result = fwBarrier(comm, NULL);
    }
    CHECK(result == FW_ABORTED);
    return result;
}

/* Waits until a thread is in a call. */
static void until_inside(fwComm_t comm) {
    fwReport report = FW_REPORT_INIT;
    while (fwCommReport(comm, &report) != FW_IN_USE) {
        sched_yield();
    }
    pause_for(100);
}

static void a_waiting_call_ends(int way) {
    fwComm_t comms[2];
    pthread_t thread;
    fwResult state = -1;
    OK(fwCommInitAll(comms, 2, NULL));
    Waiting own = {comms[0], FW_SUCCESS, 0, way};
    CHECK(pthread_create(&thread, NULL, waits, &own) == 0);
    until_inside(comms[0]);
    OK(fwCommGetAsyncError(comms[0], &state));
    CHECK(state == FW_SUCCESS);
    const double start = seconds();
    OK(fwCommAbort(comms[0]));
    CHECK(seconds() - start < 1);
    FAILS(FW_INVALID_HANDLE, fwCommAbort(comms[0]));
    FAILS(FW_INVALID_HANDLE, fwCommGetAsyncError(comms[0], &state));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(own.result == FW_ABORTED && own.at - start < 2);
    /* The other rank gets an error from any call. */
    hears(comms[1], way);
    CHECK(seconds() - start < 4);
    OK(fwCommGetAsyncError(comms[1], &state));
    CHECK(state == FW_ABORTED);
    OK(fwCommDestroy(comms[1]));
}

/* Aborts a communicator while no thread is in a call. The other rank waits, and gets an error. */
static void a_peer_hears(void) {
    fwComm_t comms[2];
    pthread_t thread;
    OK(fwCommInitAll(comms, 2, NULL));
    Waiting own = {comms[0], FW_SUCCESS, 0, BLOCKING};
    CHECK(pthread_create(&thread, NULL, waits, &own) == 0);
    until_inside(comms[0]);
    OK(fwCommAbort(comms[1]));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(own.result == FW_ABORTED || own.result == FW_PEER_LOST);
    OK(fwCommDestroy(comms[0]));
}

/* Requests that no thread waits for when their communicator is aborted. Those of others go on. */
static void requests_end(void) {
    fwComm_t comms[2], others[2];
    fwRequest_t requests[5];
    int32_t done = 0;
    OK(fwCommInitAll(comms, 2, NULL));
    OK(fwCommInitAll(others, 2, NULL));
    for (int i = 0; i < 3; i++) {
        OK(fwBarrier(comms[0], &requests[i]));
    }
    for (int i = 0; i < 2; i++) {
        OK(fwBarrier(others[i], &requests[3 + i]));
    }
    OK(fwCommAbort(comms[0]));
    FAILS(FW_ABORTED, fwTest(&requests[0], &done));
    CHECK(requests[0] == NULL && done == 1);
    FAILS(FW_ABORTED, fwWait(&requests[1]));
    CHECK(requests[1] == NULL);
    FAILS(FW_ABORTED, fwWaitAll(5, requests));
    for (int i = 0; i < 5; i++) {
        CHECK(requests[i] == NULL);
    }
    for (int i = 0; i < 2; i++) {
        OK(fwCommDestroy(others[i]));
    }
    OK(fwCommDestroy(comms[1]));
}

/* Both ranks of a communicator in one thread, as a group. */
static void *group_main(void *argument) {
    Waiting *own = argument;
    do {
        OK(fwGroupStart());
        OK(fwBarrier(own[0].comm, NULL));
        OK(fwBarrier(own[1].comm, NULL));
        own->result = fwGroupEnd();
    } while (own->result == FW_IN_USE);
    own->at = seconds();
    return NULL;
}

/* A thread waits for two communicators. One is aborted, and the call on the other one finishes when
 * its ranks call. */
static void others_go_on(void) {
    fwComm_t comms[2], others[4];
    pthread_t thread;
    OK(fwCommInitAll(comms, 2, NULL));
    OK(fwCommInitAll(others, 4, NULL));
    Waiting both[2] = {{comms[0], FW_SUCCESS, 0, BLOCKING}, {others[0], FW_SUCCESS, 0, BLOCKING}};
    CHECK(pthread_create(&thread, NULL, group_main, both) == 0);
    until_inside(comms[0]);
    OK(fwCommAbort(comms[0]));
    pause_for(300);
    hears(comms[1], BLOCKING);
    FAILS(FW_IN_USE, fwBarrier(others[0], NULL));
    OK(fwGroupStart());
    for (int i = 1; i < 4; i++) {
        OK(fwBarrier(others[i], NULL));
    }
    OK(fwGroupEnd());
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(both[0].result == FW_ABORTED);
    OK(fwGroupStart());
    for (int i = 0; i < 4; i++) {
        OK(fwBarrier(others[i], NULL));
    }
    OK(fwGroupEnd());
    for (int i = 0; i < 4; i++) {
        OK(fwCommDestroy(others[i]));
    }
    OK(fwCommDestroy(comms[1]));
}

/* Communicators from splits. One is aborted while its rank waits in a call. */
typedef struct {
    fwComm_t comm, part;
    int rank;
    fwResult result;
    _Atomic int *step;
} Splitting;

static void *splits(void *argument) {
    Splitting *own = argument;
    OK(fwCommSplit(own->comm, 0, own->rank, &own->part, NULL));
    ++*own->step;
    if (own->rank == 0) {
        ENTERED(own->result, fwBarrier(own->part, NULL))
    } else {
        while (*own->step < 3) {
            pause_for(1);
        }
        own->result = hears(own->part, BLOCKING);
    }
    double sum = 1;
    OK(fwAllReduce(&sum, &sum, 1, FW_FLOAT64, FW_SUM, NULL, own->comm, NULL));
    CHECK(sum == 2);
    OK(fwCommDestroy(own->comm));
    return NULL;
}

static void a_split_ends_alone(void) {
    fwComm_t comms[2];
    pthread_t threads[2];
    _Atomic int step = 0;
    OK(fwCommInitAll(comms, 2, NULL));
    Splitting ranks[2] = {{comms[0], NULL, 0, 0, &step}, {comms[1], NULL, 1, 0, &step}};
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, splits, &ranks[i]) == 0);
    }
    while (step < 2) {
        pause_for(1);
    }
    until_inside(ranks[0].part);
    OK(fwCommAbort(ranks[0].part));
    ++step;
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(ranks[i].result == FW_ABORTED);
    }
}

/* As many communicators as fwCommSplit allows. Destroying them frees their channels. */
static void communicators_have_room(void) {
    fwComm_t comm, parts[28];
    OK(fwCommInitAll(&comm, 1, NULL));
    for (int again = 0; again < 3; again++) {
        for (int i = 0; i < 27; i++) {
            OK(fwCommSplit(comm, 0, 0, &parts[i], NULL));
        }
        FAILS(FW_NO_ROOM, fwCommSplit(comm, 0, 0, &parts[27], NULL));
        OK(fwBarrier(comm, NULL));
        for (int i = 0; i < 27; i++) {
            OK(fwBarrier(parts[i], NULL));
            OK(fwCommDestroy(parts[i]));
        }
    }
    fwConfig config = FW_CONFIG_INIT;
    config.lanes = 9;
    FAILS(FW_INVALID_ARGUMENT, fwCommInitAll(&parts[0], 1, &config));
    OK(fwCommDestroy(comm));
}

/* Ranks of one color with different calls get FW_MISMATCH, and can go on. */
static void *differs(void *argument) {
    const Rank *own = argument;
    fwConfig config = FW_CONFIG_INIT;
    fwComm_t part;
    config.calls = own->rank == 0 ? 4 : 8;
    FAILS(FW_MISMATCH, fwCommSplit(own->comm, 0, 0, &part, &config));
    CHECK(part == NULL);
    OK(fwBarrier(own->comm, NULL));
    OK(fwCommDestroy(own->comm));
    return NULL;
}

static void splits_that_differ_make_none(void) {
    fwComm_t comms[2];
    pthread_t thread;
    OK(fwCommInitAll(comms, 2, NULL));
    Rank ranks[2] = {{comms[0], 0}, {comms[1], 1}};
    CHECK(pthread_create(&thread, NULL, differs, &ranks[1]) == 0);
    differs(&ranks[0]);
    CHECK(pthread_join(thread, NULL) == 0);
}

static atomic_int n_at_start;

/* Two threads meet here. */
static void meet(void) {
    const int turn = atomic_fetch_add(&n_at_start, 1) / 2;
    while (atomic_load(&n_at_start) < 2 * turn + 2) {
    }
}

static void *aborts(void *argument) {
    meet();
    const fwResult result = fwCommAbort(argument);
    CHECK(result == FW_SUCCESS || result == FW_INVALID_HANDLE);
    return NULL;
}

/* Two processes. A thread aborts a communicator while another one destroys it, or shrinks it. The
 * communicator that it was split from stays usable. */
static void races(void) {
    fwUniqueId id;
    fwComm_t comm, part, shrunk;
    int status;
    OK(fwGetUniqueId(&id));
    const pid_t child = fork();
    CHECK(child >= 0);
    OK(fwCommInitRank(&comm, 2, id, child == 0, NULL));
    for (int round = 0; round < 400; round++) {
        pthread_t thread;
        OK(fwCommSplit(comm, child == 0, 0, &part, NULL));
        CHECK(pthread_create(&thread, NULL, aborts, part) == 0);
        meet();
        if (round % 2 == 0) {
            const fwResult result = fwCommDestroy(part);
            CHECK(result == FW_SUCCESS || result == FW_INVALID_HANDLE || result == FW_IN_USE);
        } else {
            shrunk = NULL;
            const fwResult result = fwCommShrink(part, 1, &shrunk);
            CHECK((result == FW_SUCCESS) == (shrunk != NULL));
        }
        CHECK(pthread_join(thread, NULL) == 0);
        if (round % 2 != 0 && shrunk != NULL) {
            OK(fwCommDestroy(shrunk));
        }
        OK(fwBarrier(comm, NULL));
    }
    OK(fwCommDestroy(comm));
    if (child == 0) {
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *watchdog(void *argument) {
    fwResult state;
    until_inside(argument);
    OK(fwCommGetAsyncError(argument, &state));
    CHECK(state == FW_SUCCESS);
    OK(fwCommAbort(argument));
    return NULL;
}

/* Three processes. One is stopped. The root waits until its watchdog aborts; the third gets an
 * error. */
static int processes(int is_killed) {
    enum { SIZE = 3 };
    fwUniqueId id;
    fwConfig config = FW_CONFIG_INIT;
    fwComm_t comm;
    fwResult state;
    pid_t children[SIZE] = {0};
    int status, rank = 0;
    config.timeout = 60;
    OK(fwGetUniqueId(&id));
    for (int i = 1; i < SIZE && rank == 0; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        rank = children[i] == 0 ? i : 0;
    }
    OK(fwCommInitRank(&comm, SIZE, id, rank, &config));
    OK(fwBarrier(comm, NULL));
    fwRequest_t request;
    float value;
    OK(fwRecv(&value, 1, FW_FLOAT32, 2, 0, comm, &request));
    if (rank == 2) {
        raise(is_killed ? SIGKILL : SIGSTOP);
    }
    float values[1000] = {0};
    const double start = seconds();
    if (is_killed) {
        fwResult result = fwAllReduce(values, values, 1000, FW_FLOAT32, FW_SUM, NULL, comm, NULL);
        CHECK(result == FW_PEER_LOST || result == FW_ABORTED);
        OK(fwCommGetAsyncError(comm, &state));
        CHECK(state == result && seconds() - start < 20);
        OK(fwCommAbort(comm));
    } else {
        pthread_t thread;
        if (rank == 0) {
            CHECK(pthread_create(&thread, NULL, watchdog, comm) == 0);
        }
        fwResult result;
        ENTERED(result, fwAllReduce(values, values, 1000, FW_FLOAT32, FW_SUM, NULL, comm, NULL))
        CHECK(result == FW_ABORTED);
        CHECK(seconds() - start < 10);
        if (rank == 0) {
            CHECK(pthread_join(thread, NULL) == 0);
            FAILS(FW_INVALID_HANDLE, fwBarrier(comm, NULL));
        } else {
            OK(fwCommGetAsyncError(comm, &state));
            CHECK(state == FW_ABORTED);
            OK(fwCommAbort(comm));
        }
    }
    FAILS(FW_ABORTED, fwWait(&request));
    CHECK(request == NULL);
    if (rank != 0) {
        _exit(0);
    }
    CHECK(waitpid(children[1], &status, 0) == children[1] && status == 0);
    kill(children[2], SIGKILL);
    CHECK(waitpid(children[2], &status, 0) == children[2]);
    return 0;
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        races();
        processes(0);
        processes(1);
    } else {
        for (int way = 0; way < WAYS; way++) {
            a_waiting_call_ends(way);
        }
        a_peer_hears();
        requests_end();
        others_go_on();
        a_split_ends_alone();
        communicators_have_room();
        splits_that_differ_make_none();
    }
    printf("%d checks\n", n_checks);
    return 0;
}
