//! `cluster test`: tests the guarantees of the emulated cluster, on a small one with its own name.
//!
//! The rate is measured with a plain TCP stream between two nodes, without any code of Foldwire.

use super::ip::{ip, shell};
use super::nodes::{ClusterName, address, devices, processes};
use super::run::{RankLauncher, random_token};
use super::shape::Rate;
use super::{counters::Counters, down, up};
use anyhow::{Context, ensure};
use foldwire_steps::Steps;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const N_NODES: usize = 3;
const PORT: u16 = 19999;

pub(super) fn run(steps: &mut Steps) -> anyhow::Result<()> {
    let cluster: ClusterName =
        format!("foldwire-test-{}", std::process::id()).parse().map_err(anyhow::Error::msg)?;
    let result = all(steps, &cluster);
    // Remove the cluster after a failure too. If the removal also fails, return the first error.
    let removed = down::remove(&cluster);
    result.and(removed)
}

fn all(steps: &mut Steps, cluster: &ClusterName) -> anyhow::Result<()> {
    let rate = |text: &str| text.parse::<Rate>().map_err(anyhow::Error::msg);
    let (slow, fast) = (rate("200mbit")?, rate("400mbit")?);
    steps.check("cluster: foreign namespaces are left alone", || foreign(cluster, slow))?;
    steps.check("cluster: up, and up again", || {
        up::up(cluster, N_NODES, slow)?;
        up::up(cluster, N_NODES, slow)?;
        ensure!(up::up(cluster, N_NODES + 1, slow).is_err(), "up accepted another number of nodes");
        ensure!(cluster.size()? == N_NODES, "{} nodes", cluster.size()?);
        Ok(())
    })?;
    steps.check("cluster: every node reaches every other", || reach(cluster))?;
    steps.check("cluster: there is no way out", || no_way_out(cluster))?;
    steps.check("cluster: the rate is kept, and counted", || keeps_rate(cluster, slow))?;
    steps.check("cluster: the rate changes in place", || {
        up::up(cluster, N_NODES, fast)?;
        keeps_rate(cluster, fast)
    })?;
    steps.check("cluster: ranks know who they are", || identity(cluster))?;
    steps.check("cluster: one failure ends all ranks", || failure(cluster))?;
    steps.check("cluster: down leaves nothing", || nothing_left(cluster))
}

/// Makes a namespace like another program's, with one of our names. `up` must refuse it, leave it
/// alone, and make nothing itself.
fn foreign(cluster: &ClusterName, rate: Rate) -> anyhow::Result<()> {
    let foreign = cluster.node(1);
    ip(&format!("netns add {foreign}"))?;
    let result = (|| {
        ip(&format!("-n {foreign} link set dev lo up"))?;
        ensure!(up::up(cluster, N_NODES, rate).is_err(), "up accepted a foreign namespace");
        down::remove(cluster)?;
        let found = cluster.find()?;
        ensure!(found.is_empty(), "up left something of its own: {found:?}");
        ensure!(found.foreign == [foreign.clone()], "the foreign namespace is gone: {found:?}");
        Ok(())
    })();
    ip(&format!("netns delete {foreign}"))?;
    result
}

fn reach(cluster: &ClusterName) -> anyhow::Result<()> {
    for from in 0..N_NODES {
        for to in (0..N_NODES).filter(|&to| to != from) {
            transfer(cluster, from, to, 1).with_context(|| format!("from {from} to {to}"))?;
        }
    }
    Ok(())
}

fn no_way_out(cluster: &ClusterName) -> anyhow::Result<()> {
    for node in 0..N_NODES {
        let routes = ip(&format!("-n {} route show", cluster.node(node)))?;
        ensure!(routes.lines().count() == 1, "node {node} has other routes: {routes}");
        // An address from a range that is reserved for documentation.
        let outside = SocketAddr::from(([192, 0, 2, 1], 80));
        let error = in_namespace(cluster.node(node), move || {
            TcpStream::connect_timeout(&outside, Duration::from_secs(5))
        })?
        .err()
        .with_context(|| format!("node {node} reached the outside"))?;
        ensure!(error.kind() == ErrorKind::NetworkUnreachable, "node {node}: {error}");
    }
    let switch = cluster.switch();
    let n_devices = devices(&switch)?.len();
    // A port for each node, the bridge, and the loopback device.
    ensure!(n_devices == N_NODES + 2, "the switch has {n_devices} devices");
    let routes = ip(&format!("-n {switch} route show"))?;
    ensure!(routes.is_empty(), "the switch has routes: {routes}");
    Ok(())
}

