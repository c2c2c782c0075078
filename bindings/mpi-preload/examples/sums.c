/* Sums 64 MiB of floats by MPI_Allreduce. Prints the median time, and the largest difference from
   sums that are computed locally. The program knows nothing of Foldwire. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 16 << 20, N_TIMES = 11 };

static float value(int rank, int i) {
    return sinf((float)i * 1e-4f * (float)(rank + 1)) + 0.1f * sinf((float)i * 0.013f);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    float *own = malloc(N * sizeof *own), *sums = malloc(N * sizeof *sums);
    if (!own || !sums) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < N; i++) own[i] = value(rank, i);
    double times[N_TIMES];
    for (int k = -2; k < N_TIMES; k++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        MPI_Allreduce(own, sums, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double own_time = MPI_Wtime() - start, longest;
        MPI_Allreduce(&own_time, &longest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (k >= 0) times[k] = longest;
    }
    double error = 0;
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int of = 0; of < size; of++) sum += value(of, i);
        error = fmax(error, fabs(sum - sums[i]));
    }
    qsort(times, N_TIMES, sizeof *times, by_size);
    if (rank == 0) {
        printf("64 MiB, %d ranks: %.1f ms, largest difference %.1e\n", size,
               times[N_TIMES / 2] * 1e3, error);
    }
    free(own), free(sums);
    MPI_Finalize();
    return 0;
}
