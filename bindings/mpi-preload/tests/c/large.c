/* Uses functions with large counts if there are any, by weak symbols. If the library has none, the
   preloaded library provides them. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#pragma weak MPI_Allreduce_c
#pragma weak MPI_Reduce_scatter_c
#pragma weak MPI_Allgatherv_c
#pragma weak MPI_Gatherv_c
#pragma weak MPI_Scatterv_c
#pragma weak MPI_Iallreduce_c
#pragma weak MPI_Ireduce_scatter_c
extern int MPI_Allreduce_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm);
extern int MPI_Reduce_scatter_c(const void *, void *, const MPI_Count[], MPI_Datatype, MPI_Op,
                                MPI_Comm);
extern int MPI_Allgatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count[],
                            const MPI_Aint[], MPI_Datatype, MPI_Comm);
extern int MPI_Gatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count[],
                         const MPI_Aint[], MPI_Datatype, int, MPI_Comm);
extern int MPI_Scatterv_c(const void *, const MPI_Count[], const MPI_Aint[], MPI_Datatype, void *,
                          MPI_Count, MPI_Datatype, int, MPI_Comm);
extern int MPI_Iallreduce_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm,
                            MPI_Request *);
extern int MPI_Ireduce_scatter_c(const void *, void *, const MPI_Count[], MPI_Datatype, MPI_Op,
                                 MPI_Comm, MPI_Request *);

enum { N = 3000 };

/* An intercommunicator of rank 0 and all other ranks. The shares belong to the remote group. */
static int between(int rank, int size) {
    int is_alone = rank == 0, n_others = is_alone ? size - 1 : 1, n_failed = 0;
    MPI_Comm own, both;
    MPI_Comm_split(MPI_COMM_WORLD, is_alone, rank, &own);
    MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, is_alone ? 1 : 0, 7, &both);
    MPI_Comm_set_errhandler(both, MPI_ERRORS_RETURN);
    MPI_Count *counts = malloc(n_others * sizeof *counts);
    MPI_Aint *places = malloc(n_others * sizeof *places);
    int *theirs = malloc(n_others * sizeof *theirs), first = is_alone ? 1 : 0, mine = rank + 1;
    for (int of = 0; of < n_others; of++) counts[of] = 1, places[of] = of, theirs[of] = 0;
    n_failed += MPI_Allgatherv_c(&mine, 1, MPI_INT, theirs, counts, places, MPI_INT, both);
    for (int of = 0; of < n_others; of++) n_failed += theirs[of] != first + of + 1, theirs[of] = 0;
    /* To rank 0 and back. Ranks without shares pass null pointers. */
    if (is_alone) {
        n_failed +=
            MPI_Gatherv_c(NULL, 0, MPI_INT, theirs, counts, places, MPI_INT, MPI_ROOT, both);
        for (int of = 0; of < n_others; of++) n_failed += theirs[of] != of + 2;
        n_failed +=
            MPI_Scatterv_c(theirs, counts, places, MPI_INT, NULL, 0, MPI_INT, MPI_ROOT, both);
    } else {
        n_failed += MPI_Gatherv_c(&mine, 1, MPI_INT, NULL, NULL, NULL, MPI_INT, 0, both);
        int back = 0;
        n_failed += MPI_Scatterv_c(NULL, NULL, NULL, MPI_INT, &back, 1, MPI_INT, 0, both);
        n_failed += back != mine;
    }
    free(counts), free(places), free(theirs);
    MPI_Comm_free(&both), MPI_Comm_free(&own);
    return n_failed;
}

int main(int argc, char **argv) {
    int rank, size, n_failed = 0;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!MPI_Allreduce_c || !MPI_Reduce_scatter_c) {
        if (rank == 0) printf("none\n");
        MPI_Finalize();
        return 0;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    double *in = malloc((size_t)N * size * sizeof *in), *out = malloc(N * sizeof *out);
    MPI_Count *counts = malloc(size * sizeof *counts);
    for (int i = 0; i < N * size; i++) in[i] = i % 100 + rank;
    for (int of = 0; of < size; of++) counts[of] = of < size - 1 ? N : N - 1;
    /* Long calls, which are taken, and short ones, which are not. */
    for (int n = 1; n <= N; n *= N) {
        n_failed += MPI_Allreduce_c(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS;
        for (int i = 0; i < n; i++) n_failed += out[i] != size * (i % 100 + (size - 1) / 2.0);
        for (int i = 0; i < n; i++) out[i] = 0;
        n_failed += MPI_Iallreduce_c(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < n; i++) n_failed += out[i] != size * (i % 100 + (size - 1) / 2.0);
    }
    /* Types of pairs are never taken. */
    struct { double value; int rank; } pair = {rank, rank}, most;
    n_failed += MPI_Allreduce_c(&pair, &most, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    n_failed += most.rank != size - 1;
    for (int taken = 0; taken < 2; taken++) {
        MPI_Op op = taken ? MPI_SUM : MPI_LAND;
        int *k = malloc((size_t)N * size * sizeof *k), *m = malloc(N * sizeof *m);
        for (int i = 0; i < N * size; i++) k[i] = 1;
        n_failed += MPI_Reduce_scatter_c(k, m, counts, MPI_INT, op, MPI_COMM_WORLD) != MPI_SUCCESS;
        for (int i = 0; i < counts[rank]; i++) n_failed += m[i] != (taken ? size : 1), m[i] = 0;
        n_failed += MPI_Ireduce_scatter_c(k, m, counts, MPI_INT, op, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < counts[rank]; i++) n_failed += m[i] != (taken ? size : 1);
        free(k), free(m);
    }
    /* A count that does not fit in an int, with an empty type: must succeed or be refused. */
    MPI_Datatype nothing;
    MPI_Type_contiguous(0, MPI_BYTE, &nothing), MPI_Type_commit(&nothing);
    int code = MPI_Allreduce_c(in, out, (MPI_Count)1 << 40, nothing, MPI_BOR, MPI_COMM_WORLD);
    if (code != MPI_SUCCESS) {
        int class;
        MPI_Error_class(code, &class);
        n_failed += class != MPI_ERR_COUNT && class != MPI_ERR_OP && class != MPI_ERR_TYPE;
    }
    MPI_Type_free(&nothing);
    if (size > 1) n_failed += between(rank, size);
    int all;
    MPI_Allreduce(&n_failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d failed\n", all);
    free(in), free(out), free(counts);
    MPI_Finalize();
    return all != 0;
}
