/* A program that knows nothing of Foldwire: point-to-point messages of all kinds between at least
   two ranks, with checked results.

   messages [TOLERANCE]: the allowed error of each value, 0 by default. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 8192, MORE = N + 1000 };

static int rank, size, n_failed;
static double tolerance;

#define CHECK(what)                                                                     \
    do {                                                                                \
        if (!(what)) {                                                                  \
            n_failed++;                                                                 \
            printf("rank %d, line %d: %s\n", rank, __LINE__, #what);                    \
        }                                                                               \
    } while (0)

/* Value i of message `which` of rank `from`: smooth, with some special values. */
static double value(int from, int which, int i) {
    if (i % 1000 == 999) return which % 2 ? NAN : -0.0;
    return 100 * sin(0.001 * i + from + 0.1 * which);
}

static int is_value(double got, int from, int which, int i) {
    double expected = value(from, which, i);
    if (isnan(expected)) return isnan(got);
    if (tolerance == 0) return got == expected && signbit(got) == signbit(expected);
    return fabs(got - expected) <= tolerance;
}

static float *floats(int n, int which) {
    float *all = malloc(sizeof *all * n);
    for (int i = 0; i < n; i++) all[i] = value(rank, which, i);
    return all;
}

static int are_floats(const float *all, int n, int from, int which) {
    for (int i = 0; i < n; i++) {
        float expected = value(from, which, i);
        int good = isnan(expected)  ? isnan(all[i])
                   : tolerance == 0 ? all[i] == expected && !signbit(all[i]) == !signbit(expected)
                                    : fabs(all[i] - expected) <= tolerance;
        if (!good) return 0;
    }
    return 1;
}

static int are_close(const float *got, const float *expected, int n) {
    for (int i = 0; i < n; i++) {
        int are_equal = memcmp(&got[i], &expected[i], sizeof *got) == 0;
        if (!are_equal && !(fabs(got[i] - expected[i]) <= tolerance)) return 0;
    }
    return 1;
}

static int count_of(const MPI_Status *status, MPI_Datatype type) {
    int n = -1;
    MPI_Get_count(status, type, &n);
    return n;
}

/* Sends to the next rank and receives from the one before. */
static int next, before;

static void blocking(void) {
    float *out = floats(N, 1), *in = malloc(sizeof *in * MORE);
    MPI_Status status;
    memset(in, 1, sizeof *in * MORE);
    if (rank == 0) MPI_Send(out, N, MPI_FLOAT, next, 7, MPI_COMM_WORLD);
    MPI_Recv(in, MORE, MPI_FLOAT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    if (rank) MPI_Send(out, N, MPI_FLOAT, next, 7, MPI_COMM_WORLD);
    CHECK(are_floats(in, N, before, 1));
    CHECK(count_of(&status, MPI_FLOAT) == N && status.MPI_SOURCE == before);
    CHECK(status.MPI_TAG == 7);
    /* What lies behind the message stays. */
    int is_untouched = 1;
    for (int i = N * 4; i < MORE * 4; i++) is_untouched &= ((char *)in)[i] == 1;
    CHECK(is_untouched);
    MPI_Barrier(MPI_COMM_WORLD);
    free(out), free(in);
}

static void exchanged(void) {
    double *out = malloc(sizeof *out * N), *in = malloc(sizeof *in * MORE);
    for (int i = 0; i < N; i++) out[i] = value(rank, 2, i);
    MPI_Status status;
    MPI_Sendrecv(out, N, MPI_DOUBLE, next, 3, in, MORE, MPI_DOUBLE, before, 3, MPI_COMM_WORLD,
                 &status);
    int good = 1;
    for (int i = 0; i < N; i++) good &= is_value(in[i], before, 2, i);
    CHECK(good && count_of(&status, MPI_DOUBLE) == N && status.MPI_SOURCE == before);
    MPI_Sendrecv_replace(out, N, MPI_DOUBLE, next, 4, before, 4, MPI_COMM_WORLD, &status);
    for (int i = 0; i < N; i++) good &= is_value(out[i], before, 2, i);
    CHECK(good && count_of(&status, MPI_DOUBLE) == N && status.MPI_TAG == 4);
    /* Nobody on one side. */
    int to = rank == size - 1 ? MPI_PROC_NULL : rank + 1, from = rank ? rank - 1 : MPI_PROC_NULL;
    for (int i = 0; i < N; i++) out[i] = value(rank, 3, i), in[i] = 5;
    MPI_Sendrecv(out, N, MPI_DOUBLE, to, 3, in, N, MPI_DOUBLE, from, 3, MPI_COMM_WORLD, &status);
    for (int i = 0; i < N; i++) good &= rank ? is_value(in[i], from, 3, i) : in[i] == 5;
    CHECK(good && count_of(&status, MPI_DOUBLE) == (rank ? N : 0));
    MPI_Sendrecv(out, N, MPI_DOUBLE, rank, 3, in, N, MPI_DOUBLE, rank, 3, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 0; i < N; i++) good &= is_value(in[i], rank, 3, i);
    CHECK(good);
    free(out), free(in);
}

enum { K = 4 };

/* Whether MPI_Wait gives the status of no message after MPI_Request_get_status has given that of a
   persistent request's message. MPICH 5.0 does so without Foldwire, too. */
static int forgets_status(void) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length, major = 0;
    MPI_Get_library_version(text, &length);
    return sscanf(text, "MPICH Version: %d", &major) == 1 && major >= 5;
}

