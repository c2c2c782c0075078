//! Running a [`Scenario`] on the simulator, and writing down what every rank saw.

use super::draw::{Scenario, TIMEOUT, Trouble};
use crate::Case;
use crate::case::Buffers;
use foldwire::{Communicator, Element, Error, Operation, Report};
use foldwire_sim::{Clock, End, Endpoint, Fault, Trace, World};
use std::cell::RefCell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// What happened.
pub(super) struct Performance {
    pub(super) ends: Vec<End<()>>,
    /// What each rank's calls gave, as far as it came.
    pub(super) calls: Vec<Vec<Called>>,
    /// Troubles that came to pass.
    pub(super) struck: Vec<Trouble>,
    pub(super) trace: Trace,
    pub(super) time: Duration,
    pub(super) n_polls: u64,
    pub(super) n_leaked: usize,
}

/// One rank's call.
pub(super) struct Called {
    pub(super) case: Case,
    /// It is not the call that the others make.
    pub(super) is_twisted: bool,
    pub(super) outcome: Outcome,
}

/// How it ended.
pub(super) enum Outcome {
    /// It has not.
    UnderWay,
    /// The rank gave it up.
    Dropped {
        /// What the next call said.
        next: Option<Error>,
    },
    Ok(Values, Report),
    Err {
        error: Error,
        /// From the rank's last frame, or the start of the call, to the error.
        after: Duration,
        /// What the next call said, if the error ended the communicator.
        next: Option<Error>,
    },
}

/// A result.
pub(super) enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

type Log = RefCell<Vec<Vec<Called>>>;

/// Runs the scenario.
pub(super) fn perform(scenario: &Scenario, keep_trace: bool) -> Performance {
    let log: Log = RefCell::new((0..scenario.size).map(|_| Vec::new()).collect());
    let staying = RefCell::new(Vec::new());
    let faults = scenario.troubles.iter().filter_map(|trouble| match trouble {
        Trouble::Net(fault) => Some(*fault),
        _ => None,
    });
    let world = World::new(scenario.size, scenario.seed).net(scenario.net).faults(faults);
    let run = world.keep_trace(keep_trace).run(|endpoint| async {
        let comm = play(scenario, endpoint, &log).await;
        if !scenario.leaves {
            staying.borrow_mut().push(comm);
        }
    });
    drop(staying);
    let calls = log.into_inner();
    let struck = scenario.troubles.iter().filter(|trouble| struck(trouble, &run.struck, &calls));
    Performance {
        struck: struck.copied().collect(),
        n_leaked: run.n_leaked(),
        ends: run.ends,
        calls,
        trace: run.trace,
        time: run.time,
        n_polls: run.n_polls,
    }
}

fn struck(trouble: &Trouble, in_net: &[Fault], calls: &[Vec<Called>]) -> bool {
    match trouble {
        Trouble::Net(fault) => in_net.contains(fault),
        Trouble::Late { rank, call, .. } | Trouble::Twist { rank, call, .. } => {
            calls[*rank].len() > *call
        }
        Trouble::Drop { rank, call, .. } => {
            matches!(calls[*rank].get(*call), Some(Called { outcome: Outcome::Dropped { .. }, .. }))
        }
        Trouble::Lanes { rank, .. } | Trouble::Checksum { rank } => !calls[*rank].is_empty(),
    }
}

/// One rank's program: all calls, up to the first that fails.
async fn play(scenario: &Scenario, endpoint: Endpoint, log: &Log) -> Communicator<Endpoint> {
    let clock = endpoint.clock();
    let config = |rank| scenario.config(rank);
    let rank = foldwire::Transport::rank(&endpoint).index();
    let mut comm =
        Communicator::with_config(endpoint, config(rank)).expect("frames are large enough");
    for call in 0..scenario.calls.len() {
        for trouble in &scenario.troubles {
            match *trouble {
                Trouble::Late { rank: who, call: which, by } if (who, which) == (rank, call) => {
                    clock.sleep(by).await;
                }
                _ => {}
            }
        }
        let polls = scenario.troubles.iter().find_map(|trouble| match *trouble {
            Trouble::Drop { rank: who, call: which, after } if (who, which) == (rank, call) => {
                Some(after)
            }
            _ => None,
        });
        let (case, is_twisted) = scenario.case_of(call, rank);
        log.borrow_mut()[rank].push(Called { case, is_twisted, outcome: Outcome::UnderWay });
        let outcome = if case.is_f64 {
            make::<f64>(&case, &mut comm, &clock, polls, Values::F64).await
        } else {
            make::<f32>(&case, &mut comm, &clock, polls, Values::F32).await
        };
        clock.note(|| format!("call {call}: {outcome}"));
        let goes_on = matches!(outcome, Outcome::Ok(..));
        let mut log = log.borrow_mut();
        if let Some(called) = log[rank].last_mut() {
            called.outcome = outcome;
        }
        if !goes_on {
            break;
        }
    }
    comm
}

/// One call to its end, or until `polls` are over.
async fn make<T: Element>(
    case: &Case,
    comm: &mut Communicator<Endpoint>,
    clock: &Clock,
    polls: Option<usize>,
    values: fn(Vec<T>) -> Values,
) -> Outcome {
    let rank = comm.rank().index();
    let mut buffers: Buffers<T> = case.buffers(rank);
    let start = clock.now();
    let result = match case.start(comm, &mut buffers) {
        Ok(operation) => drive(operation, polls).await,
        Err(error) => Some(Err(error)),
    };
    match result {
        // What a dead rank saw of its own death.
        _ if clock.is_dead() => Outcome::UnderWay,
        None => Outcome::Dropped { next: case.start(comm, &mut buffers).err() },
        Some(Ok(report)) => Outcome::Ok(values(case.result(rank, buffers)), report),
        Some(Err(error)) => {
            let after = clock.now().saturating_sub(start.max(clock.last_move()));
            // An error of use leaves the communicator as it was.
            let next = if error.is_usage() { None } else { case.start(comm, &mut buffers).err() };
            Outcome::Err { error, after, next }
        }
    }
}

/// The operation's result; `None` if it took more polls and was dropped.
async fn drive<T: Element>(
    mut operation: Operation<'_, Endpoint, T>,
    polls: Option<usize>,
) -> Option<Result<Report, Error>> {
    let mut n_left = polls.unwrap_or(usize::MAX);
    poll_fn(|_| {
        if n_left == 0 {
            return Poll::Ready(None);
        }
        n_left -= 1;
        operation.poll().map(Some)
    })
    .await
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnderWay => write!(f, "under way"),
            Self::Dropped { .. } => write!(f, "dropped"),
            Self::Ok(_, report) => write!(f, "done: {report}"),
            Self::Err { error, after, .. } => write!(f, "{error}; {after:?} of {TIMEOUT:?}"),
        }
    }
}
