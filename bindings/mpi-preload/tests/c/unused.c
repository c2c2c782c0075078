/* Valid calls with arguments that MPI ignores on some ranks. These arguments are uninitialised:
   datatypes that are none, counts without meaning, and arrays at invalid addresses.

   unused [TOLERANCE]: the allowed error of each value, 0 by default. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"

#pragma weak MPI_Allgather_c
extern int MPI_Allgather_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype,
                           MPI_Comm);
#pragma weak MPI_Alltoall_c
extern int MPI_Alltoall_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype,
                          MPI_Comm);
#pragma weak MPI_Gather_c
extern int MPI_Gather_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int,
                        MPI_Comm);
#pragma weak MPI_Scatter_c
extern int MPI_Scatter_c(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype,
                         int, MPI_Comm);

#define MPI_IAllgather MPI_Iallgather
#define MPI_IAlltoall MPI_Ialltoall
#define MPI_IGather MPI_Igather
#define MPI_IScatter MPI_Iscatter
#define MPI_IAllgatherv MPI_Iallgatherv
#define MPI_IAlltoallv MPI_Ialltoallv
#define MPI_IGatherv MPI_Igatherv
#define MPI_IScatterv MPI_Iscatterv
enum { NOW, LATER, LARGE } form;
static MPI_Request request;
/* Calls MPI_<name>, or its non-blocking form and MPI_Wait. */
#define CALL_INT(name, ...)                                                                     \
    (form == LATER ? MPI_I##name(__VA_ARGS__, &request) || MPI_Wait(&request, MPI_STATUS_IGNORE) \
                   : MPI_##name(__VA_ARGS__))
/* Does the same, or calls the function with large counts. */
#define CALL(name, ...) \
    (form == LARGE ? MPI_##name##_c(__VA_ARGS__) : CALL_INT(name, __VA_ARGS__))

static MPI_Datatype unset;
static MPI_Count any;
static void *const nowhere = (void *)8;

/* Returns whether `all` has the shares of all ranks. */
static int is_whole(const double *all, int n) {
    int good = 1;
    for (int i = 0; i < n * size; i++) good &= near(all[i], value(i / n, i % n), 1);
    return good;
}

static int is_share(const double *got, int of, int n) {
    int good = 1;
    for (int i = 0; i < n; i++) good &= near(got[i], value(of, i), 1);
    return good;
}

/* Calls with shares of n values. */
static void calls(int n) {
    double *own = malloc(n * sizeof *own), *all = malloc(n * size * sizeof *all);
    int *counts = malloc(size * sizeof *counts), *places = malloc(size * sizeof *places);
    for (int i = 0; i < n; i++) own[i] = value(rank, i);
    for (int of = 0; of < size; of++) counts[of] = n, places[of] = of * n;
    int *volatile none = nowhere;
    const MPI_Comm comm = MPI_COMM_WORLD;
    const MPI_Datatype type = MPI_DOUBLE;
    for (int root = 0; root < size; root++) {
        const int is_root = rank == root;
        double *const to = is_root ? all : nowhere;
        int *const its = is_root ? counts : nowhere, *const at = is_root ? places : nowhere;
        const MPI_Datatype roots = is_root ? type : unset, others = is_root ? unset : type;
        const MPI_Count n_root = is_root ? n : any, n_other = is_root ? any : n;

        memset(all, 0, n * size * sizeof *all);
        CALL(Gather, own, n, type, to, n_root, roots, root, comm);
        check(!is_root || is_whole(all, n), "gathers");
        memset(all, 0, n * size * sizeof *all), memcpy(all + rank * n, own, n * sizeof *all);
        CALL(Gather, is_root ? MPI_IN_PLACE : own, n_other, others, to, n_root, roots, root, comm);
        check(!is_root || is_whole(all, n), "gathers in place");
        memset(all, 0, n * size * sizeof *all);
        CALL_INT(Gatherv, own, n, type, to, its, at, roots, root, comm);
        check(!is_root || is_whole(all, n), "gathers of shares");
        memset(all, 0, n * size * sizeof *all), memcpy(all + rank * n, own, n * sizeof *all);
        CALL_INT(Gatherv, is_root ? MPI_IN_PLACE : own, n_other, others, to, its, at, roots, root,
                 comm);
        check(!is_root || is_whole(all, n), "gathers of shares in place");

        for (int i = 0; i < n * size; i++) all[i] = value(i / n, i % n);
        memset(own, 0, n * sizeof *own);
        CALL(Scatter, to, n_root, roots, own, n, type, root, comm);
        check(is_share(own, rank, n), "scatters");
        memset(own, 0, n * sizeof *own);
        CALL_INT(Scatterv, to, its, at, roots, own, n, type, root, comm);
        check(is_share(own, rank, n), "scatters of shares");
        memset(own, 0, n * sizeof *own);
        CALL(Scatter, to, n_root, roots, is_root ? MPI_IN_PLACE : own, n_other, others, root, comm);
        check(is_root || is_share(own, rank, n), "scatters in place");
        memset(own, 0, n * sizeof *own);
        CALL_INT(Scatterv, to, its, at, roots, is_root ? MPI_IN_PLACE : own, n_other, others, root,
                 comm);
        check(is_root || is_share(own, rank, n), "scatters of shares in place");
        for (int i = 0; i < n; i++) own[i] = value(rank, i);
    }

    memset(all, 0, n * size * sizeof *all), memcpy(all + rank * n, own, n * sizeof *all);
    CALL(Allgather, MPI_IN_PLACE, any, unset, all, n, type, comm);
    check(is_whole(all, n), "all-gathers in place");
    memset(all, 0, n * size * sizeof *all), memcpy(all + rank * n, own, n * sizeof *all);
    CALL_INT(Allgatherv, MPI_IN_PLACE, any, unset, all, counts, places, type, comm);
    check(is_whole(all, n), "all-gathers of shares in place");
    for (int of = 0; of < size; of++) memcpy(all + of * n, own, n * sizeof *all);
    /* Open MPI 4.1.4 itself reads the datatype of a non-blocking one. */
    CALL(Alltoall, MPI_IN_PLACE, any, form == LATER ? type : unset, all, n, type, comm);
    check(is_whole(all, n), "all-to-alls in place");
    for (int of = 0; of < size; of++) memcpy(all + of * n, own, n * sizeof *all);
    CALL_INT(Alltoallv, MPI_IN_PLACE, none, none, unset, all, counts, places, type, comm);
    check(is_whole(all, n), "all-to-alls of shares in place");
    free(own), free(all), free(counts), free(places);
}

/* Gathers to rank 0 and scatters from it, in an intercommunicator of even and odd ranks. */
static void intercommunicators(int n) {
    MPI_Comm half, across;
    int n_odd = size / 2, good = 1;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &across);
    const int is_root = rank == 0, is_odd = rank % 2;
    const int root = is_root ? MPI_ROOT : is_odd ? 0 : MPI_PROC_NULL;
    const MPI_Datatype roots = is_root ? MPI_DOUBLE : unset, others = is_odd ? MPI_DOUBLE : unset;
    const MPI_Count n_root = is_root ? n : any, n_other = is_odd ? n : any;
    double *all = calloc(n * n_odd, sizeof *all), *own = calloc(n, sizeof *own);
    for (int i = 0; i < n; i++) own[i] = value(rank, i);
    CALL(Gather, own, n_other, others, all, n_root, roots, root, across);
    for (int i = 0; is_root && i < n * n_odd; i++) good &= all[i] == value(i / n * 2 + 1, i % n);
    check(good, "gathers of an intercommunicator");
    memset(own, 0, n * sizeof *own);
    CALL(Scatter, all, n_root, roots, own, n_other, others, root, across);
    check(!is_odd || is_share(own, rank, n), "scatters of an intercommunicator");
    free(all), free(own);
    MPI_Comm_free(&across), MPI_Comm_free(&half);
}

int main(int argc, char **argv) {
    tolerance = argc > 1 ? atof(argv[1]) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    memset(&unset, 0x5a, sizeof unset), memset(&any, 0x5a, sizeof any);
#ifdef MPI_ABI_VERSION
    /* MPICH 5.0.2 itself reads all datatypes, to convert them from the standard ABI. */
    unset = MPI_DATATYPE_NULL;
#endif
    const int has_large = MPI_Allgather_c && MPI_Alltoall_c && MPI_Gather_c && MPI_Scatter_c;
    for (form = NOW; form <= (has_large ? LARGE : LATER); form++) {
        calls(4), calls(5000);
        if (size > 1 && form != LATER) intercommunicators(4), intercommunicators(5000);
    }
    int all;
    MPI_Allreduce(&n_failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d failed\n", all);
    MPI_Finalize();
    return all != 0;
}
