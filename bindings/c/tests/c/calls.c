/* Results of all calls, compared with simple loops. Run by tests/all/programs.rs. */
#include "check.h"
#include <math.h>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#define COUNT 120

/* Runs a test on each rank of a new communicator. */
static void on_ranks(void *(*test)(void *), const fwConfig *config) {
    fwComm_t comms[RANKS];
    pthread_t threads[RANKS];
    Rank ranks[RANKS];
    OK(fwCommInitAll(comms, RANKS, config));
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (Rank){comms[r], r};
        CHECK(pthread_create(&threads[r], NULL, test, &ranks[r]) == 0);
    }
    for (int r = 0; r < RANKS; r++) {
        CHECK(pthread_join(threads[r], NULL) == 0);
    }
}

/* Input of rank r at index i: whole numbers, so that sums are exact. */
static double value(int r, size_t i) { return (double)((int)(i % 97) - 40 + 100 * r); }

static void fill(double *to, int r, size_t first, size_t n) {
    for (size_t i = 0; i < n; i++) {
        to[i] = value(r, first + i);
    }
}

/* Sum of the values of the ranks before `end`. */
static double sum(int end, size_t i) {
    double total = 0;
    for (int r = 0; r < end; r++) {
        total += value(r, i);
    }
    return total;
}

static void reductions(const Rank *own, const fwPlan *plan) {
    enum { WHOLE = RANKS * COUNT };
    static const fwDataType type = FW_FLOAT64;
    double send[WHOLE], recv[WHOLE];
    const size_t first = (size_t)own->rank * COUNT;
    for (int in_place = 0; in_place < 2; in_place++) {
        fill(send, own->rank, 0, COUNT);
        double *to = in_place ? send : recv;
        OK(fwAllReduce(send, to, COUNT, type, FW_SUM, plan, own->comm, NULL));
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(to[i] == sum(RANKS, i));
        }
        for (int root = 0; root < RANKS; root++) {
            fill(send, own->rank, 0, COUNT);
            double *at_root = own->rank == root ? to : NULL;
            OK(fwReduce(send, at_root, COUNT, type, FW_MAX, root, plan, own->comm, NULL));
            for (size_t i = 0; at_root && i < COUNT; i++) {
                CHECK(at_root[i] == value(RANKS - 1, i));
            }
        }
        fill(send, own->rank, 0, COUNT);
        OK(fwScan(send, to, COUNT, type, FW_SUM, plan, own->comm, NULL));
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(to[i] == sum(own->rank + 1, i));
        }
        fill(send, own->rank, 0, COUNT);
        double *before = own->rank == 0 && !in_place ? NULL : to;
        OK(fwExclusiveScan(send, before, COUNT, type, FW_SUM, plan, own->comm, NULL));
        for (size_t i = 0; own->rank > 0 && i < COUNT; i++) {
            CHECK(to[i] == sum(own->rank, i));
        }
        fill(send, own->rank, 0, WHOLE);
        to = in_place ? send + first : recv;
        OK(fwReduceScatter(send, to, COUNT, type, FW_MIN, plan, own->comm, NULL));
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(to[i] == value(0, first + i));
        }
        const size_t counts[RANKS] = {7, 0, 300}, starts[RANKS] = {0, 7, 7};
        fill(send, own->rank, 0, 307);
        to = in_place ? send + starts[own->rank] : recv;
        OK(fwReduceScatterV(send, to, counts, type, FW_SUM, plan, own->comm, NULL));
        for (size_t i = 0; i < counts[own->rank]; i++) {
            CHECK(to[i] == sum(RANKS, starts[own->rank] + i));
        }
    }
}

static void movements(const Rank *own, const fwPlan *plan) {
    enum { WHOLE = RANKS * COUNT };
    static const fwDataType type = FW_FLOAT64;
    const size_t first = (size_t)own->rank * COUNT;
    const size_t counts[RANKS] = {7, 0, 300}, starts[RANKS] = {0, 7, 7};
    const size_t mine = counts[own->rank], start = starts[own->rank];
    double send[WHOLE], recv[WHOLE];
    for (int in_place = 0; in_place < 2; in_place++) {
        for (int root = 0; root < RANKS; root++) {
            const int is_root = own->rank == root;
            double *to = in_place ? send : recv;
            fill(send, own->rank, 0, COUNT);
            OK(fwBroadcast(is_root ? send : NULL, to, COUNT, type, root, plan, own->comm, NULL));
            for (size_t i = 0; i < COUNT; i++) {
                CHECK(to[i] == value(root, i));
            }
            double *from = in_place ? recv + first : send;
            fill(from, own->rank, 0, COUNT);
            OK(fwGather(from, is_root ? recv : NULL, COUNT, type, root, plan, own->comm, NULL));
            for (size_t i = 0; is_root && i < WHOLE; i++) {
                CHECK(recv[i] == value((int)(i / COUNT), i % COUNT));
            }
            from = in_place ? recv + start : send;
            fill(from, own->rank, start, mine);
            OK(fwGatherV(from, is_root ? recv : NULL, counts, type, root, plan, own->comm, NULL));
            for (size_t i = 0; is_root && i < 307; i++) {
                CHECK(recv[i] == value(i < 7 ? 0 : 2, i));
            }
            fill(send, own->rank, 0, WHOLE);
            to = in_place && is_root ? send + first : recv;
            OK(fwScatter(is_root ? send : NULL, to, COUNT, type, root, plan, own->comm, NULL));
            for (size_t i = 0; i < COUNT; i++) {
                CHECK(to[i] == value(root, first + i));
            }
            fill(send, own->rank, 0, 307);
            to = in_place && is_root ? send + start : recv;
            OK(fwScatterV(is_root ? send : NULL, to, counts, type, root, plan, own->comm, NULL));
            for (size_t i = 0; i < mine; i++) {
                CHECK(to[i] == value(root, start + i));
            }
        }
        double *from = in_place ? recv + first : send;
        fill(from, own->rank, 0, COUNT);
        OK(fwAllGather(from, recv, COUNT, type, plan, own->comm, NULL));
        for (size_t i = 0; i < WHOLE; i++) {
            CHECK(recv[i] == value((int)(i / COUNT), i % COUNT));
        }
        from = in_place ? recv + start : send;
        fill(from, own->rank, start, mine);
        OK(fwAllGatherV(from, recv, counts, type, plan, own->comm, NULL));
        for (size_t i = 0; i < 307; i++) {
            CHECK(recv[i] == value(i < 7 ? 0 : 2, i));
        }
        double *to = in_place ? send : recv;
        fill(send, own->rank, 0, WHOLE);
        OK(fwAllToAll(send, to, COUNT, type, plan, own->comm, NULL));
        for (size_t i = 0; i < WHOLE; i++) {
            CHECK(to[i] == value((int)(i / COUNT), first + i % COUNT));
        }
    }
    /* Rank r sends s + 1 values to rank s, and so receives r + 1 from each. */
    size_t to_each[RANKS], from_each[RANKS];
    for (size_t r = 0; r < RANKS; r++) {
        to_each[r] = r + 1;
        from_each[r] = (size_t)own->rank + 1;
    }
    fill(send, own->rank, 0, 6);
    OK(fwAllToAllV(send, to_each, recv, from_each, type, plan, own->comm, NULL));
    const size_t n = (size_t)own->rank + 1, before = (size_t)own->rank * n / 2;
    for (size_t i = 0; i < RANKS * n; i++) {
        CHECK(recv[i] == value((int)(i / n), before + i % n));
    }
}

