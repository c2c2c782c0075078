/* A program that knows nothing of Foldwire: collectives with a different share length for each
   rank.

   shares [TOLERANCE [WRONG [later]]]: TOLERANCE is the allowed error of each value, 0 by default.
   WRONG is the number of an invalid call of two ranks to make instead, or -1 for none. With
   `later`, calls are non-blocking. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#pragma weak MPI_Allgatherv_c
extern int MPI_Allgatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count[],
                            const MPI_Aint[], MPI_Datatype, MPI_Comm);

#pragma weak MPI_Gatherv_c
extern int MPI_Gatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count[],
                         const MPI_Aint[], MPI_Datatype, int, MPI_Comm);
#pragma weak MPI_Scatterv_c
extern int MPI_Scatterv_c(const void *, const MPI_Count[], const MPI_Aint[], MPI_Datatype, void *,
                          MPI_Count, MPI_Datatype, int, MPI_Comm);
#pragma weak MPI_Alltoallv_c
extern int MPI_Alltoallv_c(const void *, const MPI_Count[], const MPI_Aint[], MPI_Datatype, void *,
                           const MPI_Count[], const MPI_Aint[], MPI_Datatype, MPI_Comm);

#pragma weak MPI_Iallgatherv_c
extern int MPI_Iallgatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count[],
                             const MPI_Aint[], MPI_Datatype, MPI_Comm, MPI_Request *);
#pragma weak MPI_Igatherv_c
extern int MPI_Igatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count[],
                          const MPI_Aint[], MPI_Datatype, int, MPI_Comm, MPI_Request *);
#pragma weak MPI_Iscatterv_c
extern int MPI_Iscatterv_c(const void *, const MPI_Count[], const MPI_Aint[], MPI_Datatype, void *,
                           MPI_Count, MPI_Datatype, int, MPI_Comm, MPI_Request *);
#pragma weak MPI_Ialltoallv_c
extern int MPI_Ialltoallv_c(const void *, const MPI_Count[], const MPI_Aint[], MPI_Datatype, void *,
                            const MPI_Count[], const MPI_Aint[], MPI_Datatype, MPI_Comm,
                            MPI_Request *);

#define MPI_IAllgatherv MPI_Iallgatherv
#define MPI_IGatherv MPI_Igatherv
#define MPI_IScatterv MPI_Iscatterv
#define MPI_IAlltoallv MPI_Ialltoallv
#define MPI_IAllgatherv_c MPI_Iallgatherv_c
#define MPI_IGatherv_c MPI_Igatherv_c
#define MPI_IScatterv_c MPI_Iscatterv_c
#define MPI_IAlltoallv_c MPI_Ialltoallv_c
/* Calls MPI_<name>, or its non-blocking form and MPI_Wait. Returns whether it fails. */
static int later;
static MPI_Request request;
#define CALL(name, ...)                                                                          \
    (later ? MPI_I##name(__VA_ARGS__, &request) || MPI_Wait(&request, MPI_STATUS_IGNORE)         \
           : MPI_##name(__VA_ARGS__))

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

/* Lays out all shares from the last rank's to the first's, with gaps. Returns the array's length.
   */
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

/* Returns whether all shares are present and the gaps are untouched. */
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
    /* A rank without values may pass any address, such as that of its empty share. */
    CALL(Allgatherv, counts[rank] ? own : all + places[rank], counts[rank], MPI_DOUBLE, all,
         counts, places, MPI_DOUBLE, MPI_COMM_WORLD);
    check(is_whole(all, n), "all-gathers");
    free(all), all = filled(n, NONE);
    for (int i = 0; i < counts[rank]; i++) all[places[rank] + i] = own[i];
    CALL(Allgatherv, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, counts, places, MPI_DOUBLE,
         MPI_COMM_WORLD);
    check(is_whole(all, n), "all-gathers in place");
    free(all), all = filled(n, NONE);
    if (MPI_Allgatherv_c) {
        MPI_Count *large = malloc(size * sizeof *large);
        MPI_Aint *far = malloc(size * sizeof *far);
        for (int of = 0; of < size; of++) large[of] = counts[of], far[of] = places[of];
        CALL(Allgatherv_c, own, counts[rank], MPI_DOUBLE, all, large, far, MPI_DOUBLE,
             MPI_COMM_WORLD);
        check(is_whole(all, n), "all-gathers with large counts");
        free(large), free(far);
    }
    free(all), free(own);

    /* Pairs with a hole behind each on even ranks, and doubles on odd ones: equal signatures. MPICH
       4.0 itself refuses that between three ranks or more. */
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
    CALL(Allgatherv, mine, 2 * N, MPI_DOUBLE, all, counts, places, has_holes ? pair : MPI_DOUBLE,
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

static int is_share(const double *got, int of) {
    int good = 1;
    for (int i = 0; i < counts[of]; i++) good &= fabs(got[i] - value(of, i)) <= tolerance;
    for (int i = counts[of]; i < N + size; i++) good &= got[i] == NONE;
    return good;
}

static void gathers_and_scatters(void) {
    int n = layout();
    double *own = share(rank), *all = filled(n, NONE), *back = filled(N + size, NONE);
    for (int root = 0; root < size; root++) {
        int is_root = rank == root;
        /* These arguments are significant on the root only. */
        int *its = is_root ? counts : (int *)8, *where = is_root ? places : (int *)8;
        MPI_Datatype type = is_root ? MPI_DOUBLE : MPI_DATATYPE_NULL;
        for (int i = 0; i < n; i++) all[i] = NONE;
        CALL(Gatherv, own, counts[rank], MPI_DOUBLE, is_root ? all : NULL, its, where, type, root,
             MPI_COMM_WORLD);
        check(!is_root || is_whole(all, n), "gathers");
        for (int i = 0; i < n; i++) all[i] = NONE;
        for (int i = 0; i < counts[rank]; i++) all[places[rank] + i] = own[i];
        CALL(Gatherv, is_root ? MPI_IN_PLACE : own, counts[rank], MPI_DOUBLE, all, its, where, type,
             root, MPI_COMM_WORLD);
        check(!is_root || is_whole(all, n), "gathers in place");
        for (int of = 0; of < size; of++)
            for (int i = 0; i < counts[of]; i++) all[places[of] + i] = value(of, i);
        for (int i = 0; i < N + size; i++) back[i] = NONE;
        CALL(Scatterv, is_root ? all : NULL, its, where, type, back, counts[rank], MPI_DOUBLE, root,
             MPI_COMM_WORLD);
        check(is_share(back, rank), "scatters");
        for (int i = 0; i < N + size; i++) back[i] = NONE;
        CALL(Scatterv, is_root ? all : NULL, its, where, type, is_root ? MPI_IN_PLACE : back,
             counts[rank], MPI_DOUBLE, root, MPI_COMM_WORLD);
        check(is_root || is_share(back, rank), "scatters in place");
    }
    free(own), free(all), free(back);
}

/* Number of values from rank a to rank b; `pair` identifies their contents. */
static int between(int a, int b) { return (a + 2 * b) % 3 ? N + a - b : 0; }
static int pair(int a, int b) { return a * 31 + b; }

static void all_to_alls(void) {
    int *got = malloc(size * sizeof *got), *at = malloc(size * sizeof *at), n = GAP, m = GAP;
    for (int to = size - 1; to >= 0; to--) {
        counts[to] = between(rank, to), places[to] = n, n += counts[to] + GAP;
        got[to] = between(to, rank), at[to] = m, m += got[to] + GAP;
    }
    double *send = filled(n, NONE), *recv = filled(m, NONE), *want = filled(m, NONE);
    for (int of = 0; of < size; of++) {
        for (int i = 0; i < counts[of]; i++) send[places[of] + i] = value(pair(rank, of), i);
        for (int i = 0; i < got[of]; i++) want[at[of] + i] = value(pair(of, rank), i);
    }
    CALL(Alltoallv, send, counts, places, MPI_DOUBLE, recv, got, at, MPI_DOUBLE, MPI_COMM_WORLD);
    int good = 1;
    for (int i = 0; i < m; i++)
        good &= want[i] == NONE ? recv[i] == NONE : fabs(recv[i] - want[i]) <= tolerance;
    check(good, "all-to-alls");
    free(send), free(recv), free(want);

    /* In place, each rank sends as many values as it receives. */
    n = GAP;
    for (int of = 0; of < size; of++) {
        got[of] = N + rank + of, at[of] = n, n += got[of] + GAP;
    }
    recv = filled(n, NONE), want = filled(n, NONE);
    for (int of = 0; of < size; of++)
        for (int i = 0; i < got[of]; i++) {
            recv[at[of] + i] = value(pair(rank, of), i);
            want[at[of] + i] = value(pair(of, rank), i);
        }
    CALL(Alltoallv, MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, recv, got, at, MPI_DOUBLE,
         MPI_COMM_WORLD);
    good = 1;
    for (int i = 0; i < n; i++)
        good &= want[i] == NONE ? recv[i] == NONE : fabs(recv[i] - want[i]) <= tolerance;
    check(good, "all-to-alls in place");
    free(recv), free(want);

    /* Ranks send to themselves only: floats on even ranks, doubles on odd ones. */
    for (int of = 0; of < size; of++) counts[of] = of == rank ? N : 0, places[of] = 0;
    MPI_Datatype type = rank % 2 ? MPI_DOUBLE : MPI_FLOAT;
    send = filled(N, rank + 0.1), recv = filled(N, NONE);
    CALL(Alltoallv, send, counts, places, type, recv, counts, places, type, MPI_COMM_WORLD);
    good = 1;
    for (int i = 0; i < (rank % 2 ? N : N / 2); i++) good &= recv[i] == send[i];
    check(good, "all-to-alls of two types are exact");
    free(send), free(recv), free(got), free(at);
}

/* Passes invalid arrays where MPI ignores them. */
static void large_counts(void) {
    int n = layout(), good = 1;
    double *own = share(rank), *all = filled(n, NONE), *back = filled(N + size, NONE);
    MPI_Count *large = malloc(size * sizeof *large), *nowhere = (MPI_Count *)8;
    MPI_Aint *far = malloc(size * sizeof *far), *nothing = (MPI_Aint *)8;
    for (int of = 0; of < size; of++) large[of] = counts[of], far[of] = places[of];
    CALL(Gatherv_c, own, counts[rank], MPI_DOUBLE, all, rank ? nowhere : large,
         rank ? nothing : far, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    check(rank || is_whole(all, n), "gathers with large counts");
    if (rank == 0)
        for (int of = 0; of < size; of++)
            for (int i = 0; i < counts[of]; i++) all[places[of] + i] = value(of, i);
    CALL(Scatterv_c, all, rank ? nowhere : large, rank ? nothing : far, MPI_DOUBLE, back,
         counts[rank], MPI_DOUBLE, 0, MPI_COMM_WORLD);
    check(is_share(back, rank), "scatters with large counts");
    free(all), all = filled(N * size, NONE);
    for (int i = 0; i < N * size; i++) all[i] = value(pair(rank, i / N), i % N);
    for (int of = 0; of < size; of++) large[of] = N, far[of] = of * N;
    CALL(Alltoallv_c, MPI_IN_PLACE, nowhere, nothing, MPI_DATATYPE_NULL, all, large, far,
         MPI_DOUBLE, MPI_COMM_WORLD);
    for (int i = 0; i < N * size; i++)
        good &= fabs(all[i] - value(pair(i / N, rank), i % N)) <= tolerance;
    check(good, "all-to-alls in place with large counts");
    free(own), free(all), free(back), free(large), free(far);
}

/* An intercommunicator of even and odd ranks, which Foldwire leaves to MPI. */
static void intercommunicators(void) {
    MPI_Comm half, across;
    int n, good = 1, code = MPI_SUCCESS;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &across);
    MPI_Comm_set_errhandler(across, MPI_ERRORS_RETURN);
    MPI_Comm_remote_size(across, &n);
    double *own = filled(N, rank), *all = filled(N * n, NONE);
    for (int of = 0; of < n; of++) counts[of] = N, places[of] = of * N;
    CALL(Allgatherv, own, N, MPI_DOUBLE, all, counts, places, MPI_DOUBLE, across);
    for (int i = 0; i < N * n; i++) good &= all[i] == i / N * 2 + 1 - rank % 2;
    if (MPI_Allgatherv_c) {
        MPI_Count *large = malloc(n * sizeof *large);
        MPI_Aint *far = malloc(n * sizeof *far);
        for (int of = 0; of < n; of++) large[of] = N, far[of] = of * N;
        for (int i = 0; i < N * n; i++) all[i] = NONE;
        code = MPI_Allgatherv_c(own, N, MPI_DOUBLE, all, large, far, MPI_DOUBLE, across);
        for (int i = 0; i < N * n && !code; i++) good &= all[i] == i / N * 2 + 1 - rank % 2;
        free(large), free(far);
    }
    /* An error is right, too, if there are no large counts. */
    if (code) MPI_Error_class(code, &code), good &= code == MPI_ERR_COUNT;
    check(good, "all-gathers of intercommunicators");
    free(own), free(all);
    MPI_Comm_free(&across), MPI_Comm_free(&half);
}

/* A rank expects another length than the other one sends. Some rank reports it, and both return. */
static void wrong(int which) {
    int n = N, places[2] = {0, N}, send[2] = {N, N}, recv[2] = {N, N}, code, codes[2];
    double *a = filled(2 * N, 1), *b = filled(2 * N, NONE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (which == 0) {
        if (rank == 1) recv[0] -= N / 2;
        code = CALL(Alltoallv, a, send, places, MPI_DOUBLE, b, recv, places, MPI_DOUBLE,
                    MPI_COMM_WORLD);
    } else if (which == 1) {
        if (rank == 0) recv[1] -= N / 2;
        code = CALL(Gatherv, a, n, MPI_DOUBLE, b, recv, places, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    } else if (which == 2) {
        if (rank == 1) n -= N / 2;
        code = CALL(Scatterv, a, send, places, MPI_DOUBLE, b, n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    } else if (which == 3) {
        if (rank == 1) n += N / 2;
        code = CALL(Allgatherv, a, n, MPI_DOUBLE, b, recv, places, MPI_DOUBLE, MPI_COMM_WORLD);
    } else if (which == 4) {
        if (rank == 1) n -= N / 2;
        code = MPI_Allgather(a, n, MPI_DOUBLE, b, N, MPI_DOUBLE, MPI_COMM_WORLD);
    } else if (which == 5) {
        if (rank == 1) n -= N / 2;
        code = MPI_Alltoall(a, n, MPI_DOUBLE, b, N, MPI_DOUBLE, MPI_COMM_WORLD);
    } else if (which == 6) {
        if (rank == 0) n -= N / 2;
        code = MPI_Gather(a, n, MPI_DOUBLE, b, N, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    } else if (which == 7) {
        if (rank == 0) n -= N / 2;
        code = MPI_Scatter(a, N, MPI_DOUBLE, b, n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    } else if (which == 8 || which == 9) {
        /* The own block of rank 1 is last, that of rank 0 first. */
        if (rank == which - 8) recv[rank] -= N / 2;
        code = CALL(Alltoallv, a, send, places, MPI_DOUBLE, b, recv, places, MPI_DOUBLE,
                    MPI_COMM_WORLD);
        if (rank != which - 8 && (code || b[0] != 1 || b[2 * N - 1] != 1)) {
            printf("wrong values\n");
        }
    } else {
        if (rank == 1) n -= N / 2;
        code = MPI_Allreduce(a, b, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Gather(&code, 1, MPI_INT, codes, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%s\n", codes[0] || codes[1] ? "refused" : "accepted");
    free(a), free(b);
}

int main(int argc, char **argv) {
    int which = argc > 2 ? atoi(argv[2]) : -1;
    later = argc > 3;
    tolerance = argc > 1 ? atof(argv[1]) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    counts = malloc(size * sizeof *counts), places = malloc(size * sizeof *places);
    if (which >= 0) {
        wrong(which);
    } else {
        all_gathers();
        gathers_and_scatters();
        all_to_alls();
        intercommunicators();
        if (MPI_Gatherv_c && MPI_Scatterv_c && MPI_Alltoallv_c) large_counts();
    }
    int all;
    MPI_Allreduce(&n_failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d failed\n", all);
    free(counts), free(places);
    MPI_Finalize();
    return all != 0;
}