/// Compares the measured rate and the kernel's counters with what was sent.
fn keeps_rate(cluster: &ClusterName, rate: Rate) -> anyhow::Result<()> {
    let Rate::Limited(bits) = rate else { anyhow::bail!("there is no rate to keep") };
    // As many bytes as the link carries in half a second.
    let n_bytes = bits / 16;
    // Other programs can make a link slower, never faster. So take the best of some runs.
    let mut best = 0.0f64;
    for _ in 0..3 {
        let before = Counters::read(cluster, 0)?;
        let time = transfer(cluster, 0, 1, n_bytes)?;
        let sent = Counters::read(cluster, 0)?.since(before).sent;
        let wire_rate = sent.wire_bytes as f64 * 8.0 / time.as_secs_f64();
        eprintln!(
            "    {:.0} Mbit/s on the wire; {n_bytes} bytes sent, {} counted",
            wire_rate / 1e6,
            sent.payload_bytes
        );
        let counted = sent.payload_bytes as f64 / n_bytes as f64;
        ensure!((0.99..1.02).contains(&counted), "the kernel counted {counted} times the payload");
        ensure!(sent.wire_bytes > sent.payload_bytes, "no headers on the wire");
        best = best.max(wire_rate);
        if best > 0.95 * bits as f64 {
            break;
        }
    }
    let share = best / bits as f64;
    ensure!((0.9..1.1).contains(&share), "the link runs at {share:.2} of {rate}");
    Ok(())
}

/// Ranks must have the right environment, host names, and their own `/dev/shm`.
fn identity(cluster: &ClusterName) -> anyhow::Result<()> {
    let token = random_token()?;
    let line = format!(
        "test $FOLDWIRE_SIZE = {N_NODES} && test \"$(uname -n)\" = {cluster}-$FOLDWIRE_RANK && \
         test $FOLDWIRE_ADDRESS = 10.77.0.$((FOLDWIRE_RANK + 1)) && test $FOLDWIRE_TOKEN = {token} \
         && \
         touch /dev/shm/$FOLDWIRE_TOKEN"
    );
    ranks(cluster, &token).run(&sh(&line))?;
    ensure!(!Path::new("/dev/shm").join(token).exists(), "nodes share /dev/shm with the machine");
    Ok(())
}

/// Node 1 fails while the other nodes, and a child process of each, sleep.
fn failure(cluster: &ClusterName) -> anyhow::Result<()> {
    let token = random_token()?;
    let line = "test $FOLDWIRE_RANK != 1 || exit 7; sleep 600 & sleep 600";
    let start = Instant::now();
    let error = ranks(cluster, &token).run(&sh(line)).err().context("the failure was not seen")?;
    let time = start.elapsed();
    ensure!(error.to_string().contains("rank 1"), "another rank is blamed: {error}");
    ensure!(time < Duration::from_secs(60), "the others were ended after {time:?}");
    thread::sleep(Duration::from_millis(100));
    for node in 0..N_NODES {
        let left = processes(&cluster.node(node))?;
        ensure!(left.is_empty(), "left in node {node}: {left:?}");
    }
    Ok(())
}

/// Removes the cluster while an orphaned process still runs in a node.
fn nothing_left(cluster: &ClusterName) -> anyhow::Result<()> {
    shell(&cluster.node(0), "sleep 600 > /dev/null 2>&1 &")?;
    down::remove(cluster)?;
    let found = cluster.find()?;
    ensure!(found.is_empty() && found.foreign.is_empty(), "left: {found:?}");
    Ok(())
}

fn ranks<'a>(cluster: &'a ClusterName, token: &'a str) -> RankLauncher<'a> {
    RankLauncher {
        cluster,
        n_ranks: N_NODES,
        per_node: 1,
        token,
        grace: Duration::from_millis(500),
        has_prefix: true,
    }
}

fn sh(line: &str) -> Vec<String> {
    ["sh", "-c", line].map(str::to_owned).into()
}

/// Sends `n_bytes` bytes between nodes. Returns the time until all have arrived.
fn transfer(
    cluster: &ClusterName,
    from: usize,
    to: usize,
    n_bytes: u64,
) -> anyhow::Result<Duration> {
    let address = SocketAddr::from((address(to), PORT));
    let listener = in_namespace(cluster.node(to), move || TcpListener::bind(address))??;
    let receiver = thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let mut buffer = vec![0; 1 << 20];
        let mut left = n_bytes;
        while left > 0 {
            let n = stream.read(&mut buffer)?;
            left = left.checked_sub(n as u64).filter(|_| n > 0).ok_or(ErrorKind::UnexpectedEof)?;
        }
        Ok::<_, std::io::Error>(Instant::now())
    });
    // A socket stays in the namespace where it was made.
    let connect = move || TcpStream::connect_timeout(&address, Duration::from_secs(5));
    let mut stream = in_namespace(cluster.node(from), connect)??;
    let start = Instant::now();
    let block = vec![0; 1 << 16];
    let mut left = n_bytes;
    while left > 0 {
        let n = left.min(block.len() as u64);
        stream.write_all(&block[..usize::try_from(n)?])?;
        left -= n;
    }
    let end = receiver.join().map_err(|_| anyhow::anyhow!("the receiver panicked"))??;
    Ok(end - start)
}

/// Runs `act` in a namespace, on a thread that ends afterwards.
fn in_namespace<T: Send + 'static>(
    namespace: String,
    act: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<T> {
    let thread = thread::spawn(move || {
        let file = File::open(format!("/run/netns/{namespace}"))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(act())
    });
    thread.join().map_err(|_| anyhow::anyhow!("a thread in a namespace panicked"))?
}
