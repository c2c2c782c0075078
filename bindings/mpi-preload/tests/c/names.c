/* Sums on two communicators with names. With an argument, the ranks give the second communicator
   different names. */
#include <mpi.h>

enum { N = 4096 };

int main(int argc, char **argv) {
    static double a[N], b[N];
    MPI_Comm halo, grid;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &halo), MPI_Comm_set_name(halo, "halo");
    MPI_Comm_dup(MPI_COMM_WORLD, &grid);
    MPI_Comm_set_name(grid, argc > 1 && rank ? "halo" : "grid");
    for (int i = 0; i < 3; i++) {
        MPI_Allreduce(a, b, N, MPI_DOUBLE, MPI_SUM, halo);
        MPI_Allreduce(a, b, N, MPI_DOUBLE, MPI_SUM, grid);
        MPI_Allreduce(a, b, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Comm_free(&halo), MPI_Comm_free(&grid);
    MPI_Finalize();
    return 0;
}
