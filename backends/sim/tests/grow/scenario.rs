//! A scenario drawn from a seed, and its run.
//!
//! The first processes are a group that makes steps: each step is a sum over the group. At some
//! steps, and after a failure, the group admits newcomers; the facts tell them the step. The other
//! processes come later. Any of them may die, leave or stall at any moment, and frames may be late,
//! lost or damaged, or links may fail.

use crate::network::{Dead, GroupTransport, Meeting, N_CHANNELS, SharedEndpoint, SimConnector};
use foldwire::grow::{self, Admission, GrowError, Grown, Roster};
use foldwire::store::{Store, StoreError};
use foldwire::{Call, Communicator, Config, Error, Op, Plan, Rank, Transport};
use foldwire_sim::{Clock, End, Endpoint, Fault, Harm, NetSettings, Random, World};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Stall limit of calls.
const TIMEOUT: Duration = Duration::from_millis(400);
/// Patience of survivors and members.
const PATIENCE: Duration = Duration::from_millis(400);
/// Longest stay of a newcomer that nobody admits.
const NEWCOMER_LIMIT: Duration = Duration::from_secs(20);
/// Number of steps after which the work is done.
const N_STEPS: u64 = 12;
/// Most times that a process tries to be in a group.
const MAX_TRIES: usize = 4;

/// A run.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    /// Size of the first group, and number of processes that come later.
    pub size: usize,
    pub n_newcomers: usize,
    /// When each newcomer comes.
    pub arrivals: Vec<Duration>,
    /// Steps before which the group admits newcomers.
    pub grows_at: Vec<u64>,
    /// Size that it then asks for; 0: those that wait.
    pub wanted: usize,
    pub limit: Duration,
    pub patience: Duration,
    /// Processes that end after this many of their polls.
    pub leavers: Vec<(usize, usize)>,
    pub faults: Vec<Fault>,
    /// A process that does not know the secret.
    pub stranger: Option<usize>,
    /// Keys and values that others write to the store before the run.
    pub junk: Vec<(String, Vec<u8>)>,
    pub net: NetSettings,
}

impl Scenario {
    pub fn draw(seed: u64) -> Self {
        let random = &mut Random(seed);
        let size = 1 + random.below(5);
        let n_newcomers = random.below(4);
        let n = size + n_newcomers;
        // Numbers of every order of magnitude are equally likely.
        let count =
            |random: &mut Random, bits: f64| (2f64.powf(bits * random.unit()) - 1.0) as usize;
        let arrivals = (0..n_newcomers)
            .map(|_| Duration::from_secs_f64(3.0 * random.unit() * random.unit()))
            .collect();
        let grows_at =
            (0..random.below(3)).map(|_| 1 + random.below(N_STEPS as usize - 1) as u64).collect();
        let n_leavers = [0, 0, 1, 1, 2][random.below(5)];
        let leavers = (0..n_leavers).map(|_| (random.below(n), count(random, 14.0))).collect();
        let is_gentle = random.one_in(2);
        let n_faults = [0, 1, 1, 2][random.below(4)];
        let faults = (0..n_faults)
            .map(|_| {
                let (rank, nth) = (Rank::new(random.below(n)), count(random, 9.0));
                if is_gentle || random.one_in(3) {
                    return Fault::Death { rank, after: nth };
                }
                let by = PATIENCE.mul_f64(3.0 * random.unit());
                match random.below(4) {
                    0 => Fault::Stall { rank, after: nth, lasting: Some(by) },
                    1 => Fault::Stall { rank, after: nth, lasting: None },
                    2 => Fault::Delay { rank, nth, by },
                    _ => Fault::Harm { rank, nth, harm: Harm::ALL[random.below(Harm::ALL.len())] },
                }
            })
            .collect();
        let stranger = (n_newcomers > 0 && random.one_in(8)).then_some(size);
        let junk = match random.below(8) {
            0 => vec![("join/0".into(), vec![0xff; 40]), ("join/1".into(), Vec::new())],
            1 => vec![("join/0".into(), [&[9; 24][..], &[4, 0, 1, 2, 3, 4]].concat())],
            _ => Vec::new(),
        };
        let net = NetSettings {
            jitter: Duration::from_micros([1, 50][random.below(2)]),
            channels: N_CHANNELS,
            frame_bytes: 2048,
            frames_per_rank: 24 + n,
            depth: 1 + random.below(4),
            attended: random.one_in(3),
            refusal: [0, 0, 6][random.below(3)],
            neglect: [0, 0, 6][random.below(3)],
            jump: PATIENCE / 16,
            ..NetSettings::default()
        };
        let wanted = [0, size, size + 1][random.below(3)];
        let limit = Duration::from_secs_f64(random.unit());
        Self {
            seed,
            size,
            n_newcomers,
            arrivals,
            grows_at,
            wanted,
            limit,
            patience: PATIENCE,
            leavers,
            faults,
            stranger,
            junk,
            net,
        }
    }

