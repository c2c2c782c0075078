/* Tests of groups with an invalid call: the group fails at once, nothing of it is sent, and a valid
 * group succeeds afterwards. Run by tests/all/programs.rs. */
#include "check.h"
#include <time.h>

#define N 64

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Messages of a group with one tag match in the order of their calls, with or without requests. */
static void in_order(const Rank *own) {
    enum { MESSAGES = 5 };
    const int other = 1 - own->rank;
    for (unsigned with_request = 0; with_request < 1U << MESSAGES; with_request++) {
        fwRequest_t waited[2 * MESSAGES] = {NULL};
        double to[MESSAGES][2], from[MESSAGES][2];
        OK(fwGroupStart());
        for (int i = 0; i < MESSAGES; i++) {
            /* The other rank has requests for other messages. */
            const int has_request = (with_request >> (own->rank ? i : MESSAGES - 1 - i) & 1) != 0;
            to[i][0] = to[i][1] = i;
            OK(fwSend(to[i], 2, FW_FLOAT64, other, 9, NULL, own->comm,
                      has_request ? &waited[2 * i] : NULL));
            OK(fwRecv(from[i], 2, FW_FLOAT64, other, 9, own->comm,
                      has_request ? NULL : &waited[2 * i + 1]));
        }
        OK(fwGroupEnd());
        OK(fwWaitAll(2 * MESSAGES, waited));
        for (int i = 0; i < MESSAGES; i++) {
            CHECK(from[i][0] == i && from[i][1] == i);
        }
    }
}

/* A valid group: sums of two arrays, one of them with a bound. Then a group of messages. */
static void good(const Rank *own) {
    float a[N], b[N], from[N];
    const int other = 1 - own->rank;
    fwPlan plan;
    OK(fwPlanParse("abs:0.01", &plan));
    for (int i = 0; i < N; i++) {
        a[i] = (float)i;
        b[i] = (float)own->rank;
    }
    OK(fwGroupStart());
    OK(fwAllReduce(a, a, N, FW_FLOAT32, FW_SUM, NULL, own->comm, NULL));
    OK(fwAllReduce(b, b, N, FW_FLOAT32, FW_SUM, &plan, own->comm, NULL));
    OK(fwGroupEnd());
    CHECK(a[N - 1] == 2 * (N - 1) && b[0] > 0.97f && b[0] < 1.03f);
    OK(fwGroupStart());
    OK(fwSend(a, N, FW_FLOAT32, other, 1, NULL, own->comm, NULL));
    OK(fwRecv(from, N, FW_FLOAT32, other, 1, own->comm, NULL));
    OK(fwGroupEnd());
    CHECK(from[N - 1] == 2 * (N - 1));
}

static void adds(const void *input, void *inout, size_t count, void *context) {
    (void)context;
    for (size_t i = 0; i < count; i++) {
        ((float *)inout)[i] += ((const float *)input)[i];
    }
}

/* Makes one invalid call, after two valid ones. Sets *expected to the result of the group. */
enum { KINDS = 26 };
static float a[N], b[N], c[N], d[2 * N];
static fwRequest_t requests[1100];

