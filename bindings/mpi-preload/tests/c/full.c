/* A program that knows nothing of Foldwire: it uses up all communicators, and then receives into a
   datatype that Foldwire has not seen. Run with two ranks. */
#include <mpi.h>
#include <stdio.h>

enum { N = 8192, MANY = 4096 };

int main(int argc, char **argv) {
    static float out[2 * N], in[2 * N];
    static MPI_Comm all[MANY];
    int rank, n = 0, n_wrong = 0;
    MPI_Datatype gaps;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    while (n < MANY && MPI_Comm_dup(MPI_COMM_SELF, &all[n]) == MPI_SUCCESS) n++;
    MPI_Type_vector(N, 1, 2, MPI_FLOAT, &gaps), MPI_Type_commit(&gaps);
    for (int i = 0; i < 2 * N; i++) out[i] = i % 100;
    MPI_Sendrecv(out, N, MPI_FLOAT, 1 - rank, 0, in, 1, gaps, 1 - rank, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 0; i < N; i++) n_wrong += in[2 * i] != out[i];
    while (n > 0) MPI_Comm_free(&all[--n]);
    MPI_Type_free(&gaps);
    printf("%s values\n", n_wrong ? "WRONG" : "right");
    MPI_Finalize();
    return n_wrong > 0;
}
