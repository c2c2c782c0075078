/* What foldwire-preload's abi.rs says of this library, from its header. */
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>

#define SHOW(what) printf("%s %lld\n", #what, (long long)(what))

int main(void) {
    SHOW((size_t)MPI_IN_PLACE);
    SHOW(MPI_ANY_SOURCE);
    SHOW(MPI_COMM_TYPE_SHARED);
    SHOW(offsetof(MPI_Status, MPI_SOURCE) / sizeof(int));
    SHOW(offsetof(MPI_Status, MPI_ERROR) / sizeof(int));
    SHOW(sizeof(MPI_Status) / sizeof(int));
    SHOW(MPI_ERR_TRUNCATE);
    SHOW(MPI_ERR_OTHER);
    SHOW(MPI_ERR_IN_STATUS);
    SHOW(MPI_ERR_NO_MEM);
    SHOW(MPI_ERR_COUNT);
    SHOW(MPI_COMBINER_NAMED);
    SHOW(MPI_COMBINER_DUP);
    SHOW(MPI_COMBINER_CONTIGUOUS);
    SHOW(MPI_COMBINER_STRUCT);
    SHOW(sizeof(MPI_Comm));
    SHOW(sizeof(MPI_Request));
    return 0;
}