/* Completes all requests by one of MPI's functions. */
static void complete(int how, MPI_Request *requests, MPI_Status *statuses, float **in) {
    int seen[2 * K + 1] = {0}, n_seen = 0;
    int n = 2 * K + 1, index, flag = 0, n_done, indices[2 * K + 1];
    MPI_Status status;
    switch (how) {
    case 0:
        for (int k = 0; k < n; k++) MPI_Wait(&requests[k], &statuses[k]);
        break;
    case 1:
        MPI_Waitall(n, requests, statuses);
        break;
    case 2:
        MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
        break;
    case 3:
        while (!flag) MPI_Testall(n, requests, &flag, statuses);
        break;
    case 4:
    case 5:
        for (;;) {
            flag = 1;
            if (how == 4)
                MPI_Waitany(n, requests, &index, &status);
            else
                MPI_Testany(n, requests, &index, &flag, &status);
            if (!flag) continue;
            if (index == MPI_UNDEFINED) break;
            CHECK(!seen[index]);
            seen[index] = 1, statuses[index] = status, n_seen++;
        }
        CHECK(n_seen == 2 * K);
        break;
    case 6:
    case 7:
        for (;;) {
            MPI_Status some[2 * K + 1];
            if (how == 6)
                MPI_Waitsome(n, requests, &n_done, indices, some);
            else
                MPI_Testsome(n, requests, &n_done, indices, some);
            if (n_done == MPI_UNDEFINED) break;
            for (int i = 0; i < n_done; i++) {
                CHECK(!seen[indices[i]]);
                seen[indices[i]] = 1, statuses[indices[i]] = some[i], n_seen++;
            }
        }
        CHECK(n_seen == 2 * K);
        break;
    case 8:
        for (int k = 0; k < n; k++)
            for (flag = 0; !flag;) MPI_Test(&requests[k], &flag, &statuses[k]);
        break;
    case 9:
        /* The status is read first, and the buffer with it. */
        for (int k = 0; k < 2 * K; k++) {
            for (flag = 0; !flag;) MPI_Request_get_status(requests[k], &flag, &status);
            if (k < K) {
                CHECK(count_of(&status, MPI_FLOAT) == N + k);
                CHECK(are_floats(in[k], N + k, before, k));
            }
            MPI_Wait(&requests[k], &statuses[k]);
            int is_persistent = requests[k] != MPI_REQUEST_NULL;
            if (is_persistent && forgets_status()) statuses[k] = status;
        }
        break;
    case 10:
        /* The sends are forgotten. */
        for (int k = 0; k < K; k++) MPI_Request_free(&requests[K + k]);
        CHECK(requests[K] == MPI_REQUEST_NULL);
        MPI_Waitall(K, requests, statuses);
        break;
    }
}

