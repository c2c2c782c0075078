/* A program that knows nothing of Foldwire: broadcasts one value of more than 2 GiB, a struct of a
   vector and the rest, as programs make for counts that do not fit an int. The arrays repeat one
   block of memory, so that they take little of it. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK = 1 << 18, N_BLOCKS = 2050, N_CHUNKS = 5, CHUNK = 100 * (1 << 20) };

static float *repeated(void) {
    size_t n_bytes = BLOCK * sizeof(float);
    int file = memfd_create("block", 0);
    char *all = mmap(NULL, N_BLOCKS * n_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (file < 0 || ftruncate(file, n_bytes) || all == MAP_FAILED) abort();
    for (size_t k = 0; k < N_BLOCKS; k++) {
        void *place = all + k * n_bytes;
        int how = MAP_SHARED | MAP_FIXED;
        if (mmap(place, n_bytes, PROT_READ | PROT_WRITE, how, file, 0) != place) abort();
    }
    return (float *)all;
}

int main(int argc, char **argv) {
    int rank, good = 1;
    long long n = (long long)BLOCK * N_BLOCKS, n_chunks = (long long)N_CHUNKS * CHUNK;
    int lengths[] = {1, 1};
    MPI_Aint places[] = {0, n_chunks * sizeof(float)};
    MPI_Datatype parts[2], whole;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    float *values = repeated();
    for (int i = 0; i < BLOCK; i++) values[i] = rank ? -1 : (float)(i % 1000);
    MPI_Type_vector(N_CHUNKS, CHUNK, CHUNK, MPI_FLOAT, &parts[0]);
    MPI_Type_contiguous((int)(n - n_chunks), MPI_FLOAT, &parts[1]);
    MPI_Type_create_struct(2, lengths, places, parts, &whole);
    MPI_Type_commit(&whole);
    MPI_Bcast(values, 1, whole, 0, MPI_COMM_WORLD);
    for (int i = 0; i < BLOCK; i++) good &= values[i] == (float)(i % 1000);
    printf("%s\n", good ? "good" : "WRONG");
    MPI_Type_free(&parts[0]), MPI_Type_free(&parts[1]), MPI_Type_free(&whole);
    MPI_Finalize();
    return !good;
}
