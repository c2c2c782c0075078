/* Tests of invalid arguments, unique ids, and the codec without communication. Run by
 * tests/all/programs.rs. */
#include "check.h"
#include <math.h>

static void *blocks(void *argument) {
    const Rank *own = argument;
    fwResult result;
    /* The other thread may be in a call. */
    while ((result = fwBarrier(own->comm, NULL)) == FW_IN_USE) {
        sched_yield();
    }
    return (void *)(intptr_t)result;
}

/* A second thread gets FW_IN_USE while one is in a call. */
static void two_threads(void) {
    fwComm_t comms[2];
    pthread_t thread;
    void *result;
    OK(fwCommInitAll(comms, 2, NULL));
    Rank first = {comms[0], 0};
    CHECK(pthread_create(&thread, NULL, blocks, &first) == 0);
    /* The thread waits for the other rank, which this thread runs later. */
    fwReport report = FW_REPORT_INIT;
    while (fwCommReport(comms[0], &report) != FW_IN_USE) {
        sched_yield();
    }
    FAILS(FW_IN_USE, fwBarrier(comms[0], NULL));
    FAILS(FW_IN_USE, fwCommDestroy(comms[0]));
    OK(fwBarrier(comms[1], NULL));
    CHECK(pthread_join(thread, &result) == 0 && result == NULL);
    OK(fwCommDestroy(comms[0]));
    OK(fwCommDestroy(comms[1]));
}

/* An operation that makes another call on the communicator that it computes for. */
static void calls_back(const void *input, void *inout, size_t count, void *context) {
    const double *a = input;
    double *b = inout;
    FAILS(FW_IN_USE, fwBarrier(*(fwComm_t *)context, NULL));
    for (size_t i = 0; i < count; i++) {
        b[i] += a[i];
    }
}

static void *sums_by(void *argument) {
    Rank *own = argument;
    double data[2] = {1, own->rank};
    fwRedOp op;
    OK(fwRedOpCreate(&op, calls_back, &own->comm));
    OK(fwAllReduce(data, data, 2, FW_FLOAT64, op, NULL, own->comm, NULL));
    CHECK(data[0] == 2 && data[1] == 1);
    OK(fwRedOpDestroy(op));
    OK(fwCommDestroy(own->comm));
    return NULL;
}

