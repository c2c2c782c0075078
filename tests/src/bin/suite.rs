//! One rank of the backend suite, where ranks are processes. A launcher starts it; see
//! `tests/mpi.rs`.

use clap::{Parser, ValueEnum};

/// Runs the suite as one of several processes.
#[derive(Parser)]
struct Cli {
    /// Backend that connects the processes
    #[arg(value_enum)]
    backend: SuiteBackend,
    /// Provider of libfabric
    #[arg(long)]
    provider: Option<String>,
    /// Instead of the suite, kill the last rank, and let the others report what they see
    #[arg(long)]
    lose_a_rank: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum SuiteBackend {
    #[cfg(feature = "mpi")]
    Mpi,
    #[cfg(feature = "libfabric")]
    Libfabric,
    #[cfg(feature = "tcp")]
    Tcp,
}

fn main() {
    let cli = Cli::parse();
    match cli.backend {
        #[cfg(feature = "mpi")]
        SuiteBackend::Mpi => over_mpi(&cli),
        #[cfg(feature = "libfabric")]
        SuiteBackend::Libfabric => over_libfabric(&cli),
        #[cfg(feature = "tcp")]
        SuiteBackend::Tcp => over_tcp(&cli),
    }
}

#[cfg(feature = "mpi")]
fn over_mpi(cli: &Cli) {
    use foldwire_tests::processes::{lose_a_rank, mpi::MpiWorld};
    use foldwire_tests::suite;
    use mpi::traits::Communicator;

    let (universe, _) =
        mpi::initialize_with_threading(mpi::Threading::Funneled).expect("MPI starts once");
    let world = universe.world();
    let size = world.size() as usize;
    // A rank that panics ends the whole job. Otherwise the other ranks would wait for it forever.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        mpi::topology::SimpleCommunicator::world().abort(101);
    }));
    if cli.lose_a_rank {
        lose_a_rank(&MpiWorld { world: &world, frame_bytes: Some(20_000) }, size);
        // MPI_Finalize would wait for the lost rank.
        std::process::exit(0);
    }
    suite::run(&|frame_bytes| MpiWorld { world: &world, frame_bytes }, size);
}

#[cfg(feature = "libfabric")]
fn over_libfabric(cli: &Cli) {
    use foldwire_bootstrap::Exchange;
    use foldwire_tests::processes::{
        libfabric::LibfabricGroup, lose_a_rank, session::SharedSession,
    };
    use foldwire_tests::suite;

    let session = SharedSession::join();
    let size = session.size();
    let make = |frame_bytes| LibfabricGroup {
        session: session.clone(),
        provider: cli.provider.clone(),
        frame_bytes,
    };
    if cli.lose_a_rank {
        lose_a_rank(&make(Some(20_000)), size);
        return;
    }
    suite::run(&make, size);
}

#[cfg(feature = "tcp")]
fn over_tcp(cli: &Cli) {
    use foldwire_bootstrap::Exchange;
    use foldwire_tests::processes::tcp::{TcpGroup, settings};
    use foldwire_tests::processes::{lose_a_rank, session::SharedSession};
    use foldwire_tests::suite;

    let session = SharedSession::join();
    let size = session.size();
    let make = |frame_bytes| TcpGroup { session: session.clone(), settings: settings(frame_bytes) };
    if cli.lose_a_rank {
        lose_a_rank(&make(Some(20_000)), size);
        return;
    }
    suite::run(&make, size);
}
