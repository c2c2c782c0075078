//! Processes over TCP: any of them is killed (SIGKILL), a new one rejoins through a store in a
//! folder, and the group goes on with the right sums.
//!
//! `FOLDWIRE_GROW_KILLS=1000 cargo test --release -p foldwire-tcp --test sockets grow::long:: --
//! --nocapture` kills as many, and prints the times to recover.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use crate::common::exchanges;
use foldwire::grow::{Admission, GrowError};
use foldwire::{Communicator, Config, Op, Plan};
use foldwire_bootstrap::{FileStore, StoreExchange, StorePlace, TcpStore, Token};
use foldwire_tcp::{Endpoint, GrownGroup, JoinError, Settings, admit, join, rejoin};

/// Environment variables of a rank's process.
const FOLDER: &str = "FOLDWIRE_TEST_FOLDER";
const RANK: &str = "FOLDWIRE_TEST_RANK";
/// Ranks of the group.
const SIZE: usize = 3;
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest wait for a group that is whole again.
const LIMIT: Duration = Duration::from_secs(30);
const TOKEN: &str = "0123456789abcdef";

fn settings() -> Settings {
    let mut settings = Settings::default().token(Token::new(TOKEN).unwrap());
    settings.options.grace = Duration::from_millis(100);
    settings
}

/// A folder for one test, removed at its end.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new(name: &str) -> Self {
        let folder = format!("foldwire-grow-{name}-{}", std::process::id());
        let folder = env::temp_dir().join(folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn wanted(facts: &[u8]) -> Admission<'_> {
    Admission { size: SIZE, limit: LIMIT, patience: PATIENCE, generation: 0, facts }
}

/// Runs as a rank's process, which a test starts from this program: sums until the folder has the
/// file `stop`. After a failure, the group waits until it is whole again.
#[test]
fn as_a_rank() {
    let Ok(folder) = env::var(FOLDER) else { return };
    let folder = Path::new(&folder);
    let mut store = FileStore::new(folder).unwrap();
    let (mut comm, mut generation) = match env::var(RANK).map(|rank| rank.parse().unwrap()) {
        Ok(rank) => {
            let place = StorePlace::new(rank, SIZE, "test");
            let mut exchange = StoreExchange::new(store.clone(), place).unwrap();
            (Communicator::new(join(&settings(), &mut exchange).unwrap()).unwrap(), 0)
        }
        Err(_) => {
            let grown = rejoin(&mut store, &settings(), Config::default(), LIMIT).unwrap();
            (grown.group, grown.roster.generation)
        }
    };
    comm.config_mut().timeout = LIMIT;
    let mut last_said = None;
    loop {
        let asks_to_stop = f64::from(u8::from(folder.join("stop").exists()));
        let mut values = vec![comm.rank().0 as f64 + 1.0; 30_000];
        values[0] = asks_to_stop;
        match comm.all_reduce(&mut values, Op::Sum, &Plan::raw()) {
            Ok(_) => {
                let size = comm.size();
                let expected = (size * (size + 1) / 2) as f64;
                assert!(values[1..].iter().all(|&value| value == expected), "{}", values[1]);
                if last_said != Some(generation) {
                    println!("\nwhole {} {generation} {size}", comm.rank());
                    last_said = Some(generation);
                }
                if values[0] > 0.0 {
                    return;
                }
            }
            Err(error) if error.is_usage() => panic!("{error}"),
            Err(_) => {
                let wanted = Admission { generation, ..wanted(b"") };
                let grown = match admit(comm, &mut store, &settings(), &wanted) {
                    Ok(grown) => grown,
                    // A process that was left out may rejoin.
                    Err(GrowError::Group(error)) => {
                        println!("\nleft out: {error}");
                        rejoin(&mut store, &settings(), Config::default(), LIMIT).unwrap()
                    }
                    Err(error) => panic!("{error}"),
                };
                (comm, generation) = (grown.group, grown.roster.generation);
                comm.config_mut().timeout = LIMIT;
            }
        }
    }
}

/// A rank's process. It is killed when it is dropped.
struct RankProcess(Child);

impl Drop for RankProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process of a rank (`None`: a newcomer). Its output goes to `said`, with its number.
fn start(folder: &Path, rank: Option<usize>, number: usize, said: &Sender<String>) -> RankProcess {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "grow::as_a_rank", "--nocapture"]).env(FOLDER, folder);
    if let Some(rank) = rank {
        command.env(RANK, rank.to_string());
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let (output, said) = (child.stdout.take().unwrap(), said.clone());
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = said.send(format!("{number} {line}"));
        }
    });
    RankProcess(child)
}

