/* A program that knows nothing of Foldwire: non-blocking collectives with checked results.

   ahead [TOLERANCE [free|wrong]]: TOLERANCE is the allowed error of each operand, 0 by default.
   Values are whole numbers, so sums do not depend on their order. With `free`, the program frees
   communicators while calls are in progress, in which Open MPI 4.1 itself crashes. It also frees
   requests, which MPI does not allow for requests of its own collectives. With `wrong`, it only
   makes a call whose counts differ between ranks. */
#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

enum { N = 20000, MANY = 6 };
static int frees;

/* Array k has values that are larger by k. */
static double in[MANY][N], out[MANY][N];

static void fill(void) {
    for (int k = 0; k < MANY; k++)
        for (int i = 0; i < N; i++) in[k][i] = value(rank, i) + k, out[k][i] = -1;
}

static int is_sum(int k) {
    int good = 1;
    for (int i = 0; i < N; i++) good &= near(out[k][i], sum(i, size) + k * size, size);
    return good;
}

static void begin(int k, MPI_Comm comm, MPI_Request *request) {
    MPI_Iallreduce(in[k], out[k], N, MPI_DOUBLE, MPI_SUM, comm, request);
}

static void several(void) {
    MPI_Request requests[MANY];
    int good = 1;
    fill();
    for (int k = 0; k < MANY; k++) begin(k, MPI_COMM_WORLD, &requests[k]);
    for (int k = MANY - 1; k >= 0; k--) {
        MPI_Status status;
        MPI_Wait(&requests[k], &status);
        good &= is_sum(k) && requests[k] == MPI_REQUEST_NULL;
    }
    check(good, "several, waited for from the last to the first");
    fill();
    for (int k = 0; k < MANY; k++) begin(k, MPI_COMM_WORLD, &requests[k]);
    double computed = 0;
    int done = 0;
    while (!done) {
        for (int i = 0; i < 1000; i++) computed += sqrt(i);
        MPI_Testall(MANY, requests, &done, MPI_STATUSES_IGNORE);
    }
    good = computed > 0;
    for (int k = 0; k < MANY; k++) good &= is_sum(k);
    check(good, "several, tested while the rank computes");
    fill();
    for (int k = 0; k < MANY; k++) begin(k, MPI_COMM_WORLD, &requests[k]);
    for (int n = 0; n < MANY; n++) {
        int which, is_one = 0;
        MPI_Status status;
        if (n % 2) {
            MPI_Waitany(MANY, requests, &which, &status);
        } else {
            for (which = 0; requests[which] == MPI_REQUEST_NULL;) which++;
            while (!is_one) MPI_Request_get_status(requests[which], &is_one, &status);
            MPI_Test(&requests[which], &is_one, &status);
            good &= is_one;
        }
        good &= is_sum(which);
    }
    check(good, "several, in the order of completion");
}