static void *exactly(void *argument) {
    const Rank *own = argument;
    fwPlan lossless, zero = FW_PLAN_INIT;
    OK(fwPlanParse("lossless", &lossless));
    const fwPlan *plans[] = {NULL, &zero, &lossless};
    for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
        reductions(own, plans[p]);
        movements(own, plans[p]);
    }
    OK(fwBarrier(own->comm, NULL));
    /* Every type: a sum of whole numbers that all of them hold. */
    for (fwDataType type = FW_FLOAT32; type <= FW_UINT64; type++) {
        uint64_t one[4] = {0}, all[4] = {0};
        const uint64_t bits[] = {0x3f800000, 0x3ff0000000000000, 0x3c00, 0x3f80};
        const uint64_t three[] = {0x40400000, 0x4008000000000000, 0x4200, 0x4040};
        one[0] = type <= FW_BFLOAT16 ? bits[type - 1] : 1;
        OK(fwAllReduce(one, all, 1, type, FW_SUM, NULL, own->comm, NULL));
        CHECK(all[0] == (type <= FW_BFLOAT16 ? three[type - 1] : 3));
    }
    double product = 2, average = own->rank;
    OK(fwAllReduce(&product, &product, 1, FW_FLOAT64, FW_PROD, NULL, own->comm, NULL));
    OK(fwAllReduce(&average, &average, 1, FW_FLOAT64, FW_AVG, NULL, own->comm, NULL));
    CHECK(product == 8 && average == 1);
    OK(fwCommDestroy(own->comm));
    return NULL;
}

