//! Real launchers, and names of hosts that come late. Each test starts this program as its ranks.

use std::env;
use std::process::{Command, Stdio};

use crate::common::sums;
use foldwire::Communicator;
use foldwire_bootstrap::Rendezvous;
use foldwire_tcp::{Settings, join};

/// Environment variable of the processes that tests start.
const IS_RANK: &str = "FOLDWIRE_TEST_IS_RANK";

/// Runs as one of the ranks that a launcher starts from this program.
#[test]
fn as_a_rank() {
    if env::var_os(IS_RANK).is_none() {
        return;
    }
    let mut session = Rendezvous::from_env().unwrap().join().unwrap();
    let endpoint = join(&Settings::from_env().unwrap(), &mut session).unwrap();
    let mut comm = Communicator::new(endpoint).unwrap();
    assert_eq!(sums(&mut comm, 3).0, 3);
    println!("rank {} of {} has summed", comm.rank(), comm.size());
}

/// Runs four ranks under MPICH's launcher, which tells them nothing but PMI's variables.
fn under_hydra(options: &[&str]) {
    let Ok(found) = Command::new("mpirun.mpich").arg("--version").output() else {
        println!("skipped: ranks under Hydra: no mpirun.mpich");
        return;
    };
    assert!(String::from_utf8_lossy(&found.stdout).contains("HYDRA"), "{found:?}");
    let mut launcher = Command::new("mpirun.mpich");
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("FOLDWIRE_") {
            launcher.env_remove(name);
        }
    }
    launcher.args(options).args(["-n", "4"]).arg(env::current_exe().unwrap());
    launcher.args(["--exact", "launchers::as_a_rank", "--nocapture"]).env(IS_RANK, "1");
    let output = launcher.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options:?}: {text}\n{errors}");
    assert_eq!(text.matches("of 4 has summed").count(), 4, "{options:?}: {text}\n{errors}");
}

/// Two nodes by name, without ssh: the environment names neither address, job nor token.
const TWO_NODES: [&str; 6] = ["-launcher", "fork", "-hosts", "localhost,127.0.0.2", "-ppn", "2"];

#[test]
fn hydras_ranks_on_two_nodes_meet_through_its_socket() {
    under_hydra(&TWO_NODES);
}

#[test]
fn hydras_ranks_meet_through_its_port() {
    under_hydra(&["-pmi-port"]);
}

/// Two nodes of network namespaces, and three jobs on them at once. `/etc/hosts` takes the place of
/// a name server. The names come a second after the ranks.
#[cfg(target_os = "linux")]
const LATE_NAMES: &str = r#"
set -e
hosts=$(mktemp); trap 'rm -f $hosts; kill $other' EXIT
echo '127.0.0.1 localhost' > $hosts; mount --bind $hosts /etc/hosts
unshare --net sleep 60 & other=$!
ip link set lo up
ip link add left type veth peer name right
until ip link set right netns $other; do sleep 0.02; done
ip addr add 10.9.0.1/24 dev left; ip link set left up
there="nsenter --net=/proc/$other/ns/net"
$there sh -c 'ip link set lo up; ip addr add 10.9.0.2/24 dev right; ip link set right up'
run() { "$PROGRAM" --exact launchers::as_a_rank --nocapture; }
export -f run
export FOLDWIRE_TOKEN=0123456789abcdef0123456789abcdef

job() { # NAME, variables of rank 0, variables of rank 1
  env $2 bash -c run & ranks="$ranks $!"
  env $3 $there bash -c run & ranks="$ranks $!"
}
pod="FOLDWIRE_SIZE=2 FOLDWIRE_ROOT=sum-0.sum:29753"
job kubernetes "FOLDWIRE_RANK=0 $pod" "FOLDWIRE_RANK=1 $pod"
step="SLURM_STEP_ID=0 SLURM_JOB_ID=77 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=2
  SLURM_STEP_NODELIST=node[1-2]"
job slurm "SLURM_PROCID=0 $step" "SLURM_PROCID=1 $step"
elastic="WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 MASTER_ADDR=node1 MASTER_PORT=29500
  TORCHELASTIC_RUN_ID=7 TORCHELASTIC_RESTART_COUNT=0"
job torchrun "RANK=0 $elastic" "RANK=1 $elastic"

sleep 1
echo '10.9.0.1 node1 sum-0.sum' >> $hosts
for rank in $ranks; do wait $rank; done
"#;

#[cfg(target_os = "linux")]
#[test]
fn ranks_on_two_nodes_wait_for_names_that_come_late() {
    let may = Command::new("unshare").args(["--mount", "--net", "ip", "link"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        println!("skipped: names that come late: no network namespaces (needs root, iproute2)");
        return;
    }
    let mut nodes = Command::new("unshare");
    nodes.args(["--mount", "--net", "bash", "-c", LATE_NAMES]);
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("FOLDWIRE_") {
            nodes.env_remove(name);
        }
    }
    nodes.env("PROGRAM", env::current_exe().unwrap()).env(IS_RANK, "1");
    let output = nodes.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert_eq!(text.matches("of 2 has summed").count(), 6, "{text}\n{errors}");
}

/// The job file's variables are those that the test above sets.
#[cfg(target_os = "linux")]
#[test]
fn the_job_file_for_kubernetes_names_the_tested_variables() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/launch.md");
    let Ok(page) = std::fs::read_to_string(page) else { return };
    let (_, file) = page.split_once("```yaml\n").unwrap();
    let (file, _) = file.split_once("```").unwrap();
    for part in ["FOLDWIRE_SIZE", "sum-0.sum:29753", "FOLDWIRE_RANK", "FOLDWIRE_TOKEN"] {
        assert!(file.contains(part), "{part}");
    }
    assert!(LATE_NAMES.contains("FOLDWIRE_ROOT=sum-0.sum:29753"));
}