static void kinds(void) {
    static float f[N];
    static int k[N], m[N];
    static double gaps[2 * N];
    MPI_Request requests[4];
    MPI_Datatype every_other;
    int good = 1;
    fill();
    for (int i = 0; i < N; i++) {
        f[i] = (float)value(rank, i), k[i] = (int)f[i];
        gaps[2 * i] = value(rank, i), gaps[2 * i + 1] = -1;
    }
    MPI_Type_vector(N, 1, 2, MPI_DOUBLE, &every_other);
    MPI_Type_commit(&every_other);
    MPI_Iallreduce(MPI_IN_PLACE, f, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    MPI_Iallreduce(k, m, N, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &requests[1]);
    /* A type with gaps, which is freed before the call is complete, and an operation other than a
       sum. */
    MPI_Iallreduce(in[0], out[0], N, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD, &requests[2]);
    MPI_Ibcast(gaps, 1, every_other, 0, MPI_COMM_WORLD, &requests[3]);
    MPI_Type_free(&every_other);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < N; i++) {
        double most = 0, least = 1000;
        for (int of = 0; of < size; of++) {
            most = fmax(most, value(of, i)), least = fmin(least, value(of, i));
        }
        good &= near(f[i], sum(i, size), size) && m[i] == (int)most && near(out[0][i], least, 1);
        good &= near(gaps[2 * i], value(0, i), 1) && (gaps[2 * i + 1] == -1 || i == N - 1);
    }
    check(good, "in place, of integers, into gaps of a type that is freed");
    double one = rank, all;
    MPI_Iallreduce(&one, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    check(all == size * (size - 1) / 2.0, "a single value is exact");
}

/* Starts all collectives at once, each with its own array. */
static void all_of_them(void) {
    enum { N_CALLS = 17 };
    MPI_Request requests[N_CALLS];
    size_t whole = (size_t)N * size;
    double *arrays = malloc((N_CALLS + 1) * whole * sizeof *arrays), *got[N_CALLS];
    double *mine = arrays + N_CALLS * whole;
    int good = 1, root = size - 1, *counts = malloc(size * sizeof *counts);
    int *places = malloc(size * sizeof *places), *parts = malloc(size * sizeof *parts);
    int first = rank * N;
    MPI_Comm world = MPI_COMM_WORLD;
    for (int k = 0; k < N_CALLS; k++) got[k] = arrays + k * whole;
    for (size_t i = 0; i < N_CALLS * whole; i++) arrays[i] = -1;
    for (size_t i = 0; i < whole; i++) mine[i] = value(rank, (int)i);
    /* The last rank gets nothing, and rank 0 gets its share. Shares start with the last rank's. */
    for (int of = 0; of < size; of++) counts[of] = N, places[of] = (size - 1 - of) * N;
    for (int i = 0; i < N; i++) got[0][i] = value(rank, i), got[2][first + i] = mine[i];
    memcpy(got[6], mine, whole * sizeof *mine);
    MPI_Ibcast(got[0], N, MPI_DOUBLE, root, world, &requests[0]);
    MPI_Iallgather(mine, N, MPI_DOUBLE, got[1], N, MPI_DOUBLE, world, &requests[1]);
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, got[2], N, MPI_DOUBLE, world, &requests[2]);
    MPI_Iallgatherv(mine, N, MPI_DOUBLE, got[3], counts, places, MPI_DOUBLE, world, &requests[3]);
    MPI_Ireduce(mine, got[4], N, MPI_DOUBLE, MPI_SUM, root, world, &requests[4]);
    MPI_Ialltoall(mine, N, MPI_DOUBLE, got[5], N, MPI_DOUBLE, world, &requests[5]);
    MPI_Ialltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, got[6], N, MPI_DOUBLE, world, &requests[6]);
    MPI_Igather(mine, N, MPI_DOUBLE, got[7], N, MPI_DOUBLE, root, world, &requests[7]);
    MPI_Iscatter(mine, N, MPI_DOUBLE, got[8], N, MPI_DOUBLE, root, world, &requests[8]);
    MPI_Ireduce_scatter_block(mine, got[9], N, MPI_DOUBLE, MPI_SUM, world, &requests[9]);
    for (int of = 0; of < size; of++) parts[of] = N;
    if (size > 1) parts[0] = 2 * N, parts[size - 1] = 0;
    MPI_Ireduce_scatter(mine, got[10], parts, MPI_DOUBLE, MPI_SUM, world, &requests[10]);
    begin(0, world, &requests[11]);
    /* Calls on which ranks must agree first, with a type that is freed before they start, and a
       short call between them. */
    MPI_Datatype two;
    int *halves = malloc(size * sizeof *halves), *from = malloc(size * sizeof *from);
    int *one = malloc(size * sizeof *one), *none = calloc(size, sizeof *none);
    for (int of = 0; of < size; of++) halves[of] = N / 2, from[of] = of * (N / 2), one[of] = 1;
    MPI_Type_contiguous(2, MPI_DOUBLE, &two);
    MPI_Type_commit(&two);
    MPI_Igatherv(mine, N / 2, two, got[12], counts, places, MPI_DOUBLE, root, world, &requests[12]);
    MPI_Igatherv(mine, 1, MPI_DOUBLE, got[13], one, places, MPI_DOUBLE, 0, world, &requests[13]);
    MPI_Iscatterv(mine, halves, from, two, got[14], N, MPI_DOUBLE, root, world, &requests[14]);
    MPI_Ialltoallv(mine, halves, from, two, got[15], counts, places, MPI_DOUBLE, world,
                   &requests[15]);
    MPI_Type_free(&two);
    /* An all-to-all without values. */
    MPI_Ialltoallv(mine, none, none, MPI_DOUBLE, got[16], none, none, MPI_DOUBLE, world,
                   &requests[16]);
    for (int k = N_CALLS - 1; k >= 0; k--) MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
    for (int i = 0; i < N; i++) good &= near(got[0][i], value(root, i), 1);
    check(good, "broadcasts");
    good = 1;
    for (int of = 0; of < size; of++)
        for (int i = 0; i < N; i++) {
            double want = value(of, i);
            good &= near(got[1][of * N + i], want, 1);
            good &= near(got[2][of * N + i], want, 1);
            good &= near(got[3][(size - 1 - of) * N + i], want, 1);
            if (rank == root) good &= near(got[7][of * N + i], want, 1);
        }
    check(good, "gathers");
    good = 1;
    if (rank == root)
        for (int i = 0; i < N; i++) good &= near(got[4][i], sum(i, size), size);
    for (int i = 0; i < N; i++) good &= near(got[9][i], sum(first + i, size), size);
    first = rank == 0 ? 0 : first + N;
    for (int i = 0; i < parts[rank]; i++) good &= near(got[10][i], sum(first + i, size), size);
    check(good, "reductions");
    good = 1;
    for (int of = 0; of < size; of++)
        for (int i = 0; i < N; i++) {
            double want = value(of, rank * N + i);
            good &= near(got[5][of * N + i], want, 1) && near(got[6][of * N + i], want, 1);
        }
    for (int i = 0; i < N; i++) good &= near(got[8][i], value(root, rank * N + i), 1);
    check(good, "all-to-alls and scatters");
    good = got[16][0] == -1;
    for (int of = 0; of < size; of++)
        for (int i = 0; i < N; i++) {
            int at = (size - 1 - of) * N + i;
            if (rank == root) good &= near(got[12][at], value(of, i), 1);
            if (rank == 0 && i == 0) good &= got[13][at] == value(of, 0);
            good &= near(got[15][at], value(of, rank * N + i), 1);
        }
    for (int i = 0; i < N; i++) good &= near(got[14][i], value(root, rank * N + i), 1);
    check(good, "calls on which ranks must agree first");
    free(arrays), free(counts), free(places), free(parts);
    free(halves), free(from), free(one), free(none);
}