static void *within_bounds(void *argument) {
    const Rank *own = argument;
    enum { N = 8192 };
    static const char *texts[] = {"abs:1e-3", "abs:1e-3,codec:dense,schedule:ring", "auto,abs:1e-3",
                                  "abs:1e-3,scope:result", "abs:1e-3,unbiased:7"};
    float *data = malloc(N * sizeof *data);
    CHECK(data != NULL);
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
        fwPlan plan;
        OK(fwPlanParse(texts[t], &plan));
        for (size_t i = 0; i < N; i++) {
            data[i] = sinf(1e-3f * (float)i + (float)own->rank);
        }
        OK(fwAllReduce(data, data, N, FW_FLOAT32, FW_SUM, &plan, own->comm, NULL));
        const double most = t == 3 ? 1e-3 : RANKS * 1e-3 + 1e-5;
        for (size_t i = 0; i < N; i++) {
            double exact = 0;
            for (int r = 0; r < RANKS; r++) {
                exact += sinf(1e-3f * (float)i + (float)r);
            }
            CHECK(fabs(data[i] - exact) <= most);
        }
        fwReport report = FW_REPORT_INIT;
        OK(fwCommReport(own->comm, &report));
        CHECK(report.size == sizeof report && report.seconds > 0 && report.n_messages > 0);
        CHECK(t == 2 || (report.wire_bytes < report.raw_bytes && report.bound > 0));
        CHECK(t != 1 || (!strcmp(report.codec, "dense") && !strcmp(report.schedule, "ring")));
        CHECK(isnan(report.suspected_fill));
    }
    /* Missing values of rank 1 set the range for all ranks. */
    for (size_t i = 0; i < N; i++) {
        data[i] = own->rank == 1 && i % 7 == 0 ? 1e20f : sinf(1e-3f * (float)i);
    }
    fwPlan relative;
    OK(fwPlanParse("rel:1e-3", &relative));
    OK(fwAllReduce(data, data, N, FW_FLOAT32, FW_MAX, &relative, own->comm, NULL));
    fwReport report = FW_REPORT_INIT;
    OK(fwCommReport(own->comm, &report));
    CHECK(own->rank == 1 ? report.suspected_fill == 1e20f : isnan(report.suspected_fill));
    /* A plan may refuse them: on all ranks, which can go on. */
    OK(fwPlanParse("rel:1e-3,fill:refuse", &relative));
    CHECK(relative.refuses_fill == 1 && relative.fill_kind == FW_NO_FILL);
    for (size_t i = 0; i < N; i++) {
        data[i] = own->rank == 1 && i % 7 == 0 ? 1e20f : sinf(1e-3f * (float)i);
    }
    FAILS(FW_INVALID_ARGUMENT,
          fwAllReduce(data, data, N, FW_FLOAT32, FW_MAX, &relative, own->comm, NULL));
    CHECK(strstr(fwGetLastError(), "sets the value range"));
    /* As the fill value they do not: a sum with one is missing, or takes it as a number. */
    const char *filled[] = {"rel:1e-3,fill:1e20", "exact,fill:1e20", "rel:1e-3,fill:1e20:number"};
    for (size_t t = 0; t < 3; t++) {
        for (size_t i = 0; i < N; i++) {
            data[i] = own->rank == 1 && i % 7 == 0 ? 1e20f : sinf(1e-3f * (float)i);
        }
        OK(fwPlanParse(filled[t], &relative));
        CHECK(relative.fill == 1e20);
        CHECK(relative.fill_kind == (t < 2 ? FW_FILL_MISSING : FW_FILL_NUMBER));
        OK(fwAllReduce(data, data, N, FW_FLOAT32, FW_SUM, &relative, own->comm, NULL));
        OK(fwCommReport(own->comm, &report));
        CHECK(report.bound <= 0.0021 && isnan(report.suspected_fill));
        for (size_t i = 0; i < N; i++) {
            const float three = 3 * sinf(1e-3f * (float)i);
            CHECK(i % 7 == 0 ? data[i] == 1e20f : fabsf(data[i] - three) < 0.0065f);
        }
    }
    int32_t whole = 1;
    FAILS(FW_UNSUPPORTED,
          fwAllReduce(&whole, &whole, 1, FW_INT32, FW_SUM, &relative, own->comm, NULL));
    relative.fill_kind = FW_NO_FILL;
    FAILS(FW_INVALID_ARGUMENT,
          fwAllReduce(data, data, 1, FW_FLOAT32, FW_SUM, &relative, own->comm, NULL));
    free(data);
    OK(fwCommDestroy(own->comm));
    return NULL;
}

static void *requests(void *argument) {
    const Rank *own = argument;
    double data[5][COUNT];
    fwRequest_t all[5];
    const size_t counts[RANKS] = {COUNT, 0, 0};
    for (int i = 0; i < 5; i++) {
        fill(data[i], own->rank, 0, COUNT);
    }
    for (int i = 0; i < 3; i++) {
        OK(fwAllReduce(data[i], data[i], COUNT, FW_FLOAT64, FW_SUM, NULL, own->comm, &all[i]));
    }
    OK(fwBarrier(own->comm, &all[3]));
    {
        /* Counts may be overwritten as soon as the call has returned. */
        size_t gone[RANKS];
        memcpy(gone, counts, sizeof gone);
        const void *send = own->rank == 0 ? data[4] : NULL;
        OK(fwAllGatherV(send, data[4], gone, FW_FLOAT64, NULL, own->comm, &all[4]));
        memset(gone, 255, sizeof gone);
    }
    FAILS(FW_INVALID_USAGE, fwBarrier(own->comm, NULL)); /* a fifth call at once */
    FAILS(FW_IN_USE, fwCommDestroy(own->comm));
    int32_t done = 0;
    while (!done) {
        OK(fwTest(&all[1], &done));
    }
    CHECK(all[1] == NULL);
    done = 0;
    OK(fwTest(&all[1], &done));
    CHECK(done == 1);
    fwRequest_t old = all[0];
    OK(fwWait(&all[0]));
    CHECK(all[0] == NULL);
    FAILS(FW_INVALID_HANDLE, fwWait(&old));
    OK(fwWaitAll(5, all));
    for (int i = 0; i < 4; i++) {
        CHECK(all[i] == NULL);
        for (size_t j = 0; i < 3 && j < COUNT; j++) {
            CHECK(data[i][j] == sum(RANKS, j) && data[4][j] == value(0, j));
        }
    }
    OK(fwCommDestroy(own->comm));
    return NULL;
}

