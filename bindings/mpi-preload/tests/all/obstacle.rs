//! Functions that make the library pass all messages on.

use foldwire_preload::obstacle::Obstacle;

#[test]
fn functions_that_foldwire_exports_are_no_obstacles() {
    for name in [
        "MPI_Send",
        "MPI_Recv",
        "MPI_Irecv",
        "MPI_Recv_init",
        "MPI_Sendrecv_replace",
        "mpi_recv_",
        "MPI_Wait",
        "MPI_Testsome",
        "MPI_Request_get_status",
        "PMPI_Barrier",
        "PMPI_Type_size",
        "MPI_Comm_c2f",
        "MPI_Allreduce_c",
        "probe",
        "recv_c",
        "MPI_Start",
        "MPI_Psend_init",
        "",
    ] {
        assert_eq!(Obstacle::of_name(name.as_bytes()), Obstacle::None, "{name}");
    }
}

#[test]
fn functions_that_could_leave_a_message_compressed_are_obstacles() {
    for (name, obstacle) in [
        ("MPI_Probe", Obstacle::Probe),
        ("mpi_iprobe_", Obstacle::Probe),
        ("MPI_Improbe", Obstacle::Probe),
        ("mpi_mprobe_f08_", Obstacle::Probe),
        ("PMPI_Recv", Obstacle::Profiled),
        ("PMPI_Waitall", Obstacle::Profiled),
        ("MPI_Recv_c", Obstacle::Function),
        ("MPI_Sendrecv_replace_c", Obstacle::Function),
        ("mpi_irecv_f08ts_large_", Obstacle::Function),
        ("MPI_Imrecv", Obstacle::Function),
        ("MPI_Isendrecv_replace", Obstacle::Function),
        ("MPI_Request_get_status_any", Obstacle::Function),
        ("MPIX_Continue_init", Obstacle::Function),
    ] {
        assert_eq!(Obstacle::of_name(name.as_bytes()), obstacle, "{name}");
        assert!(Obstacle::ALL.contains(&obstacle) && !obstacle.words().is_empty());
    }
}