static void two_calls_back(void) {
    fwComm_t comms[2];
    pthread_t thread;
    OK(fwCommInitAll(comms, 2, NULL));
    Rank ranks[2] = {{comms[0], 0}, {comms[1], 1}};
    CHECK(pthread_create(&thread, NULL, sums_by, &ranks[1]) == 0);
    sums_by(&ranks[0]);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void misuse(void) {
    fwComm_t comm, other = (fwComm_t)(uintptr_t)0x1234567890;
    double data[8] = {1}, out[8];
    fwRequest_t request;
    fwPlan plan = FW_PLAN_INIT;
    fwConfig config = FW_CONFIG_INIT;
    const fwDataType type = FW_FLOAT64;
    int32_t number;
    OK(fwCommInitAll(&comm, 1, NULL));
    /* Handles. */
    FAILS(FW_INVALID_HANDLE, fwBarrier(NULL, NULL));
    FAILS(FW_INVALID_HANDLE, fwBarrier(other, NULL));
    FAILS(FW_INVALID_HANDLE, fwBarrier((fwComm_t)(void *)data, NULL));
    OK(fwBarrier(comm, &request));
    FAILS(FW_INVALID_HANDLE, fwBarrier((fwComm_t)(void *)request, NULL));
    fwRequest_t wrong = (fwRequest_t)(void *)comm;
    FAILS(FW_INVALID_HANDLE, fwWait(&wrong));
    fwRequest_t twice[2] = {request, request};
    FAILS(FW_INVALID_ARGUMENT, fwWaitAll(2, twice));
    OK(fwWait(&request));
    /* Memory. No machine has this device. */
    fwMemory memory = FW_MEMORY_INIT;
    OK(fwCommSetMemory(comm, NULL));
    OK(fwCommSetMemory(comm, &memory));
    FAILS(FW_INVALID_HANDLE, fwCommSetMemory(other, &memory));
    memory.kind = 2;
    FAILS(FW_INVALID_ARGUMENT, fwCommSetMemory(comm, &memory));
    memory.kind = FW_MEMORY_DEVICE;
    memory.device = -1;
    FAILS(FW_INVALID_ARGUMENT, fwCommSetMemory(comm, &memory));
    memory.device = 1000000;
    FAILS(FW_UNSUPPORTED, fwCommSetMemory(comm, &memory));
    memory.size = 8;
    FAILS(FW_INVALID_ARGUMENT, fwCommSetMemory(comm, &memory));
    OK(fwGroupStart());
    FAILS(FW_INVALID_USAGE, fwCommSetMemory(comm, NULL));
    OK(fwGroupEnd());
    OK(fwAllReduce(data, out, 8, type, FW_SUM, NULL, comm, NULL));
    /* Operations. */
    fwRedOp op;
    FAILS(FW_INVALID_ARGUMENT, fwRedOpCreate(&op, NULL, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwRedOpCreate(NULL, calls_back, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwRedOpDestroy(FW_SUM));
    two_calls_back();
    /* Pointers. */
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(NULL, out, 8, type, FW_SUM, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, NULL, 8, type, FW_SUM, NULL, comm, NULL));
    OK(fwAllReduce(NULL, NULL, 0, type, FW_SUM, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT,
          fwAllReduce((char *)data + 1, out, 7, type, FW_SUM, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, data + 1, 7, type, FW_SUM, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwAllGatherV(data, out, NULL, type, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwCommCount(comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwCommInitAll(NULL, 2, NULL));
    FAILS(FW_INVALID_ARGUMENT,
          fwAllReduce(data, out, 8, type, FW_SUM, NULL, comm, (fwRequest_t *)((char *)out + 1)));
    /* Arrays that overlap. */
    int64_t mixed[8] = {3, 1, 2, 4, 5, 6, 7, 8};
    FAILS(FW_INVALID_ARGUMENT, fwMaxLoc(mixed, mixed + 1, 3, FW_INT64, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwMinLoc(mixed + 1, mixed, 3, FW_INT64, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwMinLoc(mixed, mixed, 1, FW_INT8, comm, &request));
    FAILS(FW_INVALID_ARGUMENT, fwReproSum(data, 8, type, data + 7, comm));
    FAILS(FW_INVALID_ARGUMENT, fwReproSums(data + 1, 2, 3, type, FW_ADJACENT, data, comm));
    CHECK(strstr(fwGetLastError(), "overlap") != NULL);
    CHECK(mixed[0] == 3 && mixed[1] == 1 && mixed[2] == 2 && mixed[3] == 4 && data[0] == 1);
    OK(fwMaxLoc(mixed, mixed + 4, 4, FW_INT64, comm, NULL));
    OK(fwReproSum(data, 7, type, data + 7, comm));
    CHECK(data[7] == 1);
    data[7] = 0;
    /* Complex values in functions that have no order or no parts for them. */
    const char *complex_only = "complex values are for collectives and messages only";
    size_t n_bytes;
    FAILS(FW_INVALID_ARGUMENT, fwMaxLoc(data, mixed, 1, FW_COMPLEX64, comm, NULL));
    CHECK(strstr(fwGetLastError(), complex_only) != NULL);
    FAILS(FW_INVALID_ARGUMENT, fwReproSum(data, 1, FW_COMPLEX128, out, comm));
    CHECK(strstr(fwGetLastError(), complex_only) != NULL);
    FAILS(FW_INVALID_ARGUMENT, fwCompress(data, 1, FW_COMPLEX64, NULL, out, sizeof out, &n_bytes));
    CHECK(strstr(fwGetLastError(), complex_only) != NULL);
    /* Numbers. */
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, out, 8, 0, FW_SUM, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, out, 8, 13, FW_SUM, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, out, 8, 257, FW_SUM, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, out, 8, type, 0, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, out, 8, type, 6, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, out, SIZE_MAX, type, FW_SUM, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT,
          fwAllReduce(data, out, SIZE_MAX / 8, type, FW_SUM, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwGather(data, out, SIZE_MAX / 4, type, 0, NULL, comm, NULL));
    const size_t too_many[1] = {SIZE_MAX};
    FAILS(FW_INVALID_ARGUMENT, fwAllGatherV(data, out, too_many, type, NULL, comm, NULL));
    /* A rank's own block has one length. */
    const size_t one[1] = {1}, two[1] = {2};
    FAILS(FW_INVALID_ARGUMENT, fwAllToAllV(data, one, out, two, type, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwAllToAllV(data, two, out, one, type, NULL, comm, NULL));
    OK(fwAllToAllV(data, two, out, two, type, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwBroadcast(data, data, 8, type, 1, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwBroadcast(data, data, 8, type, -1, NULL, comm, NULL));
    FAILS(FW_UNSUPPORTED, fwAllReduce(data, out, 2, FW_INT64, FW_AVG, NULL, comm, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwCommInitAll(&other, 0, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwCommInitAll(&other, -1, NULL));
    /* Structs: too short, of a later version with and without new data. */
    struct {
        fwPlan plan;
        uint64_t more;
    } later = {FW_PLAN_INIT, 0};
    later.plan.size = sizeof later;
    OK(fwAllReduce(data, out, 8, type, FW_SUM, &later.plan, comm, NULL));
    later.more = 1;
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, out, 8, type, FW_SUM, &later.plan, comm, NULL));
    plan.size = 8;
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, out, 8, type, FW_SUM, &plan, comm, NULL));
    config.reserved = 1;
    FAILS(FW_INVALID_ARGUMENT, fwCommInitAll(&other, 1, &config));
    config = (fwConfig)FW_CONFIG_INIT;
    config.timeout = -1;
    FAILS(FW_INVALID_ARGUMENT, fwCommInitAll(&other, 1, &config));
    plan = (fwPlan)FW_PLAN_INIT;
    OK(fwPlanParse("rel:2", &plan));
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, out, 8, type, FW_SUM, &plan, comm, NULL));
    /* Plans that contradict themselves. */
    const char *refused[] = {"", "fast", "rel", "rel:0", "rel:1,abs:1", "auto", "exact,rel:1e-3",
                             "lossless,abs:1", "codec:dense", "codec:zip", "schedule:round",
                             "lossless,codec:truncate", "abs:1,codec:mpc", "auto,exact,rel:1e-3",
                             "shape:3x0", "below:-1", "scope:all", "auto,rel:1,codec:dense",
                             "lanes:0"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        FAILS(FW_INVALID_ARGUMENT, fwPlanParse(refused[i], &plan));
    }
    const char *good[] = {"exact", "rel:1e-4", "auto, abs:0.1,below:4096", "codec:mpc",
                          "codec:truncate:40", "psnr:60,codec:fz-nd,shape:110x64x128"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        OK(fwPlanParse(good[i], &plan));
    }
    CHECK(plan.mode == FW_COMPRESS && plan.shape[2] == 128 && plan.bound_kind == FW_PSNR);
    FAILS(FW_INVALID_ARGUMENT, fwPlanParse(NULL, &plan));
    plan = (fwPlan)FW_PLAN_INIT;
    plan.bound = 1e-3;
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, out, 8, type, FW_SUM, &plan, comm, NULL));
    plan.bound_kind = FW_RELATIVE;
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, out, 8, type, FW_SUM, &plan, comm, NULL));
    plan = (fwPlan)FW_PLAN_INIT;
    plan.lanes = 9;
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, out, 8, type, FW_SUM, &plan, comm, NULL));
    OK(fwPlanParse("lanes:3,unbiased:5", &plan));
    CHECK(plan.lanes == 3 && plan.is_unbiased == 1 && plan.seed == 5);
    plan.mode = 17;
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, out, 8, type, FW_SUM, &plan, comm, NULL));
    memset(plan.codec, 'x', sizeof plan.codec);
    FAILS(FW_INVALID_ARGUMENT, fwAllReduce(data, out, 8, type, FW_SUM, &plan, comm, NULL));
    /* After all these errors the communicator works, and after fwCommDestroy it is refused. */
    OK(fwAllReduce(data, out, 8, type, FW_SUM, NULL, comm, NULL));
    CHECK(out[0] == 1);
    OK(fwCommDestroy(comm));
    FAILS(FW_INVALID_HANDLE, fwCommDestroy(comm));
    FAILS(FW_INVALID_HANDLE, fwAllReduce(data, out, 8, type, FW_SUM, NULL, comm, NULL));
    OK(fwGetVersion(&number));
    CHECK(number == FW_VERSION_MAJOR * 10000 + FW_VERSION_MINOR * 100 + FW_VERSION_PATCH);
    CHECK(!strcmp(fwGetErrorString(FW_SUCCESS), "no error"));
    CHECK(strlen(fwGetErrorString(-7)) > 0);
}

