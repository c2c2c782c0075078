/* A program that knows nothing of Foldwire: calls of all kinds with checked results.

   calls [TOLERANCE]: the allowed error of each operand, 0 by default. Values are whole numbers, so
   sums do not depend on their order. */
#include <fenv.h>
#include <math.h>
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "checks.h"

enum { N = 20000 };

static void all_reduces(void) {
    static double a[N], b[N];
    static float f[N], g[N];
    static int k[N], m[N];
    static long long l[N];
    int good = 1;
    for (int i = 0; i < N; i++) {
        a[i] = value(rank, i), f[i] = (float)a[i], k[i] = (int)a[i], l[i] = k[i];
    }
    MPI_Allreduce(a, b, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) good &= near(b[i], sum(i, size), size) && a[i] == value(rank, i);
    check(good, "sums of doubles");
    good = 1;
    MPI_Allreduce(MPI_IN_PLACE, f, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) good &= near(f[i], sum(i, size), size);
    check(good, "sums of floats in place");
    good = 1;
    MPI_Allreduce(a, b, N, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) {
        double most = 0;
        for (int of = 0; of < size; of++) most = fmax(most, value(of, i));
        good &= near(b[i], most, 1);
    }
    check(good, "maxima");
    good = 1;
    MPI_Allreduce(k, m, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, l, N, MPI_LONG_LONG, MPI_MIN, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) {
        long long least = 1000;
        for (int of = 0; of < size; of++) {
            if (value(of, i) < least) least = (long long)value(of, i);
        }
        good &= m[i] == (int)sum(i, size) && l[i] == least;
    }
    check(good, "integers");
    /* Unaligned, which most processors accept. */
    char *bytes = malloc(N * sizeof(float) + 1);
    for (int i = 0; i < N; i++) {
        float one = (float)value(rank, i);
        memcpy(bytes + 1 + i * sizeof one, &one, sizeof one);
    }
    MPI_Allreduce(bytes + 1, g, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    good = 1;
    for (int i = 0; i < N; i++) good &= near(g[i], sum(i, size), size);
    check(good, "arrays that are not aligned");
    free(bytes);
    MPI_Allreduce(NULL, NULL, 0, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    double one = 1, all = 0;
    MPI_Allreduce(&one, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    check(all == size, "a single value is exact");
}

static void user_op(void *in, void *inout, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++) ((double *)inout)[i] += ((double *)in)[i];
}

static void passed_on(void) {
    static double a[N], b[N];
    MPI_Op op;
    int good = 1;
    for (int i = 0; i < N; i++) a[i] = value(rank, i);
    MPI_Op_create(user_op, 1, &op);
    MPI_Allreduce(a, b, N, MPI_DOUBLE, op, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) good &= b[i] == sum(i, size);
    check(good, "an operation defined by the program is exact");
    MPI_Op_free(&op);
    /* An int and a double in one type: a signature of two element types. */
    struct both {
        int key;
        double value;
    };
    struct both *many = malloc(N * sizeof *many);
    int lengths[] = {1, 1};
    MPI_Aint places[] = {offsetof(struct both, key), offsetof(struct both, value)};
    MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE}, pair, row;
    MPI_Type_create_struct(2, lengths, places, types, &pair);
    MPI_Type_create_resized(pair, 0, sizeof(struct both), &row);
    MPI_Type_commit(&row);
    for (int i = 0; i < N; i++) many[i].key = rank ? 0 : i, many[i].value = rank ? 0 : i + 0.1;
    MPI_Bcast(many, N, row, 0, MPI_COMM_WORLD);
    good = 1;
    for (int i = 0; i < N; i++) good &= many[i].key == i && many[i].value == i + 0.1;
    check(good, "types of two kinds are exact");
    MPI_Type_free(&pair), MPI_Type_free(&row);
    free(many);
}

static void communicators(void) {
    static double a[N], b[N];
    MPI_Comm half, copy;
    for (int round = 0; round < 3; round++) {
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
        int n, good = 1, own;
        MPI_Comm_size(half, &n), MPI_Comm_rank(half, &own);
        for (int i = 0; i < N; i++) a[i] = value(own, i);
        MPI_Allreduce(a, b, N, MPI_DOUBLE, MPI_SUM, half);
        for (int i = 0; i < N; i++) good &= near(b[i], sum(i, n), n);
        check(good, "sums over half of the ranks");
        MPI_Comm_dup(half, &copy);
        MPI_Comm_free(&half);
        MPI_Allreduce(a, b, N, MPI_DOUBLE, MPI_SUM, copy);
        good = 1;
        for (int i = 0; i < N; i++) good &= near(b[i], sum(i, n), n);
        check(good, "sums over a copy whose origin was freed");
        MPI_Comm_free(&copy);
    }
    if (size > 1) {
        MPI_Comm between;
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &between);
        int n, good = 1;
        MPI_Comm_remote_size(between, &n);
        for (int i = 0; i < N; i++) a[i] = i;
        MPI_Allreduce(a, b, N, MPI_DOUBLE, MPI_SUM, between);
        for (int i = 0; i < N; i++) good &= b[i] == (double)i * n;
        check(good, "intercommunicators are passed on");
        MPI_Comm_free(&between), MPI_Comm_free(&half);
    }
}