static void *messages(void *argument) {
    const Rank *own = argument;
    const int next = (own->rank + 1) % RANKS, last = (own->rank + RANKS - 1) % RANKS;
    double send[COUNT], before[COUNT], after[COUNT];
    fill(send, own->rank, 0, COUNT);
    OK(fwSendRecv(send, COUNT, next, before, COUNT, last, FW_FLOAT64, 5, NULL, own->comm));
    CHECK(before[1] == value(last, 1));
    OK(fwGroupStart());
    OK(fwRecv(before, COUNT, FW_FLOAT64, last, 1, own->comm, NULL));
    OK(fwRecv(after, COUNT, FW_FLOAT64, next, 2, own->comm, NULL));
    OK(fwSend(send, COUNT, FW_FLOAT64, next, 1, NULL, own->comm, NULL));
    OK(fwSend(send, COUNT, FW_FLOAT64, last, 2, NULL, own->comm, NULL));
    OK(fwGroupEnd());
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(before[i] == value(last, i) && after[i] == value(next, i));
    }
    if (own->rank == 0) {
        OK(fwSend(send, 3, FW_FLOAT64, 1, 9, NULL, own->comm, NULL));
    } else if (own->rank == 1) {
        OK(fwRecv(before, 3, FW_FLOAT64, 0, 9, own->comm, NULL));
        CHECK(before[2] == value(0, 2));
    }
    FAILS(FW_INVALID_ARGUMENT, fwSend(send, 3, FW_FLOAT64, RANKS, 0, NULL, own->comm, NULL));
    FAILS(FW_INVALID_ARGUMENT,
          fwSendRecv(send, 3, next, send + 2, 3, last, FW_FLOAT64, 5, NULL, own->comm));
    OK(fwGroupStart());
    OK(fwSend(send, 3, FW_FLOAT64, next, 9, NULL, own->comm, NULL));
    OK(fwBarrier(own->comm, NULL));
    FAILS(FW_INVALID_USAGE, fwGroupEnd());
    OK(fwBarrier(own->comm, NULL));
    /* One invalid message, and no call of a group starts, also beside requests to this rank. */
    fwRequest_t own_request = NULL;
    OK(fwGroupStart());
    OK(fwSend(send, 3, FW_FLOAT64, own->rank, 9, NULL, own->comm, &own_request));
    OK(fwRecv(before, 3, FW_FLOAT64, own->rank, 9, own->comm, NULL));
    fwResult result = fwRecv(after, 3, FW_FLOAT64, RANKS, 9, own->comm, NULL);
    CHECK(result == FW_SUCCESS || result == FW_INVALID_ARGUMENT);
    result = fwGroupEnd();
    CHECK(result == FW_INVALID_ARGUMENT && own_request == NULL);
    OK(fwBarrier(own->comm, NULL));
    OK(fwCommDestroy(own->comm));
    return NULL;
}

#define LONG 60000

/* Messages in progress beside sums, started in a different order on each rank. */
static void *letters(void *argument) {
    const Rank *own = argument;
    const int next = (own->rank + 1) % RANKS, last = (own->rank + RANKS - 1) % RANKS;
    float *send = malloc(LONG * sizeof *send), *came = malloc(LONG * sizeof *came);
    CHECK(send != NULL && came != NULL);
    for (size_t i = 0; i < LONG; i++) {
        send[i] = (float)own->rank + (float)sin(1e-3 * (double)i);
    }
    double sums[2] = {1, 1};
    int32_t one = own->rank, two = -1, three = -1;
    fwRequest_t all[7];
    fwPlan plan = FW_PLAN_INIT;
    plan.mode = FW_COMPRESS;
    plan.bound_kind = FW_ABSOLUTE;
    plan.bound = 1e-3;
    OK(fwRecv(came, LONG, FW_FLOAT32, last, 1, own->comm, &all[0]));
    OK(fwRecv(&three, 1, FW_INT32, next, 7, own->comm, &all[1]));
    if (own->rank == 1) {
        OK(fwAllReduce(sums, sums, 2, FW_FLOAT64, FW_SUM, NULL, own->comm, &all[2]));
    }
    /* In a group, messages start when the group ends. */
    OK(fwGroupStart());
    OK(fwSend(&one, 1, FW_INT32, last, 7, NULL, own->comm, &all[3]));
    OK(fwSend(send, LONG, FW_FLOAT32, next, 1, &plan, own->comm, &all[4]));
    CHECK(all[3] == NULL);
    OK(fwGroupEnd());
    CHECK(all[3] != NULL && all[4] != NULL);
    if (own->rank != 1) {
        OK(fwAllReduce(sums, sums, 2, FW_FLOAT64, FW_SUM, NULL, own->comm, &all[2]));
    }
    /* A blocking send matches a receive with a request. */
    OK(fwRecv(&two, 1, FW_INT32, last, 8, own->comm, &all[5]));
    OK(fwSend(&one, 1, FW_INT32, next, 8, NULL, own->comm, NULL));
    int32_t done = 0;
    while (!done) {
        OK(fwTest(&all[5], &done));
    }
    OK(fwSend(&one, 1, FW_INT32, own->rank, 9, NULL, own->comm, &all[5]));
    OK(fwRecv(&done, 1, FW_INT32, own->rank, 9, own->comm, &all[6]));
    OK(fwWaitAll(7, all));
    CHECK(two == last && three == next && sums[0] == RANKS && done == own->rank);
    for (size_t i = 0; i < LONG; i++) {
        CHECK(fabs(came[i] - (send[i] - (float)own->rank + (float)last)) < 1.1e-3);
    }
    FAILS(FW_INVALID_ARGUMENT, fwRecv(NULL, 3, FW_INT32, 0, 0, own->comm, &all[0]));
    CHECK(all[0] == NULL);
    FAILS(FW_INVALID_USAGE, fwRecv(&one, 1, FW_INT32, own->rank, 9, own->comm, NULL));
    /* A message of another length: an error at the receiver, and then at the other ranks. */
    if (own->rank == 0) {
        OK(fwSend(&one, 1, FW_INT32, 1, 3, NULL, own->comm, NULL));
    }
    if (own->rank == 1) {
        OK(fwRecv(sums, 2, FW_INT32, 0, 3, own->comm, &all[0]));
        FAILS(FW_MISMATCH, fwWait(&all[0]));
    } else {
        FAILS(FW_ABORTED, fwBarrier(own->comm, NULL));
    }
    OK(fwCommDestroy(own->comm));
    free(send);
    free(came);
    return NULL;
}

/* The value of larger magnitude; the positive one of two equal magnitudes. Counts its values. */
static void furthest(const void *input, void *inout, size_t count, void *context) {
    const double *a = input;
    double *b = inout;
    for (size_t i = 0; i < count; i++) {
        const double x = fabs(a[i]), y = fabs(b[i]);
        b[i] = x > y || (x == y && a[i] > b[i]) ? a[i] : b[i];
    }
    *(_Atomic size_t *)context += count;
}