static fwResult wrong(int kind, fwComm_t comm, fwResult *expected) {
    fwPlan plan = FW_PLAN_INIT;
    fwComm_t none;
    fwUniqueId id;
    fwRedOp op;
    fwResult result = FW_SUCCESS;
    const fwDataType type = FW_FLOAT32;
    const size_t overflows[2] = {SIZE_MAX, 1};
    memset(&id, 0, sizeof id);
    *expected = FW_INVALID_ARGUMENT;
    switch (kind) {
    case 0: return fwAllReduce(NULL, c, N, type, FW_SUM, NULL, comm, NULL);
    case 1: return fwAllReduce((char *)c + 1, d, 4, type, FW_SUM, NULL, comm, NULL);
    case 2: return fwReduce(c, d, N, 99, FW_SUM, 0, NULL, comm, NULL);
    case 3: return fwScan(c, d, N, type, 99, NULL, comm, NULL);
    case 4: return fwBroadcast(c, c, N, type, 2, NULL, comm, NULL);
    case 5: return fwGather(c, d, SIZE_MAX / 4, type, 0, NULL, comm, NULL);
    case 6: return fwAllGatherV(c, d, overflows, type, NULL, comm, NULL);
    case 7: return fwAllReduce(c, c + 1, N - 1, type, FW_SUM, NULL, comm, NULL);
    case 8: plan.size = 1; return fwReduceScatter(c, d, 8, type, FW_SUM, &plan, comm, NULL);
    case 9: plan.bound = 1; return fwAllToAll(c, d, 8, type, &plan, comm, NULL);
    case 10: return fwSend(c, N, type, 7, 0, NULL, comm, NULL);
    case 11: return fwBarrier(comm, (fwRequest_t *)((char *)requests + 1));
    /* These calls are refused when the group ends. */
    case 12: *expected = FW_UNSUPPORTED;
        return fwAllReduce(c, d, 8, FW_INT32, FW_AVG, NULL, comm, NULL);
    case 13: *expected = FW_UNSUPPORTED;
        OK(fwPlanParse("schedule:binomial", &plan));
        return fwAllToAll(c, d, 8, type, &plan, comm, NULL);
    case 14: OK(fwPlanParse("codec:truncate:60", &plan));
        return fwAllReduce(c, d, N, type, FW_SUM, &plan, comm, NULL);
    case 15: *expected = FW_UNSUPPORTED;
        return fwScan(c, d, N, type, FW_AVG, NULL, comm, NULL);
    /* Two calls of the group use the same array or request pointer. */
    case 16: return fwAllReduce(c, b + 8, 8, type, FW_SUM, NULL, comm, NULL);
    case 17: return fwBroadcast(a, c, N, type, 0, NULL, comm, NULL);
    case 18: OK(fwBarrier(comm, &requests[0]));
        result = fwBarrier(comm, &requests[0]);
        CHECK(requests[0] == NULL);
        return result;
    case 19: return fwReduceScatterV(c, d, NULL, type, FW_SUM, NULL, comm, NULL);
    case 20: return fwAllToAllV(c, overflows, d, overflows, type, NULL, comm, NULL);
    case 21: return fwSendRecv(c, 8, 1, d, 8, 2, type, 0, NULL, comm);
    /* Calls that cannot be in a group with others. */
    case 22: *expected = FW_INVALID_USAGE; return fwCommInitRank(&none, 1, id, 0, NULL);
    case 23: *expected = FW_INVALID_USAGE; return fwSend(c, N, type, 1, 0, NULL, comm, NULL);
    /* An invalid handle; a plan with a bound for a user-defined operation. */
    case 24: *expected = FW_INVALID_HANDLE;
        return fwAllReduce(c, d, N, type, FW_SUM, NULL, (fwComm_t)(uintptr_t)0x77, NULL);
    default: *expected = FW_UNSUPPORTED;
        OK(fwPlanParse("rel:1e-3", &plan));
        OK(fwRedOpCreate(&op, adds, NULL));
        result = fwAllReduce(c, d, N, type, op, &plan, comm, NULL);
        OK(fwRedOpDestroy(op));
        return result;
    }
}

/* Makes messages of a group, one of them invalid. */
static fwResult wrong_messages(int kind, fwComm_t comm, fwResult *expected) {
    fwPlan plan;
    OK(fwPlanParse("codec:truncate:60", &plan));
    *expected = FW_INVALID_USAGE;
    OK(fwSend(a, N, FW_FLOAT32, 1, 3, NULL, comm, &requests[0]));
    OK(fwRecv(b, N, FW_FLOAT32, 1, 3, comm, &requests[1]));
    OK(fwRecv(d, N, FW_FLOAT32, 1, 4, comm, NULL));
    switch (kind) {
    case 0: return fwRecv(c, N / 2, FW_FLOAT64, 1, 5, comm, NULL);
    case 1: return fwBarrier(comm, NULL);
    case 2: *expected = FW_INVALID_ARGUMENT;
        return fwRecv(d + 4, 4, FW_FLOAT32, 1, 5, comm, &requests[2]);
    case 3: *expected = FW_INVALID_ARGUMENT;
        return fwSend(c, N, FW_FLOAT32, 1, 5, &plan, comm, &requests[2]);
    case 4: return fwSend(c, N, FW_FLOAT32, 0, 6, NULL, comm, NULL);
    case 5: *expected = FW_INVALID_ARGUMENT; return fwRecv(c, N, FW_FLOAT32, -1, 5, comm, NULL);
    default:
        for (int i = 2; i < 1100; i++) {
            OK(fwSend(c, 1, FW_FLOAT32, 1, 7, NULL, comm, &requests[i]));
        }
        return FW_SUCCESS;
    }
}

