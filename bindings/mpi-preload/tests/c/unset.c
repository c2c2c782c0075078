/* Errors on communicators whose error handler nobody has set, and on one that has a handler of its
   own. Rank 0 prints what the program notices of each error, which must not depend on whether the
   library is preloaded. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 8192 };

static int rank, n_calls;

static void counts(MPI_Comm *comm, int *code, ...) {
    (void)comm, (void)code;
    n_calls++;
}

static void say(const char *what, int code) {
    int class = 0;
    if (code) MPI_Error_class(code, &class);
    if (rank == 0) printf("%s: %d\n", what, class);
}

#define TRY(call) say(#call, call)

/* Values that Foldwire compresses, of a datatype that it inspects. */
static void work(MPI_Comm comm) {
    static float out[2 * N], in[2 * N];
    int next = 1 - rank;
    MPI_Datatype gaps;
    MPI_Type_vector(N, 1, 2, MPI_FLOAT, &gaps), MPI_Type_commit(&gaps);
    for (int i = 0; i < 2 * N; i++) out[i] = i % 100;
    MPI_Allreduce(out, in, N, MPI_FLOAT, MPI_SUM, comm);
    MPI_Bcast(in, 1, gaps, 0, comm);
    MPI_Sendrecv(out, 1, gaps, next, 0, in, 1, gaps, next, 0, comm, MPI_STATUS_IGNORE);
    MPI_Type_free(&gaps);
}

/* A message that is longer than the buffer: MPI reports it, or Foldwire if it was compressed. */
static int truncated(MPI_Comm comm) {
    static float out[N], in[N];
    MPI_Request request;
    MPI_Isend(out, N, MPI_FLOAT, 1 - rank, 0, comm, &request);
    int code = MPI_Recv(in, N - 1, MPI_FLOAT, 1 - rank, 0, comm, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return code;
}

int main(int argc, char **argv) {
    MPI_Comm early, late, counted;
    MPI_Errhandler handler;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &early), MPI_Comm_dup(MPI_COMM_WORLD, &counted);
    MPI_Comm_create_errhandler(counts, &handler);
    MPI_Comm_set_errhandler(counted, handler), MPI_Errhandler_free(&handler);
    work(early), work(counted), work(MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &late);
    MPI_Send(NULL, 0, MPI_INT, 99, 0, counted), truncated(counted);
    if (rank == 0) printf("%d calls of the handler\n", n_calls);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    TRY(MPI_Send(NULL, 0, MPI_INT, 99, 0, early));
    TRY(truncated(early));
    TRY(MPI_Send(NULL, 0, MPI_INT, 99, 0, late));
    TRY(truncated(late));
    TRY(truncated(MPI_COMM_WORLD));
    MPI_Finalize();
    return 0;
}
