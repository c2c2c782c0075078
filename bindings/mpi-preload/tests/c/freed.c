/* A program that knows nothing of Foldwire: threads that free their receives, and learn by a later
   message that these are complete. Run with two ranks. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 3, ROUNDS = 100, N = 1 << 16 };

static int rank, n_failed[THREADS];
static float values[THREADS][N];

static float value(int thread, int round, int i) { return (i + 7 * round) % 1000 + thread; }

static void *exchanges(void *place) {
    float *mine = place;
    int thread = (mine - values[0]) / N, other = 1 - rank, word = 0;
    for (int round = 0; round < ROUNDS; round++) {
        if (rank == 1) {
            for (int i = 0; i < N; i++) mine[i] = value(thread, round, i);
            MPI_Recv(&word, 1, MPI_INT, other, thread, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(mine, N, MPI_FLOAT, other, thread, MPI_COMM_WORLD);
            MPI_Send(&word, 1, MPI_INT, other, 10 + thread, MPI_COMM_WORLD);
            continue;
        }
        int n_wrong = 0;
        MPI_Request request;
        MPI_Irecv(mine, N, MPI_FLOAT, other, thread, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
        MPI_Send(&word, 1, MPI_INT, other, thread, MPI_COMM_WORLD);
        MPI_Recv(&word, 1, MPI_INT, other, 10 + thread, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < N; i++) n_wrong += mine[i] != value(thread, round, i);
        n_failed[thread] += n_wrong > 0;
    }
    return NULL;
}

int main(int argc, char **argv) {
    int level, n = 0;
    pthread_t threads[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (level == MPI_THREAD_MULTIPLE) {
        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, exchanges, values[i]);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL), n += n_failed[i];
    }
    if (rank == 0) printf("%d failed\n", n);
    MPI_Finalize();
    return n > 0;
}