/* Rank 0 makes invalid groups before the valid one. Rank 1 makes only the valid one. */
static void *rank_main(void *argument) {
    const Rank *own = argument;
    for (int kind = 0; kind < 2 * KINDS + 7; kind++) {
        if (own->rank == 0) {
            const int is_nested = kind >= KINDS && kind < 2 * KINDS;
            const double start = seconds();
            fwResult expected, own_result;
            for (int i = 0; i < N; i++) {
                a[i] = b[i] = c[i] = -1;
            }
            memset(requests, 0, sizeof requests);
            OK(fwGroupStart());
            if (kind < 2 * KINDS) {
                OK(fwAllReduce(a, a, N, FW_FLOAT32, FW_SUM, NULL, own->comm, NULL));
                OK(fwReduce(a, b, 0, FW_FLOAT32, FW_SUM, 0, NULL, own->comm, &requests[9]));
                OK(fwAllReduce(b, b, N, FW_FLOAT32, FW_SUM, NULL, own->comm, NULL));
            }
            if (is_nested) {
                OK(fwGroupStart());
            }
            own_result = kind < 2 * KINDS ? wrong(kind % KINDS, own->comm, &expected)
                                          : wrong_messages(kind - 2 * KINDS, own->comm, &expected);
            CHECK(own_result == FW_SUCCESS || own_result == expected || kind % KINDS == 22);
            if (is_nested) {
                OK(fwGroupEnd());
            }
            const fwResult result = fwGroupEnd();
            if (result != expected) {
                fprintf(stderr, "kind %d: %d, expected %d\n", kind, result, expected);
            }
            CHECK(result == expected && strlen(fwGetLastError()) > 0);
            CHECK(seconds() - start < 30);
            for (int i = 0; i < N; i++) {
                CHECK(a[i] == -1 && b[i] == -1 && c[i] == -1);
            }
            for (int i = 0; i < 1100; i++) {
                CHECK(requests[i] == NULL);
            }
            fwResult state;
            OK(fwCommGetAsyncError(own->comm, &state));
            CHECK(state == FW_SUCCESS);
        }
        good(own);
    }
    in_order(own);
    return NULL;
}

/* One thread runs both ranks: an invalid call of one rank refuses the calls of both. */
static void one_thread(void) {
    fwComm_t comms[2];
    double x[2] = {1, 2}, y[2] = {1, 2};
    OK(fwCommInitAll(comms, 2, NULL));
    OK(fwGroupStart());
    OK(fwAllReduce(&x[0], &y[0], 1, FW_FLOAT64, FW_SUM, NULL, comms[0], NULL));
    FAILS(FW_INVALID_ARGUMENT,
          fwAllReduce(&x[1], NULL, 1, FW_FLOAT64, FW_SUM, NULL, comms[1], NULL));
    FAILS(FW_INVALID_ARGUMENT, fwGroupEnd());
    /* A request of an open group cannot be waited for. */
    fwRequest_t request;
    int32_t done;
    OK(fwGroupStart());
    OK(fwAllReduce(&x[0], &y[0], 1, FW_FLOAT64, FW_SUM, NULL, comms[0], &request));
    FAILS(FW_INVALID_USAGE, fwWait(&request));
    FAILS(FW_INVALID_USAGE, fwTest(&request, &done));
    FAILS(FW_INVALID_USAGE, fwWaitAll(1, &request));
    OK(fwAllReduce(&x[1], &y[1], 1, FW_FLOAT64, FW_SUM, NULL, comms[1], NULL));
    OK(fwGroupEnd());
    OK(fwWait(&request));
    CHECK(y[0] == 3 && y[1] == 3);
    /* More requests than fwConfig.calls: the group waits for the first ones. */
    enum { MANY = 40 };
    fwRequest_t many[2 * MANY];
    double sums[2 * MANY];
    OK(fwGroupStart());
    for (int i = 0; i < 2 * MANY; i++) {
        sums[i] = i / 2;
        OK(fwAllReduce(&sums[i], &sums[i], 1, FW_FLOAT64, FW_SUM, NULL, comms[i % 2], &many[i]));
    }
    OK(fwGroupEnd());
    OK(fwWaitAll(2 * MANY, many));
    for (int i = 0; i < 2 * MANY; i++) {
        CHECK(sums[i] == 2 * (i / 2));
    }
    OK(fwCommDestroy(comms[0]));
    /* A destroyed communicator refuses a group with calls on other ones. */
    OK(fwGroupStart());
    OK(fwBarrier(comms[1], NULL));
    FAILS(FW_INVALID_HANDLE, fwBarrier(comms[0], NULL));
    FAILS(FW_INVALID_HANDLE, fwGroupEnd());
    OK(fwCommDestroy(comms[1]));
}

