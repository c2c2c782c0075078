/* A program that knows nothing of Foldwire: heat in a cube, divided into slabs. Each step exchanges
   a face with either neighbour. Prints the time of a step, and what of it the exchange took.

   halo [POINTS [STEPS]]: points along an edge of a face (512), and steps (100). */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEPTH = 6 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size, n = argc > 1 ? atoi(argv[1]) : 512, n_steps = argc > 2 ? atoi(argv[2]) : 100;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int up = rank + 1 < size ? rank + 1 : MPI_PROC_NULL, down = rank ? rank - 1 : MPI_PROC_NULL;
    size_t face = (size_t)n * n;
    float *now = calloc((DEPTH + 2) * face, sizeof *now), *then = calloc((DEPTH + 2) * face, 4);
    for (int z = 0; z < DEPTH + 2; z++) {
        for (int y = 0; y < n; y++) {
            for (int x = 0; x < n; x++) {
                float where = sinf(0.02f * x) * cosf(0.03f * y) + 0.1f * (rank * DEPTH + z);
                now[z * face + (size_t)y * n + x] = then[z * face + (size_t)y * n + x] = where;
            }
        }
    }
    double begin = 0, exchange = 0;
    for (int step = -2; step < n_steps; step++) {
        if (step == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            begin = MPI_Wtime(), exchange = 0;
        }
        double before = MPI_Wtime();
        MPI_Request requests[4];
        MPI_Irecv(now, face, MPI_FLOAT, down, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(now + (DEPTH + 1) * face, face, MPI_FLOAT, up, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(now + DEPTH * face, face, MPI_FLOAT, up, 0, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(now + face, face, MPI_FLOAT, down, 1, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        exchange += MPI_Wtime() - before;
        for (int z = 1; z <= DEPTH; z++) {
            for (int y = 1; y < n - 1; y++) {
                for (int x = 1; x < n - 1; x++) {
                    size_t at = z * face + (size_t)y * n + x;
                    float around = now[at - 1] + now[at + 1] + now[at - n] + now[at + n] +
                                   now[at - face] + now[at + face];
                    then[at] = now[at] + 0.1f * (around - 6 * now[at]);
                }
            }
        }
        float *swap = now;
        now = then, then = swap;
    }
    double times[2] = {(MPI_Wtime() - begin) / n_steps * 1e3, exchange / n_steps * 1e3}, most[2];
    double heat = 0, all = 0;
    for (size_t i = face; i < (DEPTH + 1) * face; i++) heat += now[i];
    MPI_Reduce(times, most, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&heat, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("step %.2f ms, exchange %.2f ms, heat %.17g\n", most[0], most[1], all);
    MPI_Finalize();
    return 0;
}
