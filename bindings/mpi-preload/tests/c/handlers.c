/* A program that knows nothing of Foldwire: threads that use new datatypes at once. The error
   handler of MPI_COMM_WORLD must stay the program's. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

enum { ROUNDS = 100000 };

static double values[8192];

static void *sends(void *unused) {
    MPI_Datatype gaps;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Type_vector(4096, 1, 2, MPI_DOUBLE, &gaps);
        MPI_Type_commit(&gaps);
        MPI_Send(values, 1, gaps, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
        MPI_Type_free(&gaps);
    }
    return unused;
}

int main(int argc, char **argv) {
    int level;
    pthread_t threads[2];
    MPI_Errhandler handler;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    if (level < MPI_THREAD_MULTIPLE) {
        printf("no threads\n");
        MPI_Finalize();
        return 0;
    }
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, sends, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
    printf("%s\n", handler == MPI_ERRORS_ARE_FATAL ? "as it was" : "CHANGED");
    MPI_Finalize();
    return 0;
}
