//! Every variant of every collective moves the right values in a group of one rank, which needs no
//! launcher. (`foldwire bench --backend mpi` checks larger groups: it compares every result.)

use foldwire::{Collective, Rank};
use foldwire_mpi_native::{BufferSide, Buffers, Call, Error, Native, Operation, Tuned, variants};

/// One test, because MPI starts only once in a process.
#[test]
fn one_rank_gets_its_own_values_back() {
    let universe = mpi::initialize().expect("MPI starts once in this process");
    let world = universe.world();
    let send: Vec<f64> = (0..1000).map(f64::from).collect();
    for collective in Collective::ALL {
        let call = Call::new(collective, send.len(), 1, Operation::Sum, Rank(0)).unwrap();
        let all = variants(collective, true);
        assert!(all.iter().filter(|variant| variant.name() == all[0].name()).count() == 1);
        for variant in all {
            let (name, form) = (variant.name().to_owned(), variant.form());
            let tuned = Tuned::new(&world, variant).unwrap();
            let call = call.clone().with_form(form).unwrap();
            // No rank precedes this one.
            let n_received = if collective == Collective::ExclusiveScan { 0 } else { send.len() };
            let mut recv = vec![0.0; n_received];
            let active = tuned.activate().unwrap();
            let outcome = if collective == Collective::Broadcast {
                recv.copy_from_slice(&send);
                active.run(&call, Buffers::InPlace(&mut recv))
            } else {
                active.run(&call, Buffers::Split { send: &send, recv: &mut recv })
            };
            // Some algorithms need two ranks or more, and return an error.
            match outcome {
                Ok(()) => assert!(recv == send[..n_received], "{name}"),
                Err(Error::Mpi(_)) => assert!(name.contains(':'), "{name}"),
                Err(other) => panic!("{name}: {other}"),
            }
        }
    }

    let native = Native::duplicate(&world).unwrap();
    let call = Call::new(Collective::AllReduce, 3, 1, Operation::Max, Rank(0)).unwrap();
    let mut data = [1.0_f32, -2.0, 3.0];
    native.run(&call, Buffers::InPlace(&mut data)).unwrap();
    assert_eq!(data, [1.0, -2.0, 3.0]);
    let short = native.run(&call, Buffers::Split { send: &[1.0_f32; 3], recv: &mut [0.0; 2] });
    assert_eq!(short, Err(Error::Length { buffer: BufferSide::Recv, need: 3, have: 2 }));
}
