//! Two concurrent jobs, for every launcher: each rank gets the inputs of its own job, even if both
//! jobs would use the same port.

use std::ffi::OsString;

use foldwire_bootstrap::message::Refusal;

use super::*;

/// Variables that each launcher sets for rank `@` of 3 on one machine, in job `#`. Tests run
/// concurrently, so each test uses its own job numbers.
const LAUNCHERS: [&str; 6] = [
    "FOLDWIRE_RANK=@ FOLDWIRE_SIZE=3 FOLDWIRE_JOB=#",
    "RANK=@ WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 TORCHELASTIC_RUN_ID=none MASTER_PORT=2950#",
    "OMPI_COMM_WORLD_RANK=@ OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_SIZE=3 PMIX_NAMESPACE=7#",
    "PMI_RANK=@ PMI_SIZE=3 MPI_LOCALNRANKS=3 FOLDWIRE_JOB=#",
    "PMI_RANK=@ PMI_SIZE=3 PMI_LOCAL_SIZE=3 PMI_JOBID=#",
    "SLURM_PROCID=@ SLURM_NTASKS=3 SLURM_NNODES=1 SLURM_JOB_ID=7 SLURM_STEP_ID=#",
];

fn place_of(launcher: &str, job: usize, rank: usize) -> Place {
    let env = launcher.replace('@', &rank.to_string()).replace('#', &job.to_string());
    let lookup = |name: &str| {
        let mut words = env.split(' ').filter_map(|word| word.split_once('='));
        words.find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
    };
    Place::detect(lookup).unwrap()
}

/// Joins, and gathers the job's number and the rank from all ranks.
fn member_of(job: usize, place: Place) -> JoinHandle<Vec<Vec<u8>>> {
    thread::spawn(move || {
        let mut session = Rendezvous::new(place).limit(LIMIT).join().unwrap();
        let all = session.all_gather(&[job as u8, session.rank().0 as u8]).unwrap();
        session.barrier().unwrap();
        all
    })
}

#[test]
fn jobs_at_once_do_not_mix() {
    for launcher in LAUNCHERS {
        let jobs = [1, 2]
            .map(|job| [2, 1, 0].map(|rank| (job, member_of(job, place_of(launcher, job, rank)))));
        for (job, rank) in jobs.into_iter().flatten() {
            let expected: Vec<_> = (0..3).map(|rank| vec![job as u8, rank]).collect();
            assert_eq!(rank.join().unwrap(), expected, "{launcher}");
        }
    }
}

/// Two jobs may derive the same port. The test sets it as the root of both, but their
/// [`Place::job`] still counts the port as derived. So one rank 0 moves to a spare port.
#[test]
fn jobs_that_take_one_port_do_not_mix() {
    let (listener, at) = listener();
    drop(listener);
    let jobs = [3, 4].map(|job| {
        [0, 1, 2].map(|rank| {
            let place = place_of(LAUNCHERS[0], job, rank);
            (job, member_of(job, Place { root: at.clone(), ..place }))
        })
    });
    for (job, rank) in jobs.into_iter().flatten() {
        let expected: Vec<_> = (0..3).map(|rank| vec![job as u8, rank]).collect();
        assert_eq!(rank.join().unwrap(), expected);
    }
}

/// The helper `place` uses [`Job::at_given_root`], so rank 0 does not move to another port.
#[test]
fn a_rank_of_another_job_is_refused_by_name() {
    let (listener, at) = listener();
    let rank_0 = root(place(0, 2, &at), listener, LIMIT);
    let job = Job::named(&["another"]);
    let error = failed(member(Place { job, ..place(1, 2, &at) }, LIMIT));
    assert!(matches!(error, Error::Refused { reason: Refusal::Job { .. }, .. }), "{error}");
    assert!(error.to_string().contains(&format!("it is of job {job}, rank 0 of job ")), "{error}");
    let rank_1 = member(place(1, 2, &at), LIMIT);
    drop((joined(rank_0), joined(rank_1)));
}

/// The environment gives no address, so [`Place::job`] lets rank 0 move to a spare port.
#[test]
fn a_port_in_use_is_no_hindrance_where_none_was_given() {
    let (_other, at) = listener();
    let ranks = [0, 1, 2]
        .map(|rank| member_of(5, Place { root: at.clone(), ..place_of(LAUNCHERS[0], 5, rank) }));
    for rank in ranks {
        assert_eq!(rank.join().unwrap().len(), 3);
    }
}