static void environment(void) {
    static float a[N], b[N];
    for (int i = 0; i < N; i++) a[i] = 1.0f / (float)(i + 1);
    fesetround(FE_UPWARD);
    MPI_Allreduce(a, b, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    check(fegetround() == FE_UPWARD, "rounding stays");
    fesetround(FE_TONEAREST);
}

/* A root's array that the library may only read, and the same bits on all ranks. */
static void roots(void) {
    size_t n_bytes = N * sizeof(double);
    double *all = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MPI_Datatype gaps;
    MPI_Type_vector(N / 2, 1, 2, MPI_DOUBLE, &gaps);
    MPI_Type_commit(&gaps);
    for (int has_gaps = 0; has_gaps < 2; has_gaps++) {
        MPI_Request request;
        int good = 1;
        mprotect(all, n_bytes, PROT_READ | PROT_WRITE);
        for (int i = 0; i < N; i++) all[i] = rank ? -1 : value(0, i) + 0.3;
        /* Within a bound the root's array gets the values that the others get. */
        if (rank == 0 && tolerance == 0) mprotect(all, n_bytes, PROT_READ);
        MPI_Bcast(all, has_gaps ? 1 : N, has_gaps ? gaps : MPI_DOUBLE, 0, MPI_COMM_WORLD);
        MPI_Ibcast(all, has_gaps ? 1 : N, has_gaps ? gaps : MPI_DOUBLE, 0, MPI_COMM_WORLD,
                   &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < N; i += 1 + has_gaps) good &= near(all[i], value(0, i) + 0.3, 1);
        check(good, "broadcasts of an array that the root may read");
        long long *bits = malloc(n_bytes);
        memcpy(bits, all, n_bytes);
        MPI_Allreduce(MPI_IN_PLACE, bits, N, MPI_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
        good = 1;
        for (int i = 0; i < N; i += 1 + has_gaps) good &= !memcmp(&bits[i], &all[i], sizeof *bits);
        check(good, "a broadcast's bits");
        free(bits);
    }
    MPI_Type_free(&gaps);
    munmap(all, n_bytes);
}

static void movements(void) {
    double *one = malloc(N * sizeof *one), *all = malloc((size_t)N * size * sizeof *all);
    double *back = malloc((size_t)N * size * sizeof *back);
    int good = 1, root = size - 1;
    for (int i = 0; i < N; i++) one[i] = value(rank, i);
    double *sent = malloc(N * sizeof *sent);
    memcpy(sent, one, N * sizeof *sent);
    MPI_Bcast(sent, N, MPI_DOUBLE, root, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) good &= near(sent[i], value(root, i), 1);
    check(good, "broadcasts");
    /* Equal signatures with different layouts: the root's has gaps. */
    MPI_Datatype gaps;
    MPI_Type_vector(N / 2, 1, 2, MPI_DOUBLE, &gaps);
    MPI_Type_commit(&gaps);
    for (int i = 0; i < N; i++) sent[i] = rank == root ? value(root, i) : -1;
    MPI_Bcast(sent, rank == root ? 1 : N / 2, rank == root ? gaps : MPI_DOUBLE, root,
              MPI_COMM_WORLD);
    good = 1;
    if (rank != root) {
        for (int i = 0; i < N / 2; i++) good &= near(sent[i], value(root, 2 * i), 1);
        for (int i = N / 2; i < N; i++) good &= sent[i] == -1;
    }
    check(good, "broadcasts from gaps");
    for (int i = 0; i < N; i++) sent[i] = rank == 0 ? value(0, i) : -1;
    MPI_Bcast(sent, 1, gaps, 0, MPI_COMM_WORLD);
    good = 1;
    for (int i = 0; i < N / 2; i++) {
        good &= near(sent[2 * i], value(0, 2 * i), 1);
        if (i + 1 < N / 2 && rank) good &= sent[2 * i + 1] == -1;
    }
    check(good, "gaps stay as they are");
    MPI_Type_free(&gaps);
    /* A type of Fortran's parameters, which MPI predefines, though it has a constructor. */
    MPI_Datatype real8;
    MPI_Type_create_f90_real(15, 307, &real8);
    MPI_Type_vector(N / 2, 1, 2, real8, &gaps);
    MPI_Type_commit(&gaps);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) sent[i] = rank == 0 ? value(0, i) : -1;
        MPI_Bcast(sent, 1, gaps, 0, MPI_COMM_WORLD);
        good = 1;
        for (int i = 0; i < N / 2; i++) good &= near(sent[2 * i], value(0, 2 * i), 1);
        check(good, "broadcasts of a type of Fortran's parameters");
    }
    MPI_Type_free(&gaps);

    MPI_Allgather(one, N, MPI_DOUBLE, all, N, MPI_DOUBLE, MPI_COMM_WORLD);
    good = 1;
    for (int of = 0; of < size; of++)
        for (int i = 0; i < N; i++) good &= near(all[of * N + i], value(of, i), 1);
    check(good, "all-gathers");
    memset(all, 0, (size_t)N * size * sizeof *all);
    memcpy(all + (size_t)N * rank, one, N * sizeof *one);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, N, MPI_DOUBLE, MPI_COMM_WORLD);
    good = 1;
    for (int of = 0; of < size; of++)
        for (int i = 0; i < N; i++) good &= near(all[of * N + i], value(of, i), 1);
    check(good, "all-gathers in place");

    memset(back, 0, (size_t)N * size * sizeof *back);
    MPI_Gather(one, N, MPI_DOUBLE, rank == root ? back : NULL, N, MPI_DOUBLE, root,
               MPI_COMM_WORLD);
    good = 1;
    if (rank == root)
        for (int of = 0; of < size; of++)
            for (int i = 0; i < N; i++) good &= near(back[of * N + i], value(of, i), 1);
    check(good, "gathers");
    memset(back, 0, (size_t)N * size * sizeof *back);
    if (rank == root) memcpy(back + (size_t)N * rank, one, N * sizeof *one);
    MPI_Gather(rank == root ? MPI_IN_PLACE : one, N, MPI_DOUBLE, back, N, MPI_DOUBLE, root,
               MPI_COMM_WORLD);
    good = 1;
    if (rank == root)
        for (int of = 0; of < size; of++)
            for (int i = 0; i < N; i++) good &= near(back[of * N + i], value(of, i), 1);
    check(good, "gathers in place");

    for (int of = 0; of < size; of++)
        for (int i = 0; i < N; i++) back[of * N + i] = value(of, i);
    for (int i = 0; i < N; i++) sent[i] = -1;
    MPI_Scatter(back, N, MPI_DOUBLE, rank == root ? MPI_IN_PLACE : sent, N, MPI_DOUBLE, root,
                MPI_COMM_WORLD);
    good = 1;
    if (rank != root)
        for (int i = 0; i < N; i++) good &= near(sent[i], value(rank, i), 1);
    MPI_Scatter(back, N, MPI_DOUBLE, sent, N, MPI_DOUBLE, root, MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) good &= near(sent[i], value(rank, i), 1);
    check(good, "scatters");

    for (int to = 0; to < size; to++)
        for (int i = 0; i < N; i++) all[to * N + i] = value(rank * 31 + to, i);
    MPI_Alltoall(all, N, MPI_DOUBLE, back, N, MPI_DOUBLE, MPI_COMM_WORLD);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, N, MPI_DOUBLE, MPI_COMM_WORLD);
    good = 1;
    for (int of = 0; of < size; of++)
        for (int i = 0; i < N; i++) {
            double want = value(of * 31 + rank, i);
            good &= near(back[of * N + i], want, 1) && near(all[of * N + i], want, 1);
        }
    check(good, "all-to-alls");
    free(one), free(all), free(back), free(sent);
}

