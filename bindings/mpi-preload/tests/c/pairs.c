/* A program that knows nothing of Foldwire: MPI_MAXLOC and MPI_MINLOC of pairs, and operations of
   its own on pairs, waited for at once and later. Results are compared with what the program
   computes itself.

   pairs [TOLERANCE]: TOLERANCE is the allowed error of each operand of the sums between them. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

enum { N = 4096, MANY = 3 };

/* The value of a rank's pair. Several ranks have the same values. */
static int pair_value(int of, int i) { return (i * 5 + of * 3) % 4; }

/* The rank whose pair wins: that with the largest or the smallest value, and the lowest index. */
static int winner(int i, int is_max) {
    int best = 0;
    for (int of = 1; of < size; of++) {
        int better = pair_value(of, i) - pair_value(best, i);
        if (is_max ? better > 0 : better < 0) best = of;
    }
    return best;
}

/* Sums in progress beside the pairs, which Foldwire takes. */
static double in[N], out[2][N];

static void begin(int k, MPI_Request *request) {
    MPI_Iallreduce(in, out[k], N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, request);
}

static int are_sums(void) {
    int good = 1;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 2; k++) good &= near(out[k][i], sum(i, size), size);
    return good;
}

/* For pairs of a value of type `kind` and an index of type int. */
#define PAIRS(name, kind, type)                                                                    \
    typedef struct {                                                                               \
        kind value;                                                                                \
        int index;                                                                                 \
    } name##_pair;                                                                                 \
    static name##_pair name##_in[N], name##_out[MANY][N];                                          \
    static int name##_are_won(int k, int n, int is_max) {                                          \
        int good = 1;                                                                              \
        for (int i = 0; i < n; i++) {                                                              \
            int best = winner(i, is_max);                                                          \
            good &= name##_out[k][i].value == (kind)pair_value(best, i);                           \
            good &= name##_out[k][i].index == 100 * best + i % 7;                                  \
        }                                                                                          \
        return good;                                                                               \
    }                                                                                              \
    static void name##_pairs(int n, int is_max) {                                                  \
        MPI_Op op = is_max ? MPI_MAXLOC : MPI_MINLOC;                                              \
        MPI_Request requests[MANY + 2];                                                            \
        for (int i = 0; i < N; i++) {                                                              \
            name##_in[i].value = (kind)pair_value(rank, i);                                        \
            name##_in[i].index = 100 * rank + i % 7;                                               \
            in[i] = value(rank, i);                                                                \
        }                                                                                          \
        memset(name##_out, 0, sizeof name##_out), memset(out, 0, sizeof out);                      \
        MPI_Allreduce(name##_in, name##_out[0], n, type, op, MPI_COMM_WORLD);                      \
        memcpy(name##_out[1], name##_in, sizeof name##_in);                                        \
        MPI_Allreduce(MPI_IN_PLACE, name##_out[1], n, type, op, MPI_COMM_WORLD);                   \
        MPI_Reduce(name##_in, name##_out[2], n, type, op, size - 1, MPI_COMM_WORLD);               \
        check(name##_are_won(0, n, is_max), #type ", at once");                                    \
        check(name##_are_won(1, n, is_max), #type ", at once and in place");                       \
        check(rank < size - 1 || name##_are_won(2, n, is_max), #type ", at a root");               \
        memset(name##_out, 0, sizeof name##_out);                                                  \
        memcpy(name##_out[1], name##_in, sizeof name##_in);                                        \
        begin(0, &requests[0]);                                                                    \
        MPI_Iallreduce(name##_in, name##_out[0], n, type, op, MPI_COMM_WORLD, &requests[1]);       \
        MPI_Iallreduce(MPI_IN_PLACE, name##_out[1], n, type, op, MPI_COMM_WORLD, &requests[2]);    \
        begin(1, &requests[3]);                                                                    \
        MPI_Ireduce(name##_in, name##_out[2], n, type, op, size - 1, MPI_COMM_WORLD,               \
                    &requests[4]);                                                                 \
        for (int k = MANY + 1; k >= 0; k--) MPI_Wait(&requests[k], MPI_STATUS_IGNORE);             \
        check(name##_are_won(0, n, is_max), #type ", later");                                      \
        check(name##_are_won(1, n, is_max), #type ", later and in place");                         \
        check(rank < size - 1 || name##_are_won(2, n, is_max), #type ", later at a root");         \
        check(are_sums(), "sums beside " #type);                                                   \
        memset(name##_out, 0, sizeof name##_out);                                                  \
        MPI_Iallreduce(name##_in, name##_out[0], n, type, op, MPI_COMM_WORLD, &requests[0]);       \
        MPI_Allreduce(name##_in, name##_out[1], n, type, op, MPI_COMM_WORLD);                      \
        int done = 0;                                                                              \
        while (!done) MPI_Test(&requests[0], &done, MPI_STATUS_IGNORE);                            \
        check(name##_are_won(0, n, is_max), #type ", tested");                                     \
        check(name##_are_won(1, n, is_max), #type ", at once beside one in progress");             \
    }

PAIRS(int, int, MPI_2INT)
PAIRS(float, float, MPI_FLOAT_INT)
PAIRS(double, double, MPI_DOUBLE_INT)
PAIRS(long, long, MPI_LONG_INT)
PAIRS(short, short, MPI_SHORT_INT)
PAIRS(quad, long double, MPI_LONG_DOUBLE_INT)

/* Keeps the pair with the larger value, or the lower index. */
static void larger(void *from, void *to, int *n, MPI_Datatype *type) {
    double_pair *a = from, *b = to;
    (void)type;
    for (int i = 0; i < *n; i++) {
        int wins = a[i].value > b[i].value || (a[i].value == b[i].value && a[i].index < b[i].index);
        if (wins) b[i] = a[i];
    }
}

/* Pairs of types that the program derives, with an operation of its own. */
static void derived(int n) {
    MPI_Datatype fields[] = {MPI_DOUBLE, MPI_INT}, made, whole;
    MPI_Aint places[] = {0, sizeof(double)};
    int lens[] = {1, 1};
    MPI_Op op;
    MPI_Request requests[2];
    MPI_Type_create_struct(2, lens, places, fields, &made);
    MPI_Type_create_resized(made, 0, sizeof(double_pair), &whole), MPI_Type_commit(&whole);
    MPI_Op_create(larger, 1, &op);
    memset(double_out, 0, sizeof double_out);
    MPI_Allreduce(double_in, double_out[0], n, whole, op, MPI_COMM_WORLD);
    MPI_Iallreduce(double_in, double_out[1], n, whole, op, MPI_COMM_WORLD, &requests[0]);
    MPI_Iallreduce(double_in, double_out[2], n, whole, op, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Type_free(&made), MPI_Type_free(&whole), MPI_Op_free(&op);
    check(double_are_won(0, n, 1), "pairs of a derived type, at once");
    check(double_are_won(1, n, 1) && double_are_won(2, n, 1), "pairs of a derived type, later");
}

int main(int argc, char **argv) {
    int all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    tolerance = argc > 1 ? atof(argv[1]) : 0;
    for (int n = 1; n <= N; n *= 64)
        for (int is_max = 0; is_max < 2; is_max++) {
            int_pairs(n, is_max), float_pairs(n, is_max), double_pairs(n, is_max);
            long_pairs(n, is_max), short_pairs(n, is_max), quad_pairs(n, is_max);
        }
    derived(N);
    MPI_Allreduce(&n_failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d failed\n", all);
    MPI_Finalize();
    return all != 0;
}
