/* Reduces an array with missing values, marked by 1e20, with a bound that is relative. */
#include <mpi.h>
#include <stdio.h>

enum { N = 5000 };

int main(int argc, char **argv) {
    static float data[N];
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int call = 0; call < 3; call++) {
        for (int i = 0; i < N; i++) data[i] = rank == 1 && i < 50 ? 1e20f : (float)(i % 100);
        MPI_Allreduce(MPI_IN_PLACE, data, N, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    }
    if (rank == 0) printf("0 failed\n");
    MPI_Finalize();
    return 0;
}