/// Waits until `SIZE` processes have said that the group is whole, in one generation above `after`.
/// Returns that generation.
fn whole(heard: &Receiver<String>, after: i64) -> i64 {
    let deadline = Instant::now() + LIMIT;
    let mut by_generation = std::collections::BTreeMap::new();
    let mut log = VecDeque::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match heard.recv_timeout(left) {
            Ok(line) => {
                let words: Vec<&str> = line.split(' ').collect();
                if let [_, "whole", _, generation, size] = words[..] {
                    let generation: i64 = generation.parse().unwrap();
                    if generation > after && size == SIZE.to_string() {
                        let n = by_generation.entry(generation).or_insert(0);
                        *n += 1;
                        if *n == SIZE {
                            return generation;
                        }
                    }
                }
                log.push_back(line);
            }
            Err(RecvTimeoutError::Timeout) => panic!("the group is not whole: {log:#?}"),
            Err(RecvTimeoutError::Disconnected) => unreachable!("this test has a sender"),
        }
    }
}

/// Kills a process `n_kills` times, or two at once each tenth time, and starts new ones. Returns
/// how many were killed, the rank, and the time from each kill to the first sum of the whole group.
fn kill_and_rejoin(name: &str, n_kills: usize) -> Vec<(usize, usize, Duration)> {
    let folder = TemporaryFolder::new(name);
    let (said, heard) = channel();
    let mut ranks: VecDeque<RankProcess> =
        (0..SIZE).map(|rank| start(&folder.0, Some(rank), rank, &said)).collect();
    let mut generation = whole(&heard, -1);
    let mut times = Vec::new();
    for nth in 0..n_kills {
        // Rank 0 first. A newcomer takes the lost rank, so each rank is killed in turn; if two are
        // lost, they may exchange ranks.
        let at = nth % SIZE;
        // Killed at any moment of a call.
        thread::sleep(Duration::from_micros(737 * (nth as u64 % 17)));
        let n_killed = 1 + usize::from(nth % 10 == 9);
        let begin = Instant::now();
        for also in 0..n_killed {
            ranks[(at + also) % SIZE].0.kill().unwrap();
        }
        for also in 0..n_killed {
            ranks[(at + also) % SIZE] = start(&folder.0, None, SIZE + 2 * nth + also, &said);
        }
        generation = whole(&heard, generation);
        times.push((n_killed, at, begin.elapsed()));
    }
    fs::write(folder.0.join("stop"), "").unwrap();
    for rank in &mut ranks {
        let deadline = Instant::now() + LIMIT;
        while rank.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "a rank does not end");
            thread::sleep(Duration::from_millis(5));
        }
        assert!(rank.0.wait().unwrap().success());
    }
    times
}

#[test]
fn whichever_rank_is_killed_a_new_process_takes_its_place() {
    kill_and_rejoin("short", 4);
}

/// A process that knows the store, but not the token, is never admitted and connects to nobody.
#[test]
fn who_does_not_know_the_token_is_not_admitted() {
    let folder = TemporaryFolder::new("stranger");
    let store = FileStore::new(&folder.0).unwrap();
    let limit = Duration::from_millis(1500);
    thread::scope(|scope| {
        let strange = {
            let mut store = store.clone();
            scope.spawn(move || {
                let settings = Settings::default().token(Token::new("another 16 chars").unwrap());
                rejoin(&mut store, &settings, Config::default(), limit).map(|_| ())
            })
        };
        let without = {
            let mut store = store.clone();
            scope.spawn(move || {
                rejoin(&mut store, &Settings::default(), Config::default(), limit).map(|_| ())
            })
        };
        let newcomer = {
            let mut store = store.clone();
            scope.spawn(move || rejoin(&mut store, &settings(), Config::default(), LIMIT))
        };
        let alone = exchanges(1).next().unwrap();
        let (mut store, mut exchange) = (store.clone(), alone);
        let comm = Communicator::new(join(&settings(), &mut exchange).unwrap()).unwrap();
        let mut comm = comm;
        comm.config_mut().lanes = 2;
        comm.config_mut().link_rate = Some(1e9);
        let facts = b"step 7";
        let wanted = Admission { size: 4, limit: Duration::from_millis(700), ..wanted(facts) };
        let mut grown = admit(comm, &mut store, &settings(), &wanted).unwrap();
        let mut theirs: GrownGroup = newcomer.join().unwrap().unwrap();
        assert_eq!((grown.group.size(), theirs.group.size()), (2, 2));
        assert_eq!(theirs.roster.facts, facts);
        let config = theirs.group.config();
        assert_eq!((config.lanes, config.link_rate), (2, Some(1e9)));
        assert_eq!((grown.roster.generation, theirs.roster.rank), (1, 1));
        let other = scope.spawn(move || sum(&mut theirs.group));
        assert_eq!(sum(&mut grown.group), 3.0);
        assert_eq!(other.join().unwrap(), 3.0);
        for stranger in [strange, without] {
            let outcome = stranger.join().unwrap();
            assert!(matches!(outcome, Err(GrowError::NotAdmitted { .. })), "{outcome:?}");
        }
    });
}

