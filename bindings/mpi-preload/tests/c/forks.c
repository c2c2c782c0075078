/* A rank forks a child, which calls MPI as if it were a rank. */
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 4096 };

int main(int argc, char **argv) {
    static double a[N], b[N];
    MPI_Init(&argc, &argv);
    MPI_Allreduce(a, b, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    pid_t child = fork();
    if (child == 0) {
        /* The library itself may hang here. That is no error of Foldwire. */
        alarm(2);
        MPI_Allreduce(a, b, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
#ifdef OPEN_MPI
        /* MPICH would end the parent's connections. */
        MPI_Finalize();
#endif
        _exit(0);
    }
    waitpid(child, NULL, 0);
    MPI_Allreduce(a, b, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