/* Groups that create communicators: after an error, none is created, and the id stays valid. */
static void communicators(void) {
    fwUniqueId id, none;
    fwComm_t comms[2];
    fwConfig config = FW_CONFIG_INIT;
    const double start = seconds();
    config.timeout = 120;
    OK(fwGetUniqueId(&id));
    memset(&none, 0, sizeof none);
    const struct {
        int32_t n_ranks, rank;
        fwResult result;
    } second[] = {{2, 5, FW_INVALID_ARGUMENT},
                  {2, -1, FW_INVALID_ARGUMENT},
                  {2, 0, FW_INVALID_ARGUMENT},
                  {3, 1, FW_MISMATCH},
                  {0, 1, FW_INVALID_ARGUMENT}};
    for (size_t i = 0; i < sizeof second / sizeof *second; i++) {
        OK(fwGroupStart());
        OK(fwCommInitRank(&comms[0], 2, id, 0, &config));
        (void)fwCommInitRank(&comms[1], second[i].n_ranks, id, second[i].rank, &config);
        FAILS(second[i].result, fwGroupEnd());
        CHECK(comms[0] == NULL && comms[1] == NULL);
    }
    OK(fwGroupStart());
    OK(fwCommInitRank(&comms[0], 2, id, 0, &config));
    OK(fwCommInitRank(&comms[1], 2, none, 1, &config));
    FAILS(FW_INVALID_ARGUMENT, fwGroupEnd());
    OK(fwGroupStart());
    OK(fwCommInitRank(&comms[0], 2, id, 0, &config));
    FAILS(FW_INVALID_ARGUMENT, fwCommInitRank(&comms[0], 2, id, 1, &config));
    FAILS(FW_INVALID_ARGUMENT, fwGroupEnd());
    CHECK(seconds() - start < 60);
    OK(fwGroupStart());
    OK(fwCommInitRank(&comms[0], 2, id, 0, &config));
    OK(fwCommInitRank(&comms[1], 2, id, 1, &config));
    OK(fwGroupEnd());
    OK(fwCommDestroy(comms[0]));
    OK(fwCommDestroy(comms[1]));
}

/* Messages of a rank to itself wait for their receives, up to a limit. A group with more of them is
 * refused whole. */
static void messages_to_itself(void) {
    enum { LIMIT = 1024, SPARE = 4 };
    fwComm_t comm;
    fwRequest_t requests[SPARE + 1] = {0};
    float sent = 7, got;
    OK(fwCommInitAll(&comm, 1, NULL));
    for (uint32_t i = 0; i < LIMIT - SPARE; i++) {
        OK(fwSend(&sent, 1, FW_FLOAT32, 0, i, NULL, comm, &requests[0]));
        OK(fwWait(&requests[0]));
    }
    for (int n = SPARE + 1; n >= SPARE; n--) {
        OK(fwGroupStart());
        for (int i = 0; i < n; i++) {
            OK(fwSend(&sent, 1, FW_FLOAT32, 0, 5000, NULL, comm, &requests[i]));
        }
        if (n > SPARE) {
            FAILS(FW_INVALID_USAGE, fwGroupEnd());
        } else {
            OK(fwGroupEnd());
        }
    }
    for (uint32_t i = 0; i < LIMIT; i++) {
        got = 0;
        OK(fwRecv(&got, 1, FW_FLOAT32, 0, i < LIMIT - SPARE ? i : 5000, comm, &requests[SPARE]));
        OK(fwWait(&requests[SPARE]));
        CHECK(got == 7);
    }
    for (int i = 0; i < SPARE; i++) {
        OK(fwWait(&requests[i]));
    }
    OK(fwCommDestroy(comm));
}

int main(void) {
    fwComm_t comms[2];
    fwConfig config = FW_CONFIG_INIT;
    pthread_t thread;
    config.timeout = 120;
    one_thread();
    communicators();
    messages_to_itself();
    OK(fwCommInitAll(comms, 2, &config));
    Rank ranks[2] = {{comms[0], 0}, {comms[1], 1}};
    CHECK(pthread_create(&thread, NULL, rank_main, &ranks[1]) == 0);
    rank_main(&ranks[0]);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(fwCommDestroy(comms[0]));
    OK(fwCommDestroy(comms[1]));
    printf("%d checks\n", n_checks);
    return 0;
}
