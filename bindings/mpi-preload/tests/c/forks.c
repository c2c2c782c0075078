/* A rank with a child that it forked, which calls MPI as if it were a rank. */
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
        /* The library may stand still in this; it is not to be asked of it. */
        alarm(2);
        MPI_Allreduce(a, b, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
#ifdef OPEN_MPI
        /* MPICH's would end its parent's connections. */
        MPI_Finalize();
#endif
        _exit(0);
    }
    waitpid(child, NULL, 0);
    MPI_Allreduce(a, b, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