static void common_divisor(const void *input, void *inout, size_t count, void *context) {
    const uint32_t *a = input;
    uint32_t *b = inout;
    for (size_t i = 0; i < count; i++) {
        uint32_t x = a[i], y = b[i];
        while (y != 0) {
            const uint32_t rest = x % y;
            x = y;
            y = rest;
        }
        b[i] = x;
    }
    CHECK(context == NULL);
}

/* Reduction by `furthest` of the values of the ranks before `end`. */
static double furthest_of(int end, size_t i) {
    double best = 0;
    for (int r = 0; r < end; r++) {
        const double next = value(r, i);
        best = fabs(next) > fabs(best) || (fabs(next) == fabs(best) && next > best) ? next : best;
    }
    return best;
}

/* Operations that the caller defines. */
static void *operations(void *argument) {
    const Rank *own = argument;
    _Atomic size_t n_values = 0;
    double send[RANKS * COUNT], recv[RANKS * COUNT], all[2][COUNT];
    uint32_t numbers[COUNT];
    fwRedOp far, divisor;
    fwPlan plan;
    fwRequest_t request;
    OK(fwRedOpCreate(&far, furthest, (void *)&n_values));
    OK(fwRedOpCreate(&divisor, common_divisor, NULL));
    CHECK(far != divisor && far > FW_PROD);
    OK(fwPlanParse("lossless", &plan));
    for (int kind = 0; kind < 2; kind++) {
        const fwPlan *by = kind ? &plan : NULL;
        fill(send, own->rank, 0, RANKS * COUNT);
        OK(fwAllReduce(send, recv, COUNT, FW_FLOAT64, far, by, own->comm, NULL));
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(recv[i] == furthest_of(RANKS, i));
        }
        CHECK(n_values > 0);
        OK(fwReduceScatter(send, recv, COUNT, FW_FLOAT64, far, by, own->comm, NULL));
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(recv[i] == furthest_of(RANKS, (size_t)own->rank * COUNT + i));
        }
        OK(fwScan(send, recv, COUNT, FW_FLOAT64, far, by, own->comm, NULL));
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(recv[i] == furthest_of(own->rank + 1, i));
        }
    }
    for (size_t i = 0; i < COUNT; i++) {
        numbers[i] = (uint32_t)((i + 1) * (size_t)(own->rank + 2));
    }
    OK(fwAllReduce(numbers, numbers, COUNT, FW_UINT32, divisor, NULL, own->comm, NULL));
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(numbers[i] == i + 1);
    }
    /* Bits of integers, and whether they are 0. */
    const uint16_t bits = (uint16_t)(1u << own->rank), both = (uint16_t)(bits | 0x8000u);
    const int64_t some = own->rank == 1 ? -7 : 0;
    const uint16_t ranks = (1u << RANKS) - 1;
    uint16_t bit[3];
    int64_t truth[3];
    OK(fwAllReduce(&both, &bit[0], 1, FW_UINT16, FW_BAND, NULL, own->comm, NULL));
    OK(fwAllReduce(&bits, &bit[1], 1, FW_UINT16, FW_BOR, NULL, own->comm, NULL));
    OK(fwAllReduce(&both, &bit[2], 1, FW_UINT16, FW_BXOR, NULL, own->comm, NULL));
    CHECK(bit[0] == 0x8000u && bit[1] == ranks);
    CHECK(bit[2] == (ranks | (RANKS % 2 ? 0x8000u : 0)));
    OK(fwAllReduce(&some, &truth[0], 1, FW_INT64, FW_LAND, NULL, own->comm, NULL));
    OK(fwAllReduce(&some, &truth[1], 1, FW_INT64, FW_LOR, NULL, own->comm, NULL));
    OK(fwAllReduce(&some, &truth[2], 1, FW_INT64, FW_LXOR, NULL, own->comm, NULL));
    CHECK(truth[0] == 0 && truth[1] == 1 && truth[2] == 1);
    FAILS(FW_UNSUPPORTED,
          fwAllReduce(send, recv, 1, FW_FLOAT64, FW_BAND, NULL, own->comm, NULL));
    /* In a group, beside sums. */
    OK(fwGroupStart());
    for (int a = 0; a < 2; a++) {
        fill(all[a], own->rank, 0, COUNT);
        const fwRedOp op = a ? far : FW_SUM;
        OK(fwAllReduce(all[a], all[a], COUNT, FW_FLOAT64, op, NULL, own->comm, NULL));
    }
    OK(fwGroupEnd());
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(all[0][i] == sum(RANKS, i) && all[1][i] == furthest_of(RANKS, i));
    }
    /* A call keeps the function that it was started with. */
    fill(send, own->rank, 0, COUNT);
    OK(fwAllReduce(send, send, COUNT, FW_FLOAT64, far, NULL, own->comm, &request));
    OK(fwRedOpDestroy(far));
    OK(fwWait(&request));
    CHECK(send[3] == furthest_of(RANKS, 3));
    FAILS(FW_INVALID_ARGUMENT,
          fwAllReduce(send, send, COUNT, FW_FLOAT64, far, NULL, own->comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwRedOpDestroy(far));
    /* A plan with a bound is refused: the function may amplify errors without limit. */
    OK(fwRedOpCreate(&far, furthest, (void *)&n_values));
    const char *lossy[] = {"abs:0.1", "auto,abs:0.1", "codec:truncate:40"};
    for (int i = 0; i < 3; i++) {
        OK(fwPlanParse(lossy[i], &plan));
        FAILS(FW_UNSUPPORTED,
              fwAllReduce(send, send, COUNT, FW_FLOAT64, far, &plan, own->comm, NULL));
    }
    OK(fwBarrier(own->comm, NULL));
    OK(fwRedOpDestroy(far));
    OK(fwRedOpDestroy(divisor));
    OK(fwCommDestroy(own->comm));
    return NULL;
}