    /// Draws a scenario in which the links between two processes fail besides.
    pub fn with_cut_links(seed: u64) -> Self {
        let scenario = Self::draw(seed);
        let random = &mut Random(!seed);
        let rank = Rank::new(random.below(scenario.n_processes()));
        let nth = (2f64.powf(9.0 * random.unit()) - 1.0) as usize;
        let cut = Fault::Cut { rank, nth, silent: random.one_in(2) };
        Self { faults: [&scenario.faults[..], &[cut]].concat(), ..scenario }
    }

    pub fn n_processes(&self) -> usize {
        self.size + self.n_newcomers
    }
}

/// A group that a process was in.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRecord {
    /// Channel of the plan, and epoch of the vote.
    pub channel: usize,
    pub epoch: u16,
    pub rank: usize,
    /// Processes by rank.
    pub members: Vec<usize>,
    pub generation: u64,
    /// True if the process entered it as a newcomer.
    pub rejoined: bool,
}

/// Record of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessRecord {
    pub groups: Vec<GroupRecord>,
    /// Steps whose sum was not that of the group's members.
    pub wrong: Vec<(u64, u64)>,
    pub errors: Vec<GrowError<Dead>>,
    /// True if it was in a group when the work was done.
    pub is_done: bool,
    pub left: bool,
}

/// Record of all processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub processes: Vec<ProcessRecord>,
    pub ends: Vec<End<()>>,
    pub struck: Vec<Fault>,
    pub n_leaked: usize,
    pub time: Duration,
}

/// A store in the memory of the run, which a dead process cannot use.
struct RunStore {
    values: Rc<RefCell<BTreeMap<String, Vec<u8>>>>,
    clock: Clock,
}

impl Store for RunStore {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        if self.clock.is_dead() {
            return Err(StoreError::Unreachable);
        }
        self.values.borrow_mut().insert(key.to_owned(), value.to_vec());
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        if self.clock.is_dead() {
            return Err(StoreError::Unreachable);
        }
        Ok(self.values.borrow().get(key).cloned())
    }

    fn wait(&mut self, key: &str, _: Duration) -> Result<Option<Vec<u8>>, StoreError> {
        self.get(key)
    }
}

/// A process while it runs.
struct Process<'s> {
    scenario: &'s Scenario,
    number: usize,
    endpoint: SharedEndpoint,
    clock: Clock,
    store: RunStore,
    connector: SimConnector,
    records: Rc<RefCell<Vec<ProcessRecord>>>,
}

type Group = Communicator<GroupTransport>;

impl Process<'_> {
    fn record(&self, change: impl FnOnce(&mut ProcessRecord)) {
        if !self.clock.is_dead() {
            change(&mut self.records.borrow_mut()[self.number]);
        }
    }

    fn config(&self) -> Config {
        let mut config = Config::default();
        config.lanes = 1;
        config.timeout = TIMEOUT;
        config
    }

    async fn run(mut self) {
        let mut entered = if self.number < self.scenario.size {
            let first = GroupTransport::first(Rc::clone(&self.endpoint), self.scenario.size);
            let comm = Communicator::with_config(first, self.config()).expect("a sound transport");
            let members: Vec<usize> = (0..self.scenario.size).collect();
            self.note_group(&comm, 0, &members, 0, false);
            Some((comm, members, 0, 0))
        } else {
            self.clock.sleep(self.scenario.arrivals[self.number - self.scenario.size]).await;
            None
        };
        for _ in 0..MAX_TRIES {
            if entered.is_none() {
                let found =
                    grow::rejoin(&mut self.store, &mut self.connector, NEWCOMER_LIMIT).await;
                entered = match found {
                    Ok(grown) => self.enter(grown).await,
                    Err(error) => {
                        self.record(|record| record.errors.push(error));
                        return;
                    }
                };
            }
            let Some((comm, members, step, generation)) = entered.take() else { continue };
            if self.work(comm, members, step, generation).await || self.clock.is_dead() {
                return;
            }
        }
    }

    /// Votes, and returns the communicator, its members, the step and the generation.
    async fn enter(
        &mut self,
        grown: Grown<GroupTransport>,
    ) -> Option<(Group, Vec<usize>, u64, u64)> {
        let Grown { group, roster } = grown;
        let channel = group.channel;
        let voted = match Communicator::with_config(group, self.config()) {
            Ok(comm) => grow::vote(comm, &roster, &mut self.store).await,
            Err(error) => Err(error),
        };
        match voted {
            Ok(comm) => {
                let members = members(&comm, &roster);
                let rejoined = roster.members[roster.rank].old_rank.is_none();
                self.note_group(&comm, channel, &members, roster.generation, rejoined);
                let step = roster.facts.as_slice().try_into().map(u64::from_le_bytes);
                Some((comm, members, step.expect("a step"), roster.generation))
            }
            Err(error) => {
                self.record(|record| record.errors.push(error.into()));
                None
            }
        }
    }

    fn note_group(
        &self,
        comm: &Group,
        channel: usize,
        members: &[usize],
        generation: u64,
        rejoined: bool,
    ) {
        let (epoch, rank) = (comm.epoch(), comm.rank().index());
        let members = members.to_vec();
        let group = GroupRecord { channel, epoch, rank, members, generation, rejoined };
        self.record(|record| record.groups.push(group));
    }

    /// Makes the steps that are left. Returns whether the work is done.
    async fn work(&mut self, comm: Group, members: Vec<usize>, step: u64, generation: u64) -> bool {
        let (mut comm, mut members, mut step, mut generation) = (comm, members, step, generation);
        let mut last_grow = step;
        while step < N_STEPS {
            let is_due = self.scenario.grows_at.contains(&step) && last_grow != step;
            let sum = if is_due { Err(Error::Internal) } else { sum(&mut comm, self.number).await };
            if let Ok(sum) = sum {
                let expected = members.iter().map(|&member| 1 << member).sum::<u64>();
                if sum != expected {
                    self.record(|record| record.wrong.push((sum, expected)));
                }
                step += 1;
                continue;
            }
            if self.clock.is_dead() {
                return false;
            }
            let facts = step.to_le_bytes();
            let wanted = Admission {
                size: self.scenario.wanted,
                limit: self.scenario.limit,
                patience: self.scenario.patience,
                generation,
                facts: &facts,
            };
            let admitted = grow::admit(comm, &mut self.store, &mut self.connector, &wanted).await;
            let entered = match admitted {
                Ok(grown) => self.enter(grown).await,
                Err(error) => {
                    self.record(|record| record.errors.push(error));
                    None
                }
            };
            let Some(next) = entered else { return false };
            (comm, members, step, generation) = next;
            last_grow = step;
        }
        self.record(|record| record.is_done = true);
        true
    }
}

