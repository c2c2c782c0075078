/* A program that knows nothing of Foldwire: collectives in which each rank's share has a length of
   its own.

   shares [TOLERANCE]: each value may be wrong by so much, 0 unless said. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#pragma weak MPI_Allgatherv_c
extern int MPI_Allgatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count[],
                            const MPI_Aint[], MPI_Datatype, MPI_Comm);

enum { N = 3000, GAP = 5, NONE = -7 };
static double tolerance;
static int rank, size, n_failed;
static int *counts, *places;

static void check(int good, const char *what) {
    if (!good) {
        n_failed++;
        fprintf(stderr, "rank %d: FAILED: %s\n", rank, what);
    }
}

static double value(int of, int i) { return (double)((i * 7 + of * 13) % 1000); }

/* All ranks' shares lie in an array of this length, from the last rank's to the first's, with gaps
   between them. */
static int layout(void) {
    int place = GAP;
    for (int of = size - 1; of >= 0; of--) {
        counts[of] = of == 1 ? 0 : N + of;
        places[of] = place;
        place += counts[of] + GAP;
    }
    return place;
}

static double *filled(int n, double with) {
    double *made = malloc(n * sizeof *made);
    for (int i = 0; i < n; i++) made[i] = with;
    return made;
}

static double *share(int of) {
    double *made = filled(N + size, NONE);
    for (int i = 0; i < counts[of]; i++) made[i] = value(of, i);
    return made;
}

/* Whether there are all shares, and nothing in the gaps. */
static int is_whole(const double *all, int n) {
    double *want = filled(n, NONE);
    int good = 1;
    for (int of = 0; of < size; of++)
        for (int i = 0; i < counts[of]; i++) want[places[of] + i] = value(of, i);
    for (int i = 0; i < n; i++)
        good &= want[i] == NONE ? all[i] == NONE : fabs(all[i] - want[i]) <= tolerance;
    free(want);
    return good;
}

static void all_gathers(void) {
    int n = layout();
    double *own = share(rank), *all = filled(n, NONE);
    MPI_Allgatherv(own, counts[rank], MPI_DOUBLE, all, counts, places, MPI_DOUBLE, MPI_COMM_WORLD);
    check(is_whole(all, n), "all-gathers");
    free(all), all = filled(n, NONE);
    for (int i = 0; i < counts[rank]; i++) all[places[rank] + i] = own[i];
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, counts, places, MPI_DOUBLE,
                   MPI_COMM_WORLD);
    check(is_whole(all, n), "all-gathers in place");
    free(all), all = filled(n, NONE);
    if (MPI_Allgatherv_c) {
        MPI_Count *large = malloc(size * sizeof *large);
        MPI_Aint *far = malloc(size * sizeof *far);
        for (int of = 0; of < size; of++) large[of] = counts[of], far[of] = places[of];
        MPI_Allgatherv_c(own, counts[rank], MPI_DOUBLE, all, large, far, MPI_DOUBLE,
                         MPI_COMM_WORLD);
        check(is_whole(all, n), "all-gathers with large counts");
        free(large), free(far);
    }
    free(all), free(own);

    /* Pairs with a hole behind each on even ranks, doubles on odd ones: the same signature. MPICH
       4.0 by itself refuses that between three ranks or more. */
    MPI_Datatype two, pair;
    MPI_Type_contiguous(2, MPI_DOUBLE, &two);
    MPI_Type_create_resized(two, 0, 3 * sizeof(double), &pair);
    MPI_Type_commit(&pair);
    int has_holes = rank % 2 == 0, good = 1, step = has_holes ? 3 : 2;
    double mine[2 * N];
    for (int i = 0; i < 2 * N; i++) mine[i] = value(rank, i);
    for (int of = 0; of < size; of++) {
        counts[of] = has_holes ? N : 2 * N;
        places[of] = of * counts[of];
    }
    all = filled(3 * N * size, NONE);
    MPI_Allgatherv(mine, 2 * N, MPI_DOUBLE, all, counts, places, has_holes ? pair : MPI_DOUBLE,
                   MPI_COMM_WORLD);
    for (int i = 0; i < N * size; i++) {
        for (int j = 0; j < 2; j++)
            good &= fabs(all[i * step + j] - value(i / N, i % N * 2 + j)) <= tolerance;
        if (has_holes) good &= all[i * step + 2] == NONE;
    }
    check(good, "all-gathers of one signature in two layouts");
    free(all);
    MPI_Type_free(&pair), MPI_Type_free(&two);
}

int main(int argc, char **argv) {
    tolerance = argc > 1 ? atof(argv[1]) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    counts = malloc(size * sizeof *counts), places = malloc(size * sizeof *places);
    all_gathers();
    int all;
    MPI_Allreduce(&n_failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d failed\n", all);
    free(counts), free(places);
    MPI_Finalize();
    return all != 0;
}