static void *groups(void *argument) {
    const Rank *own = argument;
    enum { ARRAYS = 12 }; /* more than fwConfig.calls */
    double data[ARRAYS][COUNT];
    fwPlan plan[2];
    OK(fwPlanParse("rel:1e-3", &plan[0]));
    OK(fwPlanParse("abs:0.5", &plan[1]));
    /* Exact as one group call, compressed as one group call, and as separate calls. */
    for (int kind = 0; kind < 3; kind++) {
        OK(fwGroupStart());
        OK(fwGroupStart());
        for (int a = 0; a < ARRAYS; a++) {
            fill(data[a], own->rank, (size_t)a, COUNT);
            const fwRedOp op = kind == 2 && a % 2 ? FW_AVG : FW_SUM;
            const fwPlan *by = kind == 1 ? &plan[a % 2] : NULL;
            OK(fwAllReduce(data[a], data[a], COUNT, FW_FLOAT64, op, by, own->comm, NULL));
        }
        OK(fwGroupEnd());
        CHECK(data[1][0] == value(own->rank, 1));
        FAILS(FW_INVALID_USAGE, fwCommDestroy(own->comm));
        OK(fwGroupEnd());
        for (int a = 0; a < ARRAYS; a++) {
            for (size_t i = 0; i < COUNT; i++) {
                const double n = kind == 2 && a % 2 ? RANKS : 1, most = kind == 1 ? 1.6 : 0;
                CHECK(fabs(data[a][i] * n - sum(RANKS, (size_t)a + i)) <= most);
            }
        }
    }
    FAILS(FW_INVALID_USAGE, fwGroupEnd());
    /* A request of a group exists after fwGroupEnd. */
    fwRequest_t request;
    double one = 1, two = 2;
    OK(fwGroupStart());
    OK(fwAllReduce(&one, &one, 1, FW_FLOAT64, FW_SUM, NULL, own->comm, &request));
    CHECK(request == NULL);
    OK(fwAllReduce(&two, &two, 1, FW_FLOAT64, FW_SUM, NULL, own->comm, NULL));
    OK(fwGroupEnd());
    CHECK(request != NULL && two == 6);
    OK(fwWait(&request));
    CHECK(one == 3);
    OK(fwCommDestroy(own->comm));
    return NULL;
}

/* One thread runs all ranks, as with ncclCommInitAll. */
static void one_thread(void) {
    fwComm_t comms[RANKS];
    fwRequest_t all[RANKS];
    double data[RANKS][COUNT];
    OK(fwCommInitAll(comms, RANKS, NULL));
    for (int kind = 0; kind < 3; kind++) {
        for (int r = 0; r < RANKS; r++) {
            fill(data[r], r, 0, COUNT);
        }
        if (kind < 2) {
            OK(fwGroupStart());
        }
        for (int r = 0; r < RANKS; r++) {
            fwRequest_t *request = kind == 2 ? &all[r] : NULL;
            OK(fwAllReduce(data[r], data[r], COUNT, FW_FLOAT64, FW_SUM, NULL, comms[r], request));
            if (kind == 1) {
                double *empty = data[r];
                OK(fwAllReduce(empty, empty, 0, FW_FLOAT64, FW_SUM, NULL, comms[r], NULL));
            }
        }
        if (kind < 2) {
            OK(fwGroupEnd());
        } else {
            OK(fwWaitAll(RANKS, all));
        }
        for (int r = 0; r < RANKS; r++) {
            for (size_t i = 0; i < COUNT; i++) {
                CHECK(data[r][i] == sum(RANKS, i));
            }
        }
    }
    for (int r = 0; r < RANKS; r++) {
        OK(fwCommDestroy(comms[r]));
    }
}

static void *split(void *argument) {
    const Rank *own = argument;
    fwComm_t part;
    fwConfig config = FW_CONFIG_INIT;
    config.calls = 2;
    /* A communicator of ranks 2 and 0, in this order; rank 1 gets none. */
    const int32_t color = own->rank == 1 ? FW_SPLIT_NOCOLOR : 3;
    OK(fwCommSplit(own->comm, color, -own->rank, &part, &config));
    CHECK((part == NULL) == (own->rank == 1));
    if (part != NULL) {
        int32_t rank, size;
        OK(fwCommUserRank(part, &rank));
        OK(fwCommCount(part, &size));
        CHECK(size == 2 && rank == (own->rank == 2 ? 0 : 1));
        int32_t ones = 1;
        OK(fwAllReduce(&ones, &ones, 1, FW_INT32, FW_SUM, NULL, part, NULL));
        CHECK(ones == 2);
    }
    fwComm_t none;
    FAILS(FW_INVALID_ARGUMENT, fwCommSplit(own->comm, -2, 0, &none, NULL));
    CHECK(none == NULL);
    OK(fwBarrier(own->comm, NULL));
    OK(fwCommDestroy(own->comm));
    if (part != NULL) {
        OK(fwBarrier(part, NULL));
        OK(fwCommDestroy(part));
    }
    return NULL;
}

