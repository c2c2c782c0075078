//! Any values in the store through which a group grows: no panic, an end in time, and members that
//! know the group's secret.
//!
//! ```text
//!   input:  side (lowest bit: a newcomer, or else a survivor alone; bits 1–3: the size that it
//!           wants)  acts
//!   act:    when place value         `when`: number of the process's calls of the store before it
//!   place:  0–15 a slot; 16–127 the newcomer's invitation; from 128 on the plan that it names
//!   value:  0 n bytes[n]             these bytes
//!           1 who count              a newcomer of that number, which knows the secret
//!           2 who n                  a newcomer that does not, or whose offer is cut at n
//!           3 n (at[2] byte)[n]      an honest plan with n bytes replaced
//!           4                        names the plan to the newcomer
//!           5                        no value; the store fails from now on
//! ```
//!
//! Ranks agree on the members of a plan by a shrink, which is the target `survivors`.

use foldwire::grow::{self, Admission, Connector, GrowError, MAX_OFFER_BYTES, MAX_PATIENCE};
use foldwire::store::{StoreError, StoreRequest};
use foldwire::transport::MIN_FRAME_BYTES;
use foldwire::{Communicator, Rank};
use foldwire_sim::{End, Endpoint, NetSettings, World};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::task::Poll;
use std::time::Duration;

/// Random number of the process that is tested.
const OWN: u128 = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;
/// Name of the plan that invitations name.
const PLAN: u128 = 7;
/// First bytes of offers of those that know the secret.
const SECRET: &[u8] = b"knows";
/// Wait for newcomers, and of a newcomer.
const LIMIT: Duration = Duration::from_millis(400);
/// Most calls of the store: some for each of 4096 slots at each beat.
const MAX_CALLS: u64 = 200_000;

/// Runs the target on an input.
pub fn check(input: &[u8]) {
    let Some((&side, script)) = input.split_first() else { return };
    let size = usize::from(side >> 1) % 8;
    let mut hostile = HostileStore { acts: acts(script), ..HostileStore::default() };
    hostile.acts.sort_by_key(|act| act.0);
    if side & 1 == 1 { newcomer(hostile) } else { survivor(hostile, size) }
}

/// When, key and value of each act.
type StoreAct = (u64, String, Option<Vec<u8>>);

fn acts(mut script: &[u8]) -> Vec<StoreAct> {
    let mut acts = Vec::new();
    while let [when, place, kind, rest @ ..] = script {
        script = rest;
        let mut take = |n_bytes: usize| {
            let (taken, rest) = script.split_at(n_bytes.min(script.len()));
            script = rest;
            taken
        };
        let value = match kind % 6 {
            0 => {
                let n_bytes = take(1).first().map_or(0, |&n| usize::from(n));
                take(n_bytes).to_vec()
            }
            1 => match *take(2) {
                [who, count] => slot(who, count, &offer(who)),
                _ => Vec::new(),
            },
            2 => match *take(2) {
                [who, n_bytes] => {
                    let offer = [b"does not know", &[who; 500][..]].concat();
                    slot(who, n_bytes, &offer[..usize::from(n_bytes) * 2])
                }
                _ => Vec::new(),
            },
            3 => {
                let mut plan = honest_plan();
                let n_changes = take(1).first().map_or(0, |&n| usize::from(n) % 16);
                for change in take(3 * n_changes).chunks_exact(3) {
                    let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % plan.len();
                    plan[at] = change[2];
                }
                plan
            }
            4 => PLAN.to_le_bytes().to_vec(),
            _ => {
                acts.push((u64::from(*when), String::new(), None));
                continue;
            }
        };
        let key = match place {
            0..16 => format!("join/{place}"),
            16..128 => format!("invite/{OWN:032x}"),
            _ => format!("plan/{PLAN:032x}"),
        };
        acts.push((u64::from(*when), key, Some(value)));
    }
    acts
}

fn offer(who: u8) -> Vec<u8> {
    [SECRET, &[who]].concat()
}

/// The value of a newcomer's slot.
fn slot(who: u8, count: u8, offer: &[u8]) -> Vec<u8> {
    let mut value = u128::from(who).to_le_bytes().to_vec();
    value.extend(u64::from(count).to_le_bytes());
    value.extend((offer.len() as u16).to_le_bytes());
    value.extend(offer);
    value
}

/// Returns the plan that a survivor writes for itself and the newcomer under test.
fn honest_plan() -> Vec<u8> {
    thread_local!(static PLAN_BYTES: Vec<u8> = make_plan());
    PLAN_BYTES.with(Vec::clone)
}

fn make_plan() -> Vec<u8> {
    let newcomer = |count| {
        let mut value = OWN.to_le_bytes().to_vec();
        value.extend(&slot(0, count, &offer(0))[16..]);
        value
    };
    let joins = |when, count| (when, "join/0".to_owned(), Some(newcomer(count)));
    let acts = vec![joins(0, 0), joins(9, 1)];
    let (store, _) = admit(HostileStore { acts, ..HostileStore::default() }, 2, 1);
    let mut plans = store.values.into_iter().filter(|(key, _)| key.starts_with("plan/"));
    plans.next().expect("the survivor plans").1
}

/// A store that others write to as well.
#[derive(Default)]
struct HostileStore {
    values: BTreeMap<String, Vec<u8>>,
    /// Acts that are left, the first first.
    acts: Vec<StoreAct>,
    n_calls: u64,
    fails: bool,
}