fn sum(comm: &mut Communicator<Endpoint>) -> f64 {
    let mut values = [comm.rank().0 as f64 + 1.0];
    comm.all_reduce(&mut values, Op::Sum, &Plan::raw()).unwrap();
    values[0]
}

/// The leader and newcomers need the store, whichever survivor hosts it.
#[test]
fn any_survivor_may_host_the_store() {
    for host in 0..SIZE - 1 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut hosted = Some(TcpStore::host(listener, None).unwrap());
        let reached = || TcpStore::connect(address, None, LIMIT);
        thread::scope(|scope| {
            let newcomer = scope.spawn(move || {
                let made = rejoin(&mut reached(), &settings(), Config::default(), LIMIT);
                sum(&mut made.unwrap().group)
            });
            let ranks = exchanges(SIZE - 1).enumerate();
            let ranks: Vec<_> = ranks
                .map(|(rank, mut exchange)| {
                    let own = if rank == host { hosted.take() } else { None };
                    scope.spawn(move || {
                        let mut store = own.unwrap_or_else(reached);
                        let comm = join(&settings(), &mut exchange).unwrap();
                        let comm = Communicator::new(comm).unwrap();
                        let made = admit(comm, &mut store, &settings(), &wanted(b""));
                        let sum = sum(&mut made.unwrap().group);
                        (sum, store)
                    })
                })
                .collect();
            let expected = (1..=SIZE).sum::<usize>() as f64;
            let results: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
            assert!(results.iter().all(|(sum, _)| *sum == expected), "host {host}");
            assert_eq!(newcomer.join().unwrap(), expected);
        });
    }
}