/* Blocking calls on a communicator with non-blocking calls in progress. */
static void beside(void) {
    static double a[N], b[N];
    MPI_Request requests[4];
    int good = 1, next = (rank + 1) % size, before = (rank + size - 1) % size, token = -1;
    int *counts = calloc(size, sizeof *counts), *places = calloc(size, sizeof *places);
    fill();
    begin(0, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&token, 1, MPI_INT, before, 7, MPI_COMM_WORLD, &requests[1]);
    begin(1, MPI_COMM_WORLD, &requests[2]);
    /* A long call, a short one, one on which ranks must agree first, and one that is never taken.
       */
    for (int i = 0; i < N; i++) a[i] = value(rank, i), counts[i % size]++;
    for (int of = 1; of < size; of++) places[of] = places[of - 1] + counts[of - 1];
    MPI_Allreduce(a, b, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) good &= near(b[i], sum(i, size), size);
    begin(2, MPI_COMM_WORLD, &requests[3]);
    double one = 1, all = 0;
    MPI_Allreduce(&one, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Gatherv(a, counts[rank], MPI_DOUBLE, b, counts, places, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank == 0)
        for (int of = 0; of < size; of++)
            for (int i = 0; i < counts[of]; i++) good &= near(b[places[of] + i], value(of, i), 1);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&rank, 1, MPI_INT, next, 7, MPI_COMM_WORLD);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    check(good && all == size && token == before, "blocking calls beside non-blocking ones");
    check(is_sum(0) && is_sum(1) && is_sum(2), "non-blocking calls beside blocking ones");
    free(counts), free(places);
}

/* A call advances with the progress that MPI guarantees, and does not wait for ranks that have not
   made it. */
