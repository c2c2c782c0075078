/* Communicators with processes that lack the library. The program spawns processes without it, and
   connects to them in all ways that MPI has.

   strangers [child [PORT]]: mpirun starts it without arguments. */
#include <arpa/inet.h>
#include <mpi.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "checks.h"

enum { N = 4096 };

/* Sums short and long arrays on all processes of an intracommunicator, by several kinds of calls.
   */
static void sums(MPI_Comm comm, const char *what) {
    static double a[N], b[N], c[N];
    int own, n, good = 1;
    MPI_Comm_rank(comm, &own), MPI_Comm_size(comm, &n);
    for (int count = 1; count <= N; count *= 16) {
        MPI_Request request;
        for (int i = 0; i < count; i++) a[i] = c[i] = value(own, i);
        MPI_Allreduce(a, b, count, MPI_DOUBLE, MPI_SUM, comm);
        for (int i = 0; i < count; i++) good &= b[i] == sum(i, n);
        MPI_Iallreduce(a, b, count, MPI_DOUBLE, MPI_SUM, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++) good &= b[i] == sum(i, n);
        MPI_Bcast(c, count, MPI_DOUBLE, n - 1, comm);
        for (int i = 0; i < count; i++) good &= c[i] == value(n - 1, i);
        int counts[16], places[16];
        double all[16];
        for (int of = 0; of < n; of++) counts[of] = 1, places[of] = of;
        MPI_Gatherv(a, 1, MPI_DOUBLE, all, counts, places, MPI_DOUBLE, 0, comm);
        for (int of = 0; own == 0 && of < n; of++) good &= all[of] == value(of, 0);
    }
    check(good, what);
}

/* Creates all kinds of communicators from an intercommunicator. */
static void between(MPI_Comm inter, int is_child, const char *what) {
    MPI_Comm merged, made;
    int one = 1, all = 0, n;
    MPI_Comm_remote_size(inter, &n);
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, inter);
    check(all == n, "sums over an intercommunicator");
    MPI_Intercomm_merge(inter, is_child, &merged);
    sums(merged, what);
    MPI_Comm_dup(merged, &made);
    sums(made, "a copy"), MPI_Comm_free(&made);
    int own;
    MPI_Comm_rank(merged, &own);
    MPI_Comm_split(merged, 0, -own, &made);
    sums(made, "all, in another order"), MPI_Comm_free(&made);
    /* One process of each world: ranks 0 and 2 of four. */
    MPI_Comm_split(merged, own % 2, own, &made);
    sums(made, "halves of both worlds"), MPI_Comm_free(&made);
    MPI_Comm_split(merged, is_child, own, &made);
    sums(made, "one world"), MPI_Comm_free(&made);
    MPI_Group group;
    MPI_Comm_group(merged, &group);
    MPI_Comm_create_group(merged, group, 7, &made);
    sums(made, "a group"), MPI_Comm_free(&made);
    MPI_Comm_create(merged, group, &made);
    sums(made, "a group of all"), MPI_Comm_free(&made);
    MPI_Group_free(&group);
    MPI_Comm_free(&merged);
}

/* Connects the roots of both sides by a socket. */
static int connected(MPI_Comm merged, int is_child) {
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof place;
    int made = socket(AF_INET, SOCK_STREAM, 0), end = made;
    if (!is_child) {
        bind(made, (struct sockaddr *)&place, sizeof place), listen(made, 1);
        getsockname(made, (struct sockaddr *)&place, &length);
    }
    MPI_Bcast(&place, sizeof place, MPI_BYTE, 0, merged);
    if (is_child) {
        connect(made, (struct sockaddr *)&place, sizeof place);
    } else {
        end = accept(made, NULL, NULL), close(made);
    }
    return end;
}

int main(int argc, char **argv) {
    int is_child = argc > 1;
    MPI_Comm inter, merged, other;
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (is_child) {
        MPI_Comm_get_parent(&inter);
        check(getenv("LD_PRELOAD") == NULL, "children lack the library");
    } else {
        char *words[] = {"-u", "LD_PRELOAD", argv[0], "child", NULL};
        MPI_Comm_spawn("/usr/bin/env", words, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                       MPI_ERRCODES_IGNORE);
    }
    between(inter, is_child, "with spawned processes");
    MPI_Intercomm_merge(inter, is_child, &merged);
    if (!is_child && rank == 0) MPI_Open_port(MPI_INFO_NULL, port);
    MPI_Bcast(port, sizeof port, MPI_CHAR, 0, merged);
    if (is_child) {
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
    } else {
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
    }
    between(other, is_child, "with accepted processes");
    MPI_Comm_disconnect(&other);
    /* One process of each world. */
    MPI_Comm pair;
    MPI_Comm_split(merged, rank, is_child, &pair);
    if (rank == 0) {
        int end = connected(pair, is_child);
        if (MPI_Comm_join(end, &other) == MPI_SUCCESS && other != MPI_COMM_NULL) {
            MPI_Comm both;
            MPI_Intercomm_merge(other, is_child, &both);
            sums(both, "with a joined process");
            MPI_Comm_free(&both), MPI_Comm_disconnect(&other);
        }
        close(end);
    }
    MPI_Comm_free(&pair);
    int all;
    MPI_Allreduce(&n_failed, &all, 1, MPI_INT, MPI_SUM, merged);
    if (!is_child && rank == 0) printf("%d failed\n", all);
    MPI_Comm_free(&merged);
    MPI_Comm_disconnect(&inter);
    MPI_Finalize();
    return all != 0;
}
