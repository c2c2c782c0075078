/* Prints the constants in this library's header, for comparison with foldwire-preload's abi.rs. */
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>

#define SHOW(what) printf("%s %lld\n", #what, (long long)(what))

int main(void) {
    SHOW((size_t)MPI_IN_PLACE);
    SHOW(MPI_ANY_SOURCE);
    SHOW(MPI_ROOT);
    SHOW(MPI_COMM_TYPE_SHARED);
    SHOW(offsetof(MPI_Status, MPI_SOURCE) / sizeof(int));
    SHOW(offsetof(MPI_Status, MPI_ERROR) / sizeof(int));
    SHOW(sizeof(MPI_Status) / sizeof(int));
    SHOW((size_t)MPI_STATUS_IGNORE);
    SHOW((size_t)MPI_STATUSES_IGNORE);
    SHOW(MPI_ERR_TRUNCATE);
    SHOW(MPI_ERR_OTHER);
    SHOW(MPI_ERR_IN_STATUS);
    SHOW(MPI_ERR_NO_MEM);
    SHOW(MPI_ERR_COUNT);
    SHOW(MPI_ERR_PENDING);
    SHOW(MPI_COMBINER_NAMED);
    SHOW(MPI_COMBINER_DUP);
    SHOW(MPI_COMBINER_CONTIGUOUS);
    SHOW(MPI_COMBINER_STRUCT);
    SHOW(sizeof(MPI_Comm));
    SHOW(sizeof(MPI_Request));
/* In Open MPI these are addresses. */
#ifndef OPEN_MPI
    SHOW((size_t)MPI_COMM_WORLD);
    SHOW((size_t)MPI_COMM_SELF);
    SHOW((size_t)MPI_COMM_NULL);
    SHOW((size_t)MPI_DATATYPE_NULL);
    SHOW((size_t)MPI_INFO_NULL);
    SHOW((size_t)MPI_REQUEST_NULL);
    SHOW((size_t)MPI_ERRORS_ARE_FATAL);
    SHOW((size_t)MPI_ERRORS_RETURN);
    SHOW((size_t)MPI_BYTE);
    SHOW((size_t)MPI_INT64_T);
    SHOW((size_t)MPI_SUM);
    SHOW((size_t)MPI_MIN);
    SHOW((size_t)MPI_MAX);
    SHOW((size_t)MPI_PROD);
    SHOW((size_t)MPI_FLOAT);
    SHOW((size_t)MPI_DOUBLE);
    SHOW((size_t)MPI_REAL);
    SHOW((size_t)MPI_DOUBLE_PRECISION);
    SHOW((size_t)MPI_REAL4);
    SHOW((size_t)MPI_REAL8);
    SHOW((size_t)MPI_INT);
    SHOW((size_t)MPI_LONG);
    SHOW((size_t)MPI_LONG_LONG);
    SHOW((size_t)MPI_INT32_T);
    SHOW((size_t)MPI_INT64_T);
    SHOW((size_t)MPI_INTEGER);
    SHOW((size_t)MPI_INTEGER4);
    SHOW((size_t)MPI_INTEGER8);
#endif
    return 0;
}