static void nobody_waits(MPI_Comm comm, const char *what) {
    MPI_Request request;
    int word = 0, last = size - 1;
    fill();
    if (rank == 0) {
        begin(0, comm, &request);
        if (last) MPI_Send(&word, 1, MPI_INT, last, 1, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (last) MPI_Send(&word, 1, MPI_INT, last, 2, MPI_COMM_WORLD);
    } else {
        if (rank == last) MPI_Recv(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        begin(0, comm, &request);
        /* Rank 0 sends this when it has completed the call. */
        if (rank == last) MPI_Recv(&word, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    check(is_sum(0), what);
}

static void communicators(void) {
    MPI_Comm comms[MANY];
    MPI_Request requests[MANY];
    int good = 1;
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < MANY; k++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[k]);
        nobody_waits(comms[0], "the first call of a communicator");
        /* This call may create Foldwire's communicator. */
        double one = 1, all;
        for (int k = 0; k < MANY; k++) {
            if (k) {
                fill();
                begin(k, comms[k], &requests[0]);
                MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
                good &= is_sum(k);
            }
            MPI_Allreduce(&one, &all, 1, MPI_DOUBLE, MPI_SUM, comms[k]);
            good &= all == size;
        }
        nobody_waits(comms[0], "a later call of a communicator");
        fill();
        /* Each rank starts the calls in another order. */
        for (int n = 0; n < MANY; n++) {
            int k = (n + rank * 2) % MANY;
            begin(k, comms[k], &requests[k]);
        }
        /* Some communicators are freed while their call is in progress. */
        for (int k = 0; frees && k < MANY; k += 2) MPI_Comm_free(&comms[k]);
        MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
        for (int k = 0; k < MANY; k++) good &= is_sum(k);
        for (int k = 0; k < MANY; k++)
            if (comms[k] != MPI_COMM_NULL) MPI_Comm_free(&comms[k]);
    }
    check(good, "many communicators, freed before or after");
}

static MPI_Comm of_thread[2];

static void *in_thread(void *which) {
    int k = *(int *)which;
    MPI_Request request;
    for (int round = 0; round < 20; round++) {
        begin(k, of_thread[k], &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    return NULL;
}

static void threads(void) {
    pthread_t threads[2];
    int numbers[2] = {0, 1};
    double one = 1, all;
    MPI_Request request;
    fill();
    for (int k = 0; k < 2; k++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &of_thread[k]);
        begin(k, of_thread[k], &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Allreduce(&one, &all, 1, MPI_DOUBLE, MPI_SUM, of_thread[k]);
    }
    for (int k = 0; k < 2; k++) pthread_create(&threads[k], NULL, in_thread, &numbers[k]);
    for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
    check(is_sum(0) && is_sum(1), "two threads");
    for (int k = 0; k < 2; k++) MPI_Comm_free(&of_thread[k]);
}

static void freed(void) {
    MPI_Comm comm;
    MPI_Request request;
    double one = 1, all;
    fill();
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    begin(0, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Allreduce(&one, &all, 1, MPI_DOUBLE, MPI_SUM, comm);
    for (int k = 0; k < 3; k++) {
        begin(k, comm, &request);
        MPI_Request_free(&request);
    }
    MPI_Comm_free(&comm);
    check(is_sum(0) && is_sum(1) && is_sum(2), "requests that are freed before they are complete");
}

/* An error is reported by the function that waits for the request. */
static void wrong(void) {
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[2];
    int *counts = malloc(size * sizeof *counts), *places = malloc(size * sizeof *places);
    double *all = malloc((size_t)N * size * sizeof *all);
    for (int of = 0; of < size; of++) counts[of] = N, places[of] = of * N;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Iallgatherv(in[0], rank ? N : N / 2, MPI_DOUBLE, all, counts, places, MPI_DOUBLE,
                    MPI_COMM_WORLD, &requests[1]);
    int code = MPI_Waitall(2, requests, statuses);
    int which = statuses[1].MPI_ERROR;
    MPI_Error_class(code, &code), MPI_Error_class(which, &which);
    int is_refused = code == MPI_ERR_IN_STATUS && which == MPI_ERR_OTHER;
    check(is_refused == (rank == 0) && requests[1] == MPI_REQUEST_NULL, "a wrong count");
    free(counts), free(places), free(all);
}

int main(int argc, char **argv) {
    int provided, all, n_before;
    MPI_Request request;
    tolerance = argc > 1 ? atof(argv[1]) : 0;
    frees = argc > 2 && strcmp(argv[2], "free") == 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 2 && strcmp(argv[2], "wrong") == 0) {
        wrong();
        if (!n_failed) printf("rank %d: as it should be\n", rank);
        MPI_Finalize();
        return n_failed;
    }
    several();
    kinds();
    fill();
    all_of_them();
    beside();
    nobody_waits(MPI_COMM_WORLD, "a call of the world's");
    communicators();
    if (provided == MPI_THREAD_MULTIPLE) threads();
    if (frees && size > 1) freed();
    MPI_Allreduce(&n_failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d failed\n", all);
    n_before = n_failed;
    fill();
    begin(0, MPI_COMM_WORLD, &request);
    if (frees && size > 1) {
        MPI_Request_free(&request);
    } else {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    check(is_sum(0), "a call in progress in MPI_Finalize");
    return all != 0 || n_failed != n_before;
}