/* Rank 1 ends early, and the others shrink. */
static void *survive(void *argument) {
    const Rank *own = argument;
    double data[COUNT] = {0};
    fwRequest_t request;
    OK(fwBarrier(own->comm, NULL));
    if (own->rank == 1) {
        OK(fwAllReduce(data, data, COUNT, FW_FLOAT64, FW_SUM, NULL, own->comm, &request));
        OK(fwCommAbort(own->comm));
        FAILS(FW_ABORTED, fwWait(&request));
        return NULL;
    }
    fwResult result = fwBarrier(own->comm, NULL); /* or notices that rank 1 made another call */
    CHECK(result == FW_ABORTED || result == FW_PEER_LOST || result == FW_MISMATCH);
    FAILS(FW_POISONED, fwBarrier(own->comm, NULL));
    fwComm_t left = own->comm;
    int32_t size;
    FAILS(FW_INVALID_ARGUMENT, fwCommShrink(own->comm, -1, &left));
    CHECK(left == own->comm);
    OK(fwCommShrink(left, 5, &left));
    FAILS(FW_INVALID_HANDLE, fwBarrier(own->comm, NULL));
    OK(fwCommCount(left, &size));
    CHECK(size == 2);
    OK(fwBarrier(left, NULL));
    OK(fwCommDestroy(left));
    return NULL;
}

/* Sums are exact and rounded once, also if the program has switched subnormal numbers off, or
   chosen another rounding mode. */
static void *sums(void *argument) {
    enum { N_SUMS = 20, N = 100, N_MODES = 5 };
    /* Nearest; flush to zero, denormals are zero; down; up; toward zero. */
    static const unsigned modes[N_MODES] = {0, 0x8040, 0x2000, 0x4000, 0x6000};
    const Rank *own = argument;
    static const double spread[RANKS][4] = {
        {1e308, 0.1, 0, 0}, {1e308, 0.2, 5e-324, 0}, {-1e308, 0.3, -1e308, -5e-324}};
    double sum = 0, all[N_SUMS], values[N_SUMS * N], tiny = RANKS * (N - 2) * 5e-324;
    OK(fwReproSum(spread[own->rank], 4, FW_FLOAT64, &sum, own->comm));
    CHECK(sum == 0.6); /* 0.6000000000000001 in floating point, from left to right */
    OK(fwReproSum(NULL, 0, FW_FLOAT32, &sum, own->comm));
    CHECK(sum == 0 && !signbit(sum));

    for (int layout = FW_ADJACENT; layout <= FW_STRIDED; layout++) {
        for (size_t i = 0; i < N_SUMS; i++) {
            for (size_t j = 0; j < N; j++) {
                double to = j == 0 ? 1e3 : j == 1 ? -1e3 : i == 5 ? 5e-324 : (double)(i * j) / 64;
                values[layout == FW_ADJACENT ? i * N + j : j * N_SUMS + i] = to;
            }
        }
        for (int nth = 0; nth < N_MODES; nth++) {
#ifdef __SSE2__
            const unsigned mode = _mm_getcsr();
            _mm_setcsr(mode | modes[nth]);
#endif
            OK(fwReproSums(values, N_SUMS, N, FW_FLOAT64, layout, all, own->comm));
#ifdef __SSE2__
            _mm_setcsr(mode);
#endif
            for (size_t i = 0; i < N_SUMS; i++) {
                double exact = RANKS * (double)(i * (N * (N - 1) / 2 - 1)) / 64;
                CHECK(all[i] == (i == 5 ? tiny : exact));
            }
        }
    }
    fwReport report = FW_REPORT_INIT;
    OK(fwCommReport(own->comm, &report));
    CHECK(report.wire_bytes > 0);

    FAILS(FW_UNSUPPORTED, fwReproSum(values, 1, FW_INT32, &sum, own->comm));
    FAILS(FW_INVALID_ARGUMENT, fwReproSum(values, 1, 77, &sum, own->comm));
    FAILS(FW_INVALID_ARGUMENT, fwReproSum(NULL, 1, FW_FLOAT64, &sum, own->comm));
    FAILS(FW_INVALID_ARGUMENT, fwReproSum(values, 1, FW_FLOAT64, NULL, own->comm));
    FAILS(FW_INVALID_ARGUMENT, fwReproSums(values, 1, 1, FW_FLOAT64, 2, all, own->comm));
    FAILS(FW_INVALID_ARGUMENT,
          fwReproSums(values, SIZE_MAX, 2, FW_FLOAT64, FW_ADJACENT, all, own->comm));
    FAILS(FW_INVALID_HANDLE, fwReproSum(values, 1, FW_FLOAT64, &sum, NULL));
    OK(fwGroupStart());
    FAILS(FW_INVALID_USAGE, fwReproSum(values, 1, FW_FLOAT64, &sum, own->comm));
    OK(fwGroupEnd());
    OK(fwCommDestroy(own->comm));
    return NULL;
}

