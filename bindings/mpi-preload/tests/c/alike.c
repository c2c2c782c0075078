/* Calls of all lengths while Foldwire inspects every call on some ranks, and filters short ones on
   the others: ranks 0 and 1 make a long non-blocking call on a new communicator, so that their next
   blocking call there must be inspected. If two ranks decide differently, they wait forever. */
#include <mpi.h>
#include <stdlib.h>

#include "checks.h"

enum { MAX = 1 << 15, LONG = 1 << 18 };
static float *a, *b;
static int *counts, *places, *zeros;

/* Calls with n values in each share, or in the array if there are no shares. */
static void calls(int n) {
    const MPI_Comm comm = MPI_COMM_WORLD;
    const MPI_Datatype type = MPI_FLOAT;
    int good = 1;
    for (int of = 0; of < size; of++) counts[of] = n, places[of] = of * n;
    for (int i = 0; i < n * size; i++) a[i] = value(i / n + rank, i % n), b[i] = -1;
    MPI_Reduce_scatter_block(a, b, n, type, MPI_SUM, comm);
    for (int i = 0; i < n; i++) {
        double want = 0;
        for (int of = 0; of < size; of++) want += value(rank + of, i);
        good &= b[i] == want;
    }
    check(good, "reduce-scatters");
    MPI_Reduce_scatter(a, b, counts, type, MPI_SUM, comm);
    MPI_Allreduce(a, b, n, type, MPI_SUM, comm);
    MPI_Reduce(a, b, n, type, MPI_SUM, size - 1, comm);
    MPI_Bcast(a, n, type, size - 1, comm);
    MPI_Allgather(a, n, type, b, n, type, comm);
    MPI_Allgatherv(a, n, type, b, counts, places, type, comm);
    MPI_Gather(a, n, type, b, n, type, size - 1, comm);
    MPI_Gatherv(a, n, type, b, counts, places, type, size - 1, comm);
    MPI_Scatter(a, n, type, b, n, type, size - 1, comm);
    MPI_Scatterv(a, counts, places, type, b, n, type, size - 1, comm);
    MPI_Alltoall(a, n, type, b, n, type, comm);
    MPI_Alltoallv(a, counts, places, type, b, counts, places, type, comm);
}

/* Shares of n values, but the last rank has none of a datatype without bytes. */
static void empty_types(int n) {
    const MPI_Comm comm = MPI_COMM_WORLD;
    const int is_last = rank == size - 1;
    MPI_Datatype empty, own = MPI_FLOAT;
    MPI_Type_contiguous(0, MPI_FLOAT, &empty), MPI_Type_commit(&empty);
    for (int of = 0; of < size; of++) counts[of] = of == size - 1 ? 0 : n, places[of] = of * n;
    int *its = is_last ? zeros : counts;
    if (is_last) own = empty, n = 0;
    MPI_Gatherv(a, n, own, b, counts, places, own, 0, comm);
    MPI_Scatterv(a, counts, places, own, b, n, own, 0, comm);
    MPI_Alltoallv(a, its, places, own, b, its, places, own, comm);
    MPI_Type_free(&empty);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    a = calloc(LONG + 2 * MAX * size, sizeof *a), b = calloc(LONG + 2 * MAX * size, sizeof *b);
    counts = calloc(size, sizeof *counts), places = calloc(size, sizeof *places);
    zeros = calloc(size, sizeof *zeros);
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, rank < 2, rank, &part);
    if (rank < 2) {
        MPI_Request request;
        MPI_Iallreduce(a, b, LONG, MPI_FLOAT, MPI_SUM, part, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    for (int n = 32; n <= MAX; n *= 4) calls(n), calls(n + n / 3), empty_types(n);
    if (rank < 2) MPI_Bcast(a, LONG, MPI_FLOAT, 0, part);
    int all;
    MPI_Allreduce(&n_failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d failed\n", all);
    MPI_Comm_free(&part);
    MPI_Finalize();
    return all != 0;
}
