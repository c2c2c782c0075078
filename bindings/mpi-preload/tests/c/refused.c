/* Calls that MPI libraries refuse, and values that they treat specially. Rank 0 prints the result
   of each, which must not depend on whether the library is preloaded. */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { N = 2048 };

static float a[8 * N], b[8 * N];
static int rank, size;

static void say(const char *what, int code) {
    int class = 0;
    if (code) MPI_Error_class(code, &class);
    if (rank == 0) printf("%d %s\n", class, what);
}

#define TRY(call) say(#call, call)

static void aliases(MPI_Comm comm) {
    int counts[8], places[8];
    for (int of = 0; of < 8; of++) counts[of] = N, places[of] = of * N;
    TRY(MPI_Allreduce(a, a, N, MPI_FLOAT, MPI_SUM, comm));
    TRY(MPI_Reduce_scatter_block(a, a, N, MPI_FLOAT, MPI_SUM, comm));
    TRY(MPI_Reduce_scatter(a, a, counts, MPI_FLOAT, MPI_SUM, comm));
    TRY(MPI_Allgather(a + rank * N, N, MPI_FLOAT, a, N, MPI_FLOAT, comm));
    TRY(MPI_Allgatherv(a + rank * N, N, MPI_FLOAT, a, counts, places, MPI_FLOAT, comm));
    TRY(MPI_Alltoall(a, N, MPI_FLOAT, a, N, MPI_FLOAT, comm));
    TRY(MPI_Alltoallv(a, counts, places, MPI_FLOAT, a, counts, places, MPI_FLOAT, comm));
    MPI_Request request = MPI_REQUEST_NULL;
    TRY(MPI_Iallreduce(a, a, N, MPI_FLOAT, MPI_SUM, comm, &request));
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    /* With more ranks, only the root would detect the error, and the others would wait for it. */
    if (size == 1) {
        TRY(MPI_Reduce(a, a, N, MPI_FLOAT, MPI_SUM, 0, comm));
        TRY(MPI_Gather(a, N, MPI_FLOAT, a, N, MPI_FLOAT, 0, comm));
        TRY(MPI_Scatter(a, N, MPI_FLOAT, a, N, MPI_FLOAT, 0, comm));
    }
}

static void types(MPI_Comm comm) {
    MPI_Datatype raw, pair, copy;
    MPI_Type_contiguous(2, MPI_FLOAT, &raw);
    MPI_Type_contiguous(2, MPI_FLOAT, &pair), MPI_Type_commit(&pair);
    MPI_Type_dup(MPI_FLOAT, &copy);
    TRY(MPI_Bcast(a, N, raw, 0, comm));
    TRY(MPI_Allgather(a, N, raw, b, N, raw, comm));
    TRY(MPI_Alltoall(a, N, raw, b, N, raw, comm));
    TRY(MPI_Bcast(a, N, pair, 0, comm));
    TRY(MPI_Allreduce(a, b, N, pair, MPI_SUM, comm));
    TRY(MPI_Allreduce(a, b, N, copy, MPI_SUM, comm));
    TRY(MPI_Reduce_scatter_block(a, b, N, pair, MPI_SUM, comm));
    /* The type may be committed later. */
    MPI_Type_commit(&raw);
    TRY(MPI_Bcast(a, N, raw, 0, comm));
    MPI_Type_free(&raw), MPI_Type_free(&pair), MPI_Type_free(&copy);
    static unsigned char yes[N], no[N];
    memset(yes, 1, N);
    TRY(MPI_Allreduce(yes, no, N, MPI_C_BOOL, MPI_SUM, comm));
    TRY(MPI_Allreduce(yes, no, N, MPI_C_BOOL, MPI_LOR, comm));
    TRY(MPI_Allreduce(yes, no, N, MPI_CXX_BOOL, MPI_SUM, comm));
    TRY(MPI_Allreduce(a, b, N, MPI_LOGICAL, MPI_SUM, comm));
}

static void buffers(MPI_Comm comm) {
    TRY(MPI_Allreduce(a, MPI_IN_PLACE, N, MPI_FLOAT, MPI_SUM, comm));
    TRY(MPI_Allgather(a, -1, MPI_FLOAT, b, N, MPI_FLOAT, comm));
#ifndef OPEN_MPI
    /* Open MPI does not check these arguments, and crashes. */
    TRY(MPI_Allreduce(NULL, b, N, MPI_FLOAT, MPI_SUM, comm));
    TRY(MPI_Bcast(NULL, N, MPI_FLOAT, 0, comm));
#endif
}

/* NaN payloads matter where the library selects one of the operands. Foldwire's sums do not keep
   them. */
static void show(const char *what, int payloads) {
    uint64_t all = 0;
    for (int i = 0; i < N; i++) {
        uint32_t bits;
        memcpy(&bits, b + i, sizeof bits);
        if (!payloads && isnan(b[i])) bits = 0x7fc00000u;
        all = (all ^ bits) * 0x100000001b3u;
    }
    if (rank == 0) printf("%016llx %s\n", (unsigned long long)all, what);
}

/* Results for NaN, and for zeros of both signs. */
static void numbers(MPI_Comm comm) {
    for (int i = 0; i < N; i++) {
        uint32_t nan = 0x7fc00000u + (uint32_t)(i + 1);
        a[i] = (float)((i * 7 + rank * 13) % 1000);
        /* One rank after the other has a NaN with a payload. */
        if (i % 5 == 0 && i / 5 % size == rank) memcpy(a + i, &nan, sizeof nan);
        if (i % 5 == 1) a[i] = i % 2 == rank % 2 ? 0.0f : -0.0f;
    }
    MPI_Allreduce(a, b, N, MPI_FLOAT, MPI_MAX, comm), show("maxima", 1);
    MPI_Allreduce(a, b, N, MPI_FLOAT, MPI_MIN, comm), show("minima", 1);
    MPI_Allreduce(a, b, N, MPI_FLOAT, MPI_SUM, comm), show("sums", 0);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    /* Open MPI reports some errors of other communicators here, too. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm, &rank), MPI_Comm_size(comm, &size);
    numbers(comm);
    aliases(comm);
    types(comm);
    buffers(comm);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}
