/* A program that knows nothing of Foldwire: MPI_Waitall reports a persistent receive as pending,
   since another receive has failed. Run with three ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1 << 20, ROUNDS = 40 };

static float value(int round, unsigned i) { return (i * 40503 + round) % 65536; }

int main(int argc, char **argv) {
    int rank, n_failed = 0, n_pending = 0, go = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    float *values = calloc(N, sizeof *values);
    MPI_Request both[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    if (rank == 0) MPI_Recv_init(values, N, MPI_FLOAT, 1, 0, MPI_COMM_WORLD, &both[0]);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            int n_wrong = 0;
            MPI_Status statuses[2];
            for (int i = 0; i < N; i++) values[i] = -1;
            MPI_Start(&both[0]);
            MPI_Irecv(&go, 1, MPI_INT, 2, 0, MPI_COMM_WORLD, &both[1]);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Waitall(2, both, statuses);
            if (statuses[0].MPI_ERROR == MPI_ERR_PENDING) {
                n_pending++;
                MPI_Wait(&both[0], MPI_STATUS_IGNORE);
            }
            for (int i = 0; i < N; i++) n_wrong += values[i] != value(round, i);
            n_failed += n_wrong > 0;
        } else {
            /* The message that is too long comes at any time of the other one. */
            double end = MPI_Wtime() + round * 5e-4;
            for (int i = 0; i < N && rank == 1; i++) values[i] = value(round, i);
            MPI_Barrier(MPI_COMM_WORLD);
            while (rank == 2 && MPI_Wtime() < end) {
            }
            if (rank == 1) MPI_Send(values, N, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
            if (rank == 2) MPI_Send((int[2]){0}, 2, MPI_INT, 0, 0, MPI_COMM_WORLD);
        }
    }
    if (rank == 0) {
        MPI_Request_free(&both[0]);
        printf("%d failed, %d pending\n", n_failed, n_pending);
    }
    MPI_Finalize();
    free(values);
    return n_failed > 0;
}