static void reductions(void) {
    double *all = malloc((size_t)N * size * sizeof *all), *own = malloc(2 * N * sizeof *own);
    int root = size / 2, good = 1, *counts = malloc(size * sizeof *counts);
    for (int i = 0; i < N * size; i++) all[i] = value(rank, i);
    MPI_Reduce(all, own, N, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD);
    if (rank == root)
        for (int i = 0; i < N; i++) good &= near(own[i], sum(i, size), size);
    if (rank == 0) memcpy(own, all, N * sizeof *own);
    /* With another root, MPICH 4.0 itself crashes here. */
    MPI_Reduce(rank == 0 ? MPI_IN_PLACE : all, own, N, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        for (int i = 0; i < N; i++) good &= near(own[i], sum(i, size), size);
    check(good, "reductions");
    MPI_Reduce_scatter_block(all, own, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    good = 1;
    for (int i = 0; i < N; i++) good &= near(own[i], sum(rank * N + i, size), size);
    check(good, "reduce-scatters of blocks");
    /* The last rank gets nothing, and rank 0 gets its share. */
    for (int of = 0; of < size; of++) counts[of] = N;
    if (size > 1) counts[0] = 2 * N, counts[size - 1] = 0;
    int first = rank == 0 ? 0 : (rank + 1) * N;
    MPI_Reduce_scatter(all, own, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    good = 1;
    for (int i = 0; i < counts[rank]; i++) good &= near(own[i], sum(first + i, size), size);
    check(good, "reduce-scatters");
    MPI_Reduce_scatter(MPI_IN_PLACE, all, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    good = 1;
    for (int i = 0; i < counts[rank]; i++) good &= near(all[i], sum(first + i, size), size);
    for (int i = counts[rank]; i < N * size; i++) good &= all[i] == value(rank, i);
    check(good, "reduce-scatters in place");
    free(all), free(own), free(counts);
}

int main(int argc, char **argv) {
    tolerance = argc > 1 ? atof(argv[1]) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    all_reduces();
    passed_on();
    communicators();
    environment();
    movements();
    roots();
    reductions();
    int all;
    MPI_Allreduce(&n_failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d failed\n", all);
    MPI_Finalize();
    return all != 0;
}
