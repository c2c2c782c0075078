/* A tool that uses MPI's profiling interface: it replaces a function and calls the library's PMPI
   function. With FRONT it also replaces MPI_Init and MPI_Finalize. */
#include <mpi.h>
#include <stdio.h>

static int n_calls;

int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
    n_calls++;
    return PMPI_Allreduce(send, recv, count, type, op, comm);
}

#ifdef FRONT
int MPI_Init(int *argc, char ***argv) { return PMPI_Init(argc, argv); }
int MPI_Finalize(void) { return PMPI_Finalize(); }
#endif

__attribute__((destructor)) static void say(void) {
    if (n_calls) fprintf(stderr, "the tool saw %d calls\n", n_calls);
}
