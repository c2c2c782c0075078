/* A program that knows nothing of Foldwire: rank 0 sends floats, and rank 1 probes before it
   receives them. With LATE, the probe is in a file that is loaded after MPI_Init, whose name is the
   argument. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef LATE
#include <dlfcn.h>
#endif

enum { N = 10000 };

#ifndef LATE
int probed(MPI_Status *status) { return MPI_Probe(0, MPI_ANY_TAG, MPI_COMM_WORLD, status); }
#endif

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, n_failed = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
#ifdef LATE
    void *file = dlopen(argv[1], RTLD_NOW);
    int (*probed)(MPI_Status *) = (int (*)(MPI_Status *))dlsym(file, "probed");
#endif
    float *all = malloc(sizeof *all * N);
    for (int i = 0; i < N; i++) all[i] = i;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        MPI_Send(all, N, MPI_FLOAT, 1, 5, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Status status;
        int n = 0, code = probed(&status);
        if (code) {
            printf("refused\n");
        } else {
            MPI_Get_count(&status, MPI_FLOAT, &n);
            if (n != N) n_failed++, printf("wrong size\n");
        }
        float *got = calloc(N, sizeof *got);
        MPI_Recv(got, N, MPI_FLOAT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < N; i++) n_failed += got[i] != i;
        printf("%d failed\n", n_failed);
        free(got);
    }
    free(all);
    MPI_Finalize();
    return n_failed > 0;
}