static void check_received(int how, float **in, const MPI_Status *statuses) {
    for (int k = 0; k < K; k++) {
        CHECK(are_floats(in[k], N + k, before, k));
        if (how != 2) {
            CHECK(count_of(&statuses[k], MPI_FLOAT) == N + k);
            CHECK(statuses[k].MPI_SOURCE == before && statuses[k].MPI_TAG == 10 + k);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Several at once. */
static void started(int how) {
    float *out[K], *in[K];
    MPI_Request requests[2 * K + 1];
    MPI_Status statuses[2 * K + 1];
    for (int k = 0; k < K; k++) {
        in[k] = malloc(sizeof(float) * MORE);
        MPI_Irecv(in[k], MORE, MPI_FLOAT, k % 2 ? MPI_ANY_SOURCE : before, 10 + k, MPI_COMM_WORLD,
                  &requests[k]);
    }
    for (int k = 0; k < K; k++) {
        out[k] = floats(N + k, k);
        MPI_Isend(out[k], N + k, MPI_FLOAT, next, 10 + k, MPI_COMM_WORLD, &requests[K + k]);
    }
    requests[2 * K] = MPI_REQUEST_NULL;
    complete(how, requests, statuses, in);
    for (int k = 0; k < 2 * K; k++) CHECK(requests[k] == MPI_REQUEST_NULL);
    check_received(how, in, statuses);
    for (int k = 0; k < K; k++) free(out[k]), free(in[k]);
}

/* The same with persistent requests, three times. The datatype is freed before the first start. */
static void restarted(int how) {
    float *out[K], *in[K];
    MPI_Request requests[2 * K + 1], before_start[2 * K + 1];
    MPI_Status statuses[2 * K + 1];
    MPI_Datatype pair;
    for (int k = 0; k < K; k++) {
        in[k] = malloc(sizeof(float) * MORE);
        out[k] = floats(N + k, k);
        MPI_Recv_init(in[k], MORE, MPI_FLOAT, before, 10 + k, MPI_COMM_WORLD, &requests[k]);
        MPI_Type_contiguous(N + k, MPI_FLOAT, &pair);
        MPI_Type_commit(&pair);
        MPI_Send_init(out[k], 1, pair, next, 10 + k, MPI_COMM_WORLD, &requests[K + k]);
        MPI_Type_free(&pair);
    }
    requests[2 * K] = MPI_REQUEST_NULL;
    for (int turn = 0; turn < 3; turn++) {
        for (int k = 0; k < K; k++) {
            memset(in[k], 1, sizeof(float) * MORE);
            /* Random bits, the same on all ranks: such messages are passed on. */
            srand(k);
            for (int i = 0; i < N + k && turn == 1; i++) {
                unsigned bits = (unsigned)rand() * 3u;
                memcpy(&out[k][i], &bits, sizeof bits);
            }
            for (int i = 0; i < N + k && turn == 2; i++) out[k][i] = value(rank, k, i);
        }
        memcpy(before_start, requests, sizeof requests);
        if (turn == 0)
            for (int k = 0; k < 2 * K; k++) MPI_Start(&requests[k]);
        else
            MPI_Startall(2 * K, requests);
        if (how >= 9 && turn < 2)
            MPI_Waitall(2 * K, requests, statuses);
        else
            complete(how, requests, statuses, in);
        for (int k = 0; k < (how == 10 && turn == 2 ? K : 2 * K); k++)
            CHECK(requests[k] == before_start[k]);
        if (turn != 1)
            check_received(how, in, statuses);
        else
            for (int k = 0; k < K; k++) CHECK(are_close(in[k], out[k], N + k));
    }
    for (int k = 0; k < (how == 10 ? K : 2 * K); k++) MPI_Request_free(&requests[k]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int k = 0; k < K; k++) free(out[k]), free(in[k]);
}

/* Messages keep their order, with and without compressed messages. */
static void order(void) {
    int lengths[] = {N, 3, N + 1, 0, 40, N + 2};
    enum { M = sizeof lengths / sizeof *lengths };
    float *out = floats(MORE, 5), *in = malloc(sizeof *in * MORE);
    MPI_Request requests[M];
    for (int m = 0; m < M; m++) {
        if (m % 2)
            MPI_Issend(out, lengths[m], MPI_FLOAT, next, 2, MPI_COMM_WORLD, &requests[m]);
        else
            MPI_Isend(out, lengths[m], MPI_FLOAT, next, 2, MPI_COMM_WORLD, &requests[m]);
    }
    for (int m = 0; m < M; m++) {
        MPI_Status status;
        MPI_Recv(in, MORE, MPI_FLOAT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        CHECK(count_of(&status, MPI_FLOAT) == lengths[m]);
        CHECK(are_floats(in, lengths[m], before, 5));
    }
    MPI_Waitall(M, requests, MPI_STATUSES_IGNORE);
    free(out), free(in);
}

static void persistent(void) {
    float *out = floats(N, 6), *in = malloc(sizeof *in * MORE), *in2 = malloc(sizeof *in * MORE);
    MPI_Request both[2], later;
    MPI_Recv_init(in, MORE, MPI_FLOAT, before, 1, MPI_COMM_WORLD, &both[0]);
    MPI_Send_init(out, N, MPI_FLOAT, next, 1, MPI_COMM_WORLD, &both[1]);
    MPI_Recv_init(in2, MORE, MPI_FLOAT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &later);
    for (int turn = 0; turn < 5; turn++) {
        MPI_Status statuses[2], status;
        for (int i = 0; i < N; i++) out[i] = value(rank, turn, i);
        MPI_Startall(2, both);
        MPI_Start(&later);
        MPI_Send(out, N, MPI_FLOAT, next, 2, MPI_COMM_WORLD);
        if (turn % 2) {
            int index;
            MPI_Waitany(1, &later, &index, &status);
            CHECK(index == 0);
        } else {
            MPI_Wait(&later, &status);
        }
        MPI_Waitall(2, both, statuses);
        CHECK(are_floats(in, N, before, turn) && are_floats(in2, N, before, turn));
        CHECK(count_of(&status, MPI_FLOAT) == N && count_of(&statuses[0], MPI_FLOAT) == N);
        /* An inactive request completes at once, with an empty status. */
        MPI_Wait(&later, &status);
        CHECK(count_of(&status, MPI_FLOAT) == 0 && status.MPI_SOURCE == MPI_ANY_SOURCE);
        CHECK(are_floats(in2, N, before, turn));
    }
    /* Cancelled after it has arrived, which changes nothing. */
    MPI_Status status;
    int is_cancelled = 1;
    MPI_Startall(2, both);
    MPI_Wait(&both[0], MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Cancel(&both[1]);
    MPI_Wait(&both[1], &status);
    MPI_Test_cancelled(&status, &is_cancelled);
    CHECK(!is_cancelled && are_floats(in, N, before, 4));
    MPI_Request_free(&both[0]), MPI_Request_free(&both[1]), MPI_Request_free(&later);
    free(out), free(in), free(in2);
}

/* Sends a vector of a type of Fortran's parameters, which MPI predefines, into one. */
static void parameters(void) {
    MPI_Datatype real8, gaps;
    MPI_Type_create_f90_real(15, 307, &real8);
    for (int turn = 0; turn < 2; turn++) {
        double *out = malloc(sizeof *out * 2 * N), *in = malloc(sizeof *in * 2 * N);
        int good = 1;
        for (int i = 0; i < 2 * N; i++) out[i] = value(rank, 4, i), in[i] = -7;
        MPI_Type_vector(N, 1, 2, real8, &gaps);
        MPI_Type_commit(&gaps);
        MPI_Sendrecv(out, 1, gaps, next, 1, in, 1, gaps, before, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Type_free(&gaps);
        for (int i = 0; i < 2 * N; i++)
            good &= i % 2 ? in[i] == -7 : is_value(in[i], before, 4, i);
        CHECK(good);
        free(out), free(in);
    }
}

/* A receiver may have another datatype than the sender. */
static void derived(void) {
    enum { ROWS = 64, COLUMNS = 256, WIDTH = COLUMNS + 7 };
    MPI_Datatype block, pair;
    MPI_Type_vector(ROWS, COLUMNS, WIDTH, MPI_FLOAT, &block);
    MPI_Type_commit(&block);
    float *wide = malloc(sizeof *wide * ROWS * WIDTH), *in = malloc(sizeof *in * ROWS * COLUMNS);
    float *grid = malloc(sizeof *grid * ROWS * WIDTH);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < ROWS * WIDTH; i++) wide[i] = grid[i] = -7;
        for (int i = 0; i < ROWS * COLUMNS; i++)
            wide[i / COLUMNS * WIDTH + i % COLUMNS] = value(rank, 8, i);
        MPI_Request requests[2];
        MPI_Status statuses[2];
        if (turn < 2)
            MPI_Irecv(grid, 1, block, before, 8, MPI_COMM_WORLD, &requests[0]);
        else
            MPI_Irecv(in, 4 * ROWS * COLUMNS, MPI_BYTE, before, 8, MPI_COMM_WORLD, &requests[0]);
        if (turn == 1) {
            for (int i = 0; i < ROWS * COLUMNS; i++) in[i] = value(rank, 8, i);
            MPI_Isend(in, ROWS * COLUMNS, MPI_FLOAT, next, 8, MPI_COMM_WORLD, &requests[1]);
        } else {
            MPI_Isend(wide, 1, block, next, 8, MPI_COMM_WORLD, &requests[1]);
        }
        if (turn == 0) {
            /* It is not freed before the messages are complete. */
            MPI_Datatype again;
            MPI_Type_dup(block, &again);
            MPI_Type_free(&block);
            block = again;
        }
        MPI_Waitall(2, requests, statuses);
        int good = 1;
        for (int i = 0; i < ROWS * WIDTH && turn < 2; i++) {
            int is_gap = i % WIDTH >= COLUMNS, at = i / WIDTH * COLUMNS + i % WIDTH;
            float expected = value(before, 8, at);
            good &= is_gap ? grid[i] == -7
                           : tolerance ? fabs(grid[i] - expected) <= tolerance
                                       : grid[i] == expected;
        }
        if (turn == 2) good = are_floats(in, ROWS * COLUMNS, before, 8);
        CHECK(good);
        int n = 0;
        MPI_Get_elements(&statuses[0], turn < 2 ? MPI_FLOAT : MPI_BYTE, &n);
        CHECK(n == ROWS * COLUMNS * (turn < 2 ? 1 : 4));
        if (turn < 2) CHECK(count_of(&statuses[0], block) == 1);
    }
    /* An odd number of floats as pairs, of which the last is received in part. */
    MPI_Type_vector(2, 1, 2, MPI_FLOAT, &pair);
    MPI_Type_commit(&pair);
    float *out = floats(N + 1, 9), *pairs = malloc(sizeof *pairs * 4 * N);
    for (int i = 0; i < 4 * N; i++) pairs[i] = -7;
    MPI_Status status;
    MPI_Sendrecv(out, N + 1, MPI_FLOAT, next, 1, pairs, N, pair, before, 1, MPI_COMM_WORLD,
                 &status);
    int n = 0, good = 1;
    MPI_Get_elements(&status, pair, &n);
    CHECK(n == N + 1 && count_of(&status, pair) == MPI_UNDEFINED);
    for (int i = 0; i < N + 1; i++) {
        float got = pairs[i / 2 * 3 + i % 2 * 2];
        good &= isnan(value(before, 9, i)) ? isnan(got)
                : tolerance                ? fabs(got - (float)value(before, 9, i)) <= tolerance
                                           : got == (float)value(before, 9, i);
    }
    CHECK(good && pairs[(N + 1) / 2 * 3 + 2] == -7 && pairs[1] == -7);
    MPI_Type_free(&block), MPI_Type_free(&pair);
    free(wide), free(in), free(grid), free(out), free(pairs);
}

static int class_of(int code) {
    int class = 0;
    MPI_Error_class(code, &class);
    return class;
}

/* A message that is longer than the buffer is an error, for all functions. */
static void truncated(void) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    float *out = floats(N, 3), *in = malloc(sizeof *in * MORE), *other = malloc(sizeof *other * N);
    for (int n = N - 1; n > 100; n /= 5) {
        MPI_Request request;
        MPI_Isend(out, N, MPI_FLOAT, next, 1, comm, &request);
        int code = MPI_Recv(in, n, MPI_FLOAT, before, 1, comm, MPI_STATUS_IGNORE);
        CHECK(class_of(code) == MPI_ERR_TRUNCATE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(comm);

        MPI_Irecv(in, n, MPI_FLOAT, before, 1, comm, &request);
        MPI_Send(out, N, MPI_FLOAT, next, 1, comm);
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(class_of(code) == MPI_ERR_TRUNCATE && request == MPI_REQUEST_NULL);
        MPI_Barrier(comm);

        /* A persistent request of which one message was too long. The program may send on what its
           buffer holds. */
        int index;
        MPI_Recv_init(in, n, MPI_FLOAT, before, 1, comm, &request);
        MPI_Start(&request);
        MPI_Send(out, N, MPI_FLOAT, next, 1, comm);
        code = n % 2 ? MPI_Wait(&request, MPI_STATUS_IGNORE)
                     : MPI_Waitany(1, &request, &index, MPI_STATUS_IGNORE);
        CHECK(class_of(code) == MPI_ERR_TRUNCATE);
        code = MPI_Sendrecv(in, N, MPI_INT, rank, 2, other, N, MPI_INT, rank, 2, comm,
                            MPI_STATUS_IGNORE);
        CHECK(code == MPI_SUCCESS && memcmp(in, other, sizeof *in * N) == 0);
        /* Open MPI has freed it. */
        if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
        MPI_Barrier(comm);

        /* An error stays with the request, which the program may ask before it waits. */
        MPI_Irecv(in, n, MPI_FLOAT, before, 1, comm, &request);
        MPI_Send(out, N, MPI_FLOAT, next, 1, comm);
        int flag = 0;
        for (code = MPI_SUCCESS; !flag && code == MPI_SUCCESS;)
            code = MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(class_of(code) == MPI_ERR_TRUNCATE && request == MPI_REQUEST_NULL);
        MPI_Barrier(comm);

        MPI_Request both[2];
        MPI_Status statuses[2];
        MPI_Irecv(in, n, MPI_FLOAT, before, 1, comm, &both[0]);
        MPI_Isend(out, N, MPI_FLOAT, next, 1, comm, &both[1]);
        code = MPI_Waitall(2, both, statuses);
        CHECK(class_of(code) == MPI_ERR_IN_STATUS);
        CHECK(class_of(statuses[0].MPI_ERROR) == MPI_ERR_TRUNCATE);
        if (statuses[1].MPI_ERROR == MPI_ERR_PENDING) MPI_Wait(&both[1], MPI_STATUS_IGNORE);
        else CHECK(statuses[1].MPI_ERROR == MPI_SUCCESS);
        MPI_Barrier(comm);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_free(&comm);
    free(out), free(in), free(other);
}

/* A receive that is freed before it is complete. A later message says that it is. */
static void freed(void) {
    float *out = floats(N, 3), *in = malloc(sizeof *in * MORE);
    int *acks = malloc(sizeof *acks * N);
    for (int how = 0; how < 5 && rank < 2; how++) {
        int other = 1 - rank, ack = 7;
        MPI_Request request;
        if (rank == 1) {
            MPI_Recv(&ack, 1, MPI_INT, other, 20, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, N, MPI_FLOAT, other, 21, MPI_COMM_WORLD);
            MPI_Send(&ack, 1, MPI_INT, other, 22, MPI_COMM_WORLD);
            continue;
        }
        acks[0] = 0;
        memset(in, 1, sizeof *in * MORE);
        MPI_Irecv(in, MORE, MPI_FLOAT, other, 21, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
        if (how == 2 || how == 3)
            MPI_Irecv(acks, N, MPI_INT, other, 22, MPI_COMM_WORLD, &request);
        if (how < 4) MPI_Send(&ack, 1, MPI_INT, other, 20, MPI_COMM_WORLD);
        if (how < 2)
            MPI_Recv(acks, how ? N : 1, MPI_INT, other, 22, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else if (how == 2)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        else if (how == 3)
            MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
        else
            MPI_Sendrecv(&ack, 1, MPI_INT, other, 20, acks, 1, MPI_INT, other, 22, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
        CHECK(acks[0] == 7 && are_floats(in, N, other, 3));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    free(out), free(in), free(acks);
}

static void cancelled(void) {
    float *out = floats(N, 4), *in = malloc(sizeof *in * MORE);
    MPI_Request request;
    MPI_Status status;
    int flag = 0;
    in[0] = -7;
    MPI_Irecv(in, MORE, MPI_FLOAT, before, 99, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag && in[0] == -7);
    MPI_Barrier(MPI_COMM_WORLD);
    /* The next receive gets the next message. */
    MPI_Irecv(in, MORE, MPI_FLOAT, before, 99, MPI_COMM_WORLD, &request);
    MPI_Send(out, N, MPI_FLOAT, next, 99, MPI_COMM_WORLD);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(!flag && are_floats(in, N, before, 4));
    free(out), free(in);
}

/* What stays as it is: short messages, other types, and messages without values. */
static void plain(void) {
    int out = rank, in = -1;
    MPI_Status status;
    MPI_Sendrecv(&out, 1, MPI_INT, next, 0, &in, 1, MPI_INT, before, 0, MPI_COMM_WORLD, &status);
    CHECK(in == before);
    MPI_Sendrecv(NULL, 0, MPI_FLOAT, next, 0, NULL, 0, MPI_FLOAT, before, 0, MPI_COMM_WORLD,
                 &status);
    CHECK(count_of(&status, MPI_FLOAT) == 0);
    int *ints = malloc(sizeof *ints * N), *got = malloc(sizeof *got * N), good = 1;
    for (int i = 0; i < N; i++) ints[i] = i + rank;
    MPI_Sendrecv(ints, N, MPI_INT, next, 0, got, N, MPI_INT, before, 0, MPI_COMM_WORLD, &status);
    for (int i = 0; i < N; i++) good &= got[i] == i + before;
    CHECK(good && count_of(&status, MPI_INT) == N);
    /* Random bits, which nothing compresses. */
    for (int i = 0; i < N; i++) ints[i] = (i + 1) * 2654435761u ^ (i * 40503u) << 7;
    MPI_Sendrecv(ints, N, MPI_FLOAT, next, 0, got, N, MPI_FLOAT, before, 0, MPI_COMM_WORLD,
                 &status);
    CHECK(tolerance || !memcmp(ints, got, sizeof *ints * N));
    CHECK(count_of(&status, MPI_FLOAT) == N);
    free(ints), free(got);
}

/* Communicators of other ranks and orders. */
static void communicators(void) {
    MPI_Comm half, copy, inter;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_dup(half, &copy);
    int me, n;
    MPI_Comm_rank(copy, &me), MPI_Comm_size(copy, &n);
    int to = (me + 1) % n, from = (me + n - 1) % n;
    /* World rank of `from`: the order is reversed. */
    int last = size - 1 - (size - 1 - rank % 2) % 2, before_me = last - 2 * from;
    float *out = floats(N, 2), *in = malloc(sizeof *in * N);
    MPI_Request request;
    MPI_Irecv(in, N, MPI_FLOAT, from, 0, copy, &request);
    MPI_Send(out, N, MPI_FLOAT, to, 0, copy);
    /* A communicator may be freed while a receive is pending. */
    MPI_Comm_free(&copy);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(are_floats(in, N, before_me, 2));
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 ? size - 1 - (size - 1) % 2
                                                           : size - 1 - size % 2, 5, &inter);
    if (me == 0) {
        MPI_Status status;
        MPI_Sendrecv(out, N, MPI_FLOAT, 0, 0, in, N, MPI_FLOAT, 0, 0, inter, &status);
        CHECK(count_of(&status, MPI_FLOAT) == N);
    }
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
    free(out), free(in);
}

/* Many messages to one rank, from any source. */
static void gathered(void) {
    enum { ROUNDS = 20 };
    float *out = floats(N, 1), *in = malloc(sizeof *in * MORE);
    if (rank) {
        for (int i = 0; i < ROUNDS; i++)
            MPI_Send(out, N - i, MPI_FLOAT, 0, i, MPI_COMM_WORLD);
    } else {
        int counts[64] = {0};
        for (int i = 0; i < ROUNDS * (size - 1); i++) {
            MPI_Status status;
            MPI_Recv(in, MORE, MPI_FLOAT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            int from = status.MPI_SOURCE;
            int n = N - status.MPI_TAG;
            CHECK(status.MPI_TAG == counts[from] && count_of(&status, MPI_FLOAT) == n);
            counts[from]++;
            CHECK(are_floats(in, n, from, 1));
        }
    }
    free(out), free(in);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    tolerance = argc > 1 ? atof(argv[1]) : 0;
    next = (rank + 1) % size, before = (rank + size - 1) % size;
    blocking();
    exchanged();
    for (int how = 0; how <= 10; how++) started(how), restarted(how);
    order();
    persistent();
    derived();
    parameters();
    truncated();
    if (size > 1) freed();
    cancelled();
    plain();
    if (size > 1) communicators();
    gathered();
    int all = 0;
    MPI_Allreduce(&n_failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d failed\n", all);
    MPI_Finalize();
    return all > 0;
}