/// Sockets that connect to every port that a plan names, and hostile values in the store, delay a
/// grow but change nothing.
#[test]
fn strangers_at_the_ports_and_in_the_store_get_nothing() {
    use foldwire::store::Store;

    let folder = TemporaryFolder::new("hostile");
    let mut store = FileStore::new(&folder.0).unwrap();
    store.set("join/0", &[0xff; 300]).unwrap();
    store.set("join/1", b"").unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let (seen, is_over) = (store.clone(), &is_over);
        scope.spawn(move || {
            let mut sockets = Vec::new();
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                // Read the addresses from the newcomers' slots, as any process can.
                for slot in 0..4 {
                    let value = seen.clone().get(&format!("join/{slot}")).unwrap();
                    let text = String::from_utf8_lossy(&value.unwrap_or_default()).into_owned();
                    let address = text.split('\n').find_map(|line| line.parse().ok());
                    let address: Option<std::net::SocketAddr> = address;
                    sockets.extend(address.and_then(|at| TcpStream::connect(at).ok()));
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        let newcomers: Vec<_> = (0..2)
            .map(|_| {
                let mut store = store.clone();
                scope.spawn(move || {
                    let made = rejoin(&mut store, &settings(), Config::default(), LIMIT);
                    sum(&mut made.unwrap().group)
                })
            })
            .collect();
        let mut exchange = exchanges(1).next().unwrap();
        let comm = Communicator::new(join(&settings(), &mut exchange).unwrap()).unwrap();
        let mut grown = admit(comm, &mut store.clone(), &settings(), &wanted(b"")).unwrap();
        assert_eq!((grown.group.size(), sum(&mut grown.group)), (3, 6.0));
        for newcomer in newcomers {
            assert_eq!(newcomer.join().unwrap(), 6.0);
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// A newcomer's offer, copied to another slot under another number, is no further newcomer.
#[test]
fn a_copied_offer_makes_no_further_member() {
    use foldwire::store::Store;

    let folder = TemporaryFolder::new("copied");
    let store = FileStore::new(&folder.0).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let (mut copied, is_over) = (store.clone(), &is_over);
        scope.spawn(move || {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                if let Some(mut value) = copied.get("join/0").unwrap().filter(|it| !it.is_empty()) {
                    // The first bytes are the number. The copy counts on as the newcomer does.
                    value[0] ^= 1;
                    copied.set("join/1", &value).unwrap();
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        let mut inner = store.clone();
        let newcomer =
            scope.spawn(move || rejoin(&mut inner, &settings(), Config::default(), LIMIT));
        let mut exchange = exchanges(1).next().unwrap();
        let comm = Communicator::new(join(&settings(), &mut exchange).unwrap()).unwrap();
        let (limit, patience) = (Duration::from_millis(700), Duration::from_millis(200));
        let wanted = Admission { limit, patience, ..wanted(b"") };
        let grown = admit(comm, &mut store.clone(), &settings(), &wanted);
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let (grown, theirs) = (grown.unwrap(), newcomer.join().unwrap().unwrap());
        assert_eq!((grown.roster.members.len(), theirs.group.size()), (2, 2));
    });
}

/// A writer to the store who does not know the token changes the last byte of the plan that a
/// newcomer reads: a fact.
#[test]
fn a_plan_that_was_changed_in_the_store_is_not_followed() {
    use foldwire::store::{Store, StoreError, StoreRequest};

    let folder = TemporaryFolder::new("forged");
    let store = FileStore::new(&folder.0).unwrap();
    let (patience, limit) = (Duration::from_millis(200), Duration::from_secs(3));
    thread::scope(|scope| {
        let mut inner = store.clone();
        let newcomer = scope.spawn(move || {
            let mut forging = |request: StoreRequest<'_>| match request {
                StoreRequest::Set { key, value } => inner.set(key, value).map(|()| None),
                StoreRequest::Wait { key, limit } => inner.wait(key, limit),
                StoreRequest::Get { key } => {
                    let mut value = inner.get(key)?;
                    if key.starts_with("plan/")
                        && let Some(last) = value.as_mut().and_then(|value| value.last_mut())
                    {
                        *last ^= 1;
                    }
                    Ok(value)
                }
            };
            rejoin(&mut forging, &settings(), Config::default(), limit).map(|made| made.roster)
        });
        let mut exchange = exchanges(1).next().unwrap();
        let comm = Communicator::new(join(&settings(), &mut exchange).unwrap()).unwrap();
        let wanted = Admission { size: 2, limit, patience, ..wanted(b"step 7") };
        let grown = admit(comm, &mut store.clone(), &settings(), &wanted).unwrap();
        assert_eq!(grown.group.size(), 1);
        let outcome = newcomer.join().unwrap();
        let is_found = matches!(outcome, Err(GrowError::Store(StoreError::Damaged)));
        assert!(is_found, "{outcome:?}");
    });
}

#[test]
fn a_newcomer_that_nobody_admits_learns_it_in_time() {
    let folder = TemporaryFolder::new("nobody");
    let mut store = FileStore::new(&folder.0).unwrap();
    let start = Instant::now();
    let limit = Duration::from_millis(200);
    let outcome: Result<GrownGroup, GrowError<JoinError>> =
        rejoin(&mut store, &settings(), Config::default(), limit);
    assert!(matches!(outcome, Err(GrowError::NotAdmitted { .. })));
    assert!(start.elapsed() < LIMIT);
}

/// Slow tests.
mod long {
    use super::*;

    #[test]
    fn many_kills() {
        let n_kills = env::var("FOLDWIRE_GROW_KILLS").map_or(30, |text| text.parse().unwrap());
        let times = kill_and_rejoin("long", n_kills);
        for (n_killed, who) in [(1, "one process"), (2, "two at once")] {
            let mut times: Vec<Duration> =
                times.iter().filter(|it| it.0 == n_killed).map(|it| it.2).collect();
            times.sort();
            let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
            if !times.is_empty() {
                let [median, late, max] = [0.5, 0.99, 1.0].map(at);
                println!(
                    "{who}, {} times: recovered after {median:?} (median), {late:?} (99 %), \
                     {max:?} (max)",
                    times.len()
                );
            }
        }
        println!("all: {times:?}");
    }
}
