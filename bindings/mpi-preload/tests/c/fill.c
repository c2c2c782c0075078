/* Reduces an array with missing values, marked by 1e20, with a bound that is relative. With an
   argument, MPI returns errors: then each call must fail and leave the array as it was. */
#include <mpi.h>
#include <stdio.h>

enum { N = 5000 };

int main(int argc, char **argv) {
    static float data[N];
    int rank, n_wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc > 1) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int call = 0; call < 3; call++) {
        for (int i = 0; i < N; i++) data[i] = rank == 1 && i < 50 ? 1e20f : (float)(i % 100);
        int code = MPI_Allreduce(MPI_IN_PLACE, data, N, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
        n_wrong += (code == MPI_SUCCESS) != (argc == 1);
        n_wrong += argc > 1 && data[0] != (rank == 1 ? 1e20f : 0);
    }
    if (rank == 0) printf("%d failed\n", n_wrong);
    MPI_Finalize();
    return 0;
}