/* One thread joins two ranks with one id, with these numbers of ranks and ranks. */
static fwResult join_both(fwComm_t comms[2], fwUniqueId id, const int32_t numbers[2],
                          const int32_t ranks[2], double timeout) {
    fwConfig config = FW_CONFIG_INIT;
    config.timeout = timeout;
    OK(fwGroupStart());
    for (int i = 0; i < 2; i++) {
        OK(fwCommInitRank(&comms[i], numbers[i], id, ranks[i], &config));
        CHECK(comms[i] == NULL);
    }
    return fwGroupEnd();
}

static void tokens(void) {
    const int32_t two[2] = {2, 2}, three[2] = {3, 3}, differ[2] = {2, 3};
    const int32_t down[2] = {1, 0}, up[2] = {0, 1}, same[2] = {1, 1};
    fwUniqueId id, again;
    fwComm_t comms[2], none;
    OK(fwGetUniqueId(&id));
    OK(fwGetUniqueId(&again));
    CHECK(memcmp(&id, &again, sizeof id) != 0);
    OK(join_both(comms, id, two, down, 60));
    fwRequest_t both[2];
    OK(fwBarrier(comms[0], &both[0]));
    OK(fwBarrier(comms[1], &both[1]));
    OK(fwWaitAll(2, both));
    OK(fwCommDestroy(comms[0]));
    OK(fwCommDestroy(comms[1]));
    /* The id is used up. */
    FAILS(FW_INVALID_ARGUMENT, fwCommInitRank(&none, 2, id, 0, NULL));
    FAILS(FW_PEER_LOST, fwCommInitRank(&none, 2, id, 1, NULL));
    /* Invalid arguments do not use up an id. */
    FAILS(FW_INVALID_ARGUMENT, fwCommInitRank(&none, 2, again, 2, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwCommInitRank(&none, 2, again, -1, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwCommInitRank(&none, 0, again, 0, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwCommInitRank(&none, 70000, again, 0, NULL));
    FAILS(FW_INVALID_ARGUMENT, fwCommInitRank(NULL, 1, again, 0, NULL));
    OK(fwCommInitRank(&comms[0], 1, again, 0, NULL));
    OK(fwGroupStart());
    OK(fwBarrier(comms[0], NULL));
    OK(fwCommInitRank(&none, 1, again, 0, NULL));
    FAILS(FW_INVALID_USAGE, fwGroupEnd());
    OK(fwCommDestroy(comms[0]));
    CHECK(none == NULL);
    /* Ranks that disagree, and missing ranks: no communicator is created. */
    OK(fwGetUniqueId(&id));
    FAILS(FW_MISMATCH, join_both(comms, id, differ, up, 3));
    CHECK(comms[0] == NULL && comms[1] == NULL);
    OK(fwGetUniqueId(&id));
    FAILS(FW_TIMEOUT, join_both(comms, id, three, up, 0.3));
    OK(fwGetUniqueId(&id));
    CHECK(join_both(comms, id, three, same, 0.3) != FW_SUCCESS);
    memset(&again, 0, sizeof again);
    FAILS(FW_INVALID_ARGUMENT, fwCommInitRank(&none, 2, again, 0, NULL));
    again = id;
    again.internal[sizeof again.internal - 1] = 1;
    FAILS(FW_INVALID_ARGUMENT, fwCommInitRank(&none, 2, again, 1, NULL));
    /* Without variables of a launcher, the process is the only rank. */
    OK(fwCommInitEnv(&comms[0], NULL));
    int32_t size;
    OK(fwCommCount(comms[0], &size));
    CHECK(size == 1);
    OK(fwCommDestroy(comms[0]));
    setenv("FOLDWIRE_RANK", "2", 1);
    FAILS(FW_INVALID_ARGUMENT, fwCommInitEnv(&none, NULL));
    unsetenv("FOLDWIRE_RANK");
    setenv("FOLDWIRE_ADDRESS", "0.0.0.0", 1);
    FAILS(FW_INVALID_ARGUMENT, fwGetUniqueId(&id));
    setenv("FOLDWIRE_ADDRESS", "nowhere", 1);
    FAILS(FW_INVALID_ARGUMENT, fwGetUniqueId(&id));
    unsetenv("FOLDWIRE_ADDRESS");
}

static void codec(void) {
    enum { N = 10000 };
    float values[N], back[N + 1];
    size_t most, n_bytes, count;
    for (size_t i = 0; i < N; i++) {
        values[i] = sinf(1e-3f * (float)i);
    }
    values[5] = NAN;
    OK(fwCompressMaxSize(N, FW_FLOAT32, &most));
    CHECK(most > N);
    unsigned char *bytes = malloc(most);
    CHECK(bytes != NULL);
    fwPlan plan;
    OK(fwPlanParse("rel:1e-4", &plan));
    for (int lossy = 0; lossy < 2; lossy++) {
        const fwPlan *by = lossy ? &plan : NULL;
        OK(fwCompress(values, N, FW_FLOAT32, by, bytes, most, &n_bytes));
        CHECK(n_bytes <= most && (!lossy || n_bytes < N));
        fwDataType type;
        uint64_t n;
        double bound;
        OK(fwCompressedInfo(bytes, n_bytes, &type, &n, &bound));
        CHECK(type == FW_FLOAT32 && n == N && (bound > 0) == lossy);
        OK(fwDecompress(bytes, n_bytes, FW_FLOAT32, back, N + 1, &count));
        CHECK(count == N && isnan(back[5]));
        for (size_t i = 0; i < N; i++) {
            CHECK(i == 5 || fabsf(values[i] - back[i]) <= (lossy ? 2e-4f : 0));
        }
    }
    FAILS(FW_NO_ROOM, fwCompress(values, N, FW_FLOAT32, &plan, bytes, 10, &count));
    CHECK(count == n_bytes);
    FAILS(FW_NO_ROOM, fwDecompress(bytes, n_bytes, FW_FLOAT32, back, N - 1, &count));
    FAILS(FW_DAMAGED, fwDecompress(bytes, n_bytes, FW_FLOAT64, back, N / 2, &count));
    FAILS(FW_DAMAGED, fwDecompress(bytes, n_bytes - 1, FW_FLOAT32, back, N, &count));
    bytes[n_bytes / 2] ^= 1;
    FAILS(FW_DAMAGED, fwDecompress(bytes, n_bytes, FW_FLOAT32, back, N, &count));
    FAILS(FW_DAMAGED, fwCompressedInfo("nonsense", 8, NULL, NULL, NULL));
    // Integers are exact, also within a bound.
    OK(fwCompress(values, N, FW_INT32, &plan, bytes, most, &n_bytes));
    OK(fwDecompress(bytes, n_bytes, FW_INT32, back, N, &count));
    CHECK(count == N && memcmp(values, back, sizeof values) == 0);
    // Every codec can be named, but not for any type.
    OK(fwPlanParse("codec:dense,abs:1e-3,shape:100x100", &plan));
    OK(fwCompress(values, N, FW_FLOAT32, &plan, bytes, most, &n_bytes));
    OK(fwDecompress(bytes, n_bytes, FW_FLOAT32, back, N, &count));
    CHECK(count == N && fabsf(values[77] - back[77]) <= 1e-3f);
    FAILS(FW_UNSUPPORTED, fwCompress(values, N, FW_FLOAT16, &plan, bytes, most, &n_bytes));
    FAILS(FW_UNSUPPORTED, fwCompress(values, N, FW_INT32, &plan, bytes, most, &n_bytes));
    OK(fwPlanParse("codec:truncate:23", &plan));
    FAILS(FW_INVALID_ARGUMENT, fwCompress(values, N, FW_FLOAT32, &plan, bytes, most, &n_bytes));
    OK(fwPlanParse("abs:1,scope:result", &plan));
    FAILS(FW_UNSUPPORTED, fwCompress(values, N, FW_FLOAT32, &plan, bytes, most, &n_bytes));
    OK(fwPlanParse("rel:2", &plan));
    FAILS(FW_INVALID_ARGUMENT, fwCompress(values, N, FW_FLOAT32, &plan, bytes, most, &n_bytes));
    FAILS(FW_INVALID_ARGUMENT, fwCompressMaxSize(SIZE_MAX, FW_FLOAT64, &most));
    // A fill value keeps its bits, and the bound is relative to the range of the other values.
    values[5] = 0;
    values[100] = values[9000] = 1e20f;
    OK(fwPlanParse("rel:1e-3", &plan));
    OK(fwCompress(values, N, FW_FLOAT32, &plan, bytes, most, &n_bytes));
    CHECK(fwSuspectedFill() == 1e20f);
    plan.refuses_fill = 1;
    FAILS(FW_INVALID_ARGUMENT, fwCompress(values, N, FW_FLOAT32, &plan, bytes, most, &n_bytes));
    CHECK(n_bytes == 0 && isnan(fwSuspectedFill()));
    CHECK(strstr(fwGetLastError(), "sets the value range"));
    OK(fwCompressFill(values, N, FW_FLOAT32, 1e20, &plan, bytes, most, &n_bytes));
    CHECK(isnan(fwSuspectedFill()));
    OK(fwDecompress(bytes, n_bytes, FW_FLOAT32, back, N, &count));
    for (size_t i = 0; i < N; i++) {
        CHECK(values[i] == 1e20f ? back[i] == 1e20f : fabsf(values[i] - back[i]) <= 2e-3f);
    }
    CHECK(n_bytes < N);
    OK(fwPlanParse("codec:truncate:16", &plan));
    FAILS(FW_INVALID_ARGUMENT,
          fwCompressFill(values, N, FW_FLOAT32, 1e20, &plan, bytes, most, &n_bytes));
    free(bytes);
}

int main(void) {
    two_threads();
    misuse();
    tokens();
    codec();
    printf("%d checks\n", n_checks);
    return 0;
}