/* Extremes come with the smallest index that has them. */
static void *extremes(void *argument) {
    const Rank *own = argument;
    float values[3] = {(float)own->rank, -1, own->rank == 1 ? NAN : 5};
    int64_t at[3] = {-own->rank, 10 - own->rank, own->rank};
    OK(fwMaxLoc(values, at, 3, FW_FLOAT32, own->comm, NULL));
    CHECK(values[0] == RANKS - 1 && at[0] == 1 - RANKS);
    CHECK(values[1] == -1 && at[1] == 11 - RANKS);
    CHECK(isnan(values[2]) && at[2] == 1);

    uint16_t counts[2] = {(uint16_t)(60000 + own->rank), 7};
    int64_t from[2] = {own->rank, own->rank};
    OK(fwMinLoc(counts, from, 2, FW_UINT16, own->comm, NULL));
    CHECK(counts[0] == 60000 && from[0] == 0 && counts[1] == 7 && from[1] == 0);
    OK(fwMaxLoc(NULL, NULL, 0, FW_INT8, own->comm, NULL));

    /* Two at once. The arrays are the library's until they have finished. */
    double highs[2] = {own->rank, 1}, lows[2] = {own->rank, 1};
    int64_t high_at[2] = {own->rank, own->rank}, low_at[2] = {own->rank, own->rank};
    fwRequest_t both[2];
    OK(fwMaxLoc(highs, high_at, 2, FW_FLOAT64, own->comm, &both[0]));
    OK(fwMinLoc(lows, low_at, 2, FW_FLOAT64, own->comm, &both[1]));
    OK(fwWaitAll(2, both));
    CHECK(both[0] == NULL && highs[0] == RANKS - 1 && high_at[0] == RANKS - 1);
    CHECK(lows[0] == 0 && low_at[0] == 0 && high_at[1] == 0 && low_at[1] == 0);

    FAILS(FW_INVALID_ARGUMENT, fwMaxLoc(values, NULL, 1, FW_FLOAT32, own->comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwMaxLoc(NULL, at, 1, FW_FLOAT32, own->comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwMaxLoc(values, at, 1, FW_COMPLEX64, own->comm, NULL));
    FAILS(FW_INVALID_HANDLE, fwMinLoc(values, at, 1, FW_FLOAT32, NULL, NULL));
    OK(fwGroupStart());
    FAILS(FW_INVALID_USAGE, fwMinLoc(values, at, 1, FW_FLOAT32, own->comm, NULL));
    OK(fwGroupEnd());
    OK(fwCommDestroy(own->comm));
    return NULL;
}

/* Complex numbers are pairs in collectives and messages. */
static void *complex_numbers(void *argument) {
    enum { N = 3 };
    const Rank *own = argument;
    const int next = (own->rank + 1) % RANKS, last = (own->rank + RANKS - 1) % RANKS;
    double wave[N][2], all[RANKS * N][2];
    float single[N][2] = {{(float)own->rank, 1}};
    for (int i = 0; i < N; i++) {
        wave[i][0] = own->rank + i;
        wave[i][1] = -own->rank;
    }
    OK(fwAllGather(wave, all, N, FW_COMPLEX128, NULL, own->comm, NULL));
    for (int i = 0; i < RANKS * N; i++) {
        CHECK(all[i][0] == i / N + i % N && all[i][1] == -(i / N));
    }
    const size_t counts[RANKS] = {N, N, N};
    fwRequest_t request = NULL;
    OK(fwReduceScatterV(all, wave, counts, FW_COMPLEX128, FW_SUM, NULL, own->comm, &request));
    OK(fwWait(&request));
    for (int i = 0; i < N; i++) {
        CHECK(wave[i][0] == RANKS * (own->rank + i) && wave[i][1] == -RANKS * own->rank);
    }
    float got[2];
    OK(fwSendRecv(single, 1, next, got, 1, last, FW_COMPLEX64, 4, NULL, own->comm));
    CHECK(got[0] == last && got[1] == 1);
    OK(fwAllReduce(single, single, N, FW_COMPLEX64, FW_AVG, NULL, own->comm, NULL));
    CHECK(single[0][0] == 1 && single[0][1] == 1 && single[N - 1][1] == 0);

    FAILS(FW_UNSUPPORTED,
          fwAllReduce(wave, wave, N, FW_COMPLEX128, FW_MAX, NULL, own->comm, NULL));
    FAILS(FW_UNSUPPORTED,
          fwAllReduce(wave, wave, N, FW_COMPLEX128, FW_PROD, NULL, own->comm, NULL));
    FAILS(FW_INVALID_ARGUMENT,
          fwAllReduce(wave, wave, SIZE_MAX, FW_COMPLEX128, FW_SUM, NULL, own->comm, NULL));
    OK(fwCommDestroy(own->comm));
    return NULL;
}

static void *disagree(void *argument) {
    const Rank *own = argument;
    double data[COUNT] = {0};
    const size_t count = own->rank == 1 ? COUNT : COUNT - 1;
    fwResult result = fwAllReduce(data, data, count, FW_FLOAT64, FW_SUM, NULL, own->comm, NULL);
    CHECK(result == FW_MISMATCH || result == FW_ABORTED);
    OK(fwCommDestroy(own->comm));
    return NULL;
}

/* A call waits for a late rank only until the timeout. */
static void *late(void *argument) {
    static _Atomic int n_gone;
    const Rank *own = argument;
    if (own->rank > 0) {
        double one = 1;
        fwResult result = fwAllReduce(&one, &one, 1, FW_FLOAT64, FW_SUM, NULL, own->comm, NULL);
        CHECK(result == FW_TIMEOUT || result == FW_ABORTED); /* by the rank that notices first */
        n_gone++;
    }
    while (n_gone < RANKS - 1) {
        sched_yield();
    }
    OK(fwCommDestroy(own->comm));
    return NULL;
}

int main(void) {
    fwConfig five = FW_CONFIG_INIT, soon = FW_CONFIG_INIT;
    five.calls = 5;
    soon.timeout = 0.05;
    on_ranks(exactly, NULL);
    on_ranks(within_bounds, NULL);
    on_ranks(requests, &five);
    on_ranks(messages, NULL);
    on_ranks(letters, NULL);
    on_ranks(operations, NULL);
    on_ranks(groups, NULL);
    on_ranks(split, NULL);
    on_ranks(sums, NULL);
    on_ranks(extremes, NULL);
    on_ranks(complex_numbers, NULL);
    on_ranks(survive, NULL);
    on_ranks(disagree, NULL);
    on_ranks(late, &soon);
    one_thread();
    printf("%d checks\n", n_checks);
    return 0;
}