/// Returns the processes of a communicator.
fn members(comm: &Group, roster: &Roster) -> Vec<usize> {
    let process = |rank| {
        let at = comm.transport_rank(Rank::new(rank)).expect("a member").index();
        let offer = &roster.members[at].offer;
        offer[1..5].try_into().map(u32::from_le_bytes).expect("four bytes") as usize
    };
    (0..comm.size()).map(process).collect()
}

/// Returns the sum of a bit for each member.
async fn sum(comm: &mut Group, number: usize) -> Result<u64, Error> {
    let mut bits = [1_u64 << number];
    comm.start(Call::all_reduce(&mut bits[..], Op::Sum), &Plan::raw())?.await?;
    Ok(bits[0])
}

/// Runs a scenario.
pub fn run(scenario: &Scenario) -> Record {
    let n = scenario.n_processes();
    let records = Rc::new(RefCell::new(vec![ProcessRecord::default(); n]));
    let values: BTreeMap<_, _> = scenario.junk.iter().cloned().collect();
    let values = Rc::new(RefCell::new(values));
    let meeting = Rc::new(Meeting::new(scenario.seed));
    let world = World::new(n, scenario.seed).net(scenario.net).faults(scenario.faults.clone());
    let run = world.run(|endpoint: Endpoint| {
        let (number, clock) = (endpoint.rank().index(), endpoint.clock());
        let endpoint = Rc::new(RefCell::new(endpoint));
        let leaves = scenario.leavers.iter().find(|(who, _)| *who == number).map(|(_, at)| *at);
        let process = Process {
            scenario,
            number,
            endpoint: Rc::clone(&endpoint),
            clock: clock.clone(),
            store: RunStore { values: Rc::clone(&values), clock: clock.clone() },
            connector: SimConnector {
                endpoint,
                clock,
                meeting: Rc::clone(&meeting),
                is_stranger: scenario.stranger == Some(number),
                since: None,
            },
            records: Rc::clone(&records),
        };
        let records = Rc::clone(&records);
        async move {
            let left = ends_after(process.run(), leaves).await;
            if left {
                records.borrow_mut()[number].left = true;
            }
        }
    });
    let processes = records.borrow().clone();
    let n_leaked = run.n_leaked();
    Record { processes, ends: run.ends, struck: run.struck, n_leaked, time: run.time }
}

/// Drops a future after this many polls. Returns whether it did.
async fn ends_after(future: impl Future<Output = ()>, n_polls: Option<usize>) -> bool {
    let mut future = Box::pin(future);
    let mut n_left = n_polls;
    let left = poll_fn(|context| {
        match &mut n_left {
            Some(0) => return Poll::Ready(true),
            Some(n) => *n -= 1,
            None => {}
        }
        future.as_mut().poll(context).map(|()| false)
    })
    .await;
    drop(future);
    left
}