impl HostileStore {
    fn answer(&mut self, request: StoreRequest<'_>) -> Result<Option<Vec<u8>>, StoreError> {
        self.n_calls += 1;
        assert!(self.n_calls < MAX_CALLS, "the process does not end");
        let n_due = self.acts.iter().take_while(|act| act.0 < self.n_calls).count();
        for (_, key, value) in self.acts.drain(..n_due) {
            match value {
                Some(value) => _ = self.values.insert(key, value),
                None => self.fails = true,
            }
        }
        match request {
            _ if self.fails => Err(StoreError::Failed),
            StoreRequest::Set { key, value } => {
                self.values.insert(key.to_owned(), value.to_vec());
                Ok(None)
            }
            StoreRequest::Get { key } | StoreRequest::Wait { key, .. } => {
                Ok(self.values.get(key).cloned())
            }
        }
    }
}

/// Target of a connection: its rank, the offers, and the time limit.
#[derive(Clone, Debug, PartialEq)]
struct Reached(usize, Vec<Vec<u8>>, Duration);

/// A connector that only notes whom it is to connect to. It takes every plan for one of a process
/// that knows the secret.
struct NotingConnector<'a> {
    now: &'a Cell<Duration>,
    own: Vec<u8>,
    unique: u128,
}

impl Connector for NotingConnector<'_> {
    type Transport = Endpoint;
    type Error = Reached;

    fn now(&self) -> Duration {
        self.now.get()
    }

    fn idle(&mut self, budget: Duration) {
        self.now.set(self.now.get() + budget);
    }

    fn unique(&mut self) -> Result<u128, Reached> {
        Ok(self.unique)
    }

    fn offer(&mut self, _: u128) -> Result<Vec<u8>, Reached> {
        Ok(self.own.clone())
    }

    fn accepts(&self, _: u128, offer: &[u8]) -> bool {
        offer.starts_with(SECRET)
    }

    fn prove(&self, _: &[u8]) -> Vec<u8> {
        Vec::new()
    }

    fn is_proven(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }

    fn poll_connect(
        &mut self,
        rank: usize,
        offers: &[&[u8]],
        _: &[u8],
        limit: Duration,
    ) -> Poll<Result<Endpoint, Reached>> {
        let offers: Vec<Vec<u8>> = offers.iter().map(|offer| offer.to_vec()).collect();
        assert!(limit <= 3 * MAX_PATIENCE, "{limit:?}");
        assert_eq!(offers[rank], self.own, "another process's place");
        for offer in &offers {
            assert!(offer.len() <= MAX_OFFER_BYTES && self.accepts(0, offer), "{offer:?}");
        }
        Poll::Ready(Err(Reached(rank, offers, limit)))
    }
}

type Outcome = Result<(), GrowError<Reached>>;

/// Runs a survivor that is alone. Returns the store, and whom the survivor would connect to.
fn admit(hostile: HostileStore, size: usize, unique: u128) -> (HostileStore, Outcome) {
    let now = Cell::new(Duration::ZERO);
    let (given, ended) = (Cell::new(Some(hostile)), Cell::new(None));
    let net = NetSettings { frame_bytes: MIN_FRAME_BYTES, ..NetSettings::default() };
    let run = World::new(1, 1).net(net).run(async |endpoint| {
        let comm = Communicator::new(endpoint).expect("frames are large enough");
        let mut connector = NotingConnector { now: &now, own: offer(0xee), unique };
        let patience = Duration::from_millis(100);
        let wanted = Admission { size, limit: LIMIT, patience, generation: 3, facts: b"facts" };
        let mut hostile = given.take().expect("there is one rank");
        let mut store = |request: StoreRequest<'_>| hostile.answer(request);
        let grown = grow::admit(comm, &mut store, &mut connector, &wanted).await;
        ended.set(Some((hostile, grown.map(|_| ()))));
    });
    assert_eq!(run.ends, [End::Returned(())]);
    assert!(now.get() <= LIMIT + Duration::from_secs(1), "{now:?}");
    ended.take().expect("the survivor ended")
}

fn survivor(hostile: HostileStore, size: usize) {
    let (_, outcome) = admit(hostile, size, OWN);
    match outcome {
        Err(GrowError::Connect(Reached(rank, offers, _))) => {
            assert_eq!(rank, 0, "a survivor keeps its rank");
            assert!(size == 0 || offers.len() <= size, "{} members of {size}", offers.len());
            assert!(offers.len() <= foldwire_bootstrap::MAX_RANKS);
        }
        Err(GrowError::Store(error)) => assert_eq!(error, StoreError::Failed),
        outcome => panic!("{outcome:?}"),
    }
}

fn newcomer(mut hostile: HostileStore) {
    let now = Cell::new(Duration::ZERO);
    let mut connector = NotingConnector { now: &now, own: offer(0), unique: OWN };
    let outcome = {
        let mut store = |request: StoreRequest<'_>| {
            if let StoreRequest::Wait { limit, .. } = request {
                now.set(now.get() + limit);
            }
            hostile.answer(request)
        };
        grow::block_on(grow::rejoin(&mut store, &mut connector, LIMIT))
    };
    assert!(now.get() <= LIMIT + Duration::from_millis(200), "{now:?}");
    match outcome.map(|_| ()) {
        // The connector has checked it.
        Err(GrowError::Connect(_)) => {}
        Err(GrowError::Store(_) | GrowError::NotAdmitted { .. }) => {}
        Err(GrowError::PeerFailed { rank }) => assert!(rank < Rank::new(4096)),
        outcome => panic!("{outcome:?}"),
    }
}
