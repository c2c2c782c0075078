//! Tests of `foldwire launch`: the output of each rank, the end of all ranks, and the exit code.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use foldwire_bootstrap::{Exchange, Rendezvous};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const FOLDWIRE: &str = env!("CARGO_BIN_EXE_foldwire");

/// Time that ranks sleep if the launcher should end them. No test waits that long.
const LONG: Duration = Duration::from_secs(60);

fn command(options: &str, script: &str) -> Command {
    let mut command = Command::new("env");
    // A shell may have started these tests with signals ignored.
    if cfg!(target_os = "linux") {
        command.arg("--default-signal=INT,TERM,HUP");
    }
    command
        .arg(FOLDWIRE)
        .arg("launch")
        .args(options.split_whitespace())
        .args(["--", "sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the script as every rank. Fails if the launcher does not end sleeping ranks early.
fn launch(options: &str, script: &str) -> Output {
    let start = Instant::now();
    let output = command(options, script).output().expect("the command starts");
    assert!(start.elapsed() < LONG / 2, "{script}");
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Each rank's lines, in order.
fn by_rank(output: &[u8]) -> BTreeMap<String, Vec<String>> {
    let mut lines = BTreeMap::<_, Vec<_>>::new();
    for line in text(output).lines() {
        let (rank, line) = line.split_once("] ").expect("each line has a prefix");
        lines
            .entry(rank.trim_start_matches(['[', ' ']).to_owned())
            .or_default()
            .push(line.to_owned());
    }
    lines
}

/// Starts a launch and reads the first line of its output.
fn start(options: &str, script: &str) -> (Child, String, BufReader<impl Read>) {
    let mut child = command(options, script).spawn().expect("the command starts");
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    (child, line.trim().to_owned(), stdout)
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.parse().expect("a process number"))
}

fn send(child: &Child, signal: Signal) {
    kill(pid(&child.id().to_string()), signal).unwrap();
}

/// Returns whether the process has ended, or ends soon.
fn ends(process: Pid) -> bool {
    let start = Instant::now();
    while kill(process, None).is_ok() && !is_zombie(process) {
        if start.elapsed() > LONG / 4 {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Returns whether the process is a zombie: it has ended, but nothing reaps it.
fn is_zombie(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
}

#[test]
fn every_rank_has_its_place_and_its_prefix() {
    let output = launch(
        "-n 11 --env COLOUR=red --env 10:COLOUR=blue",
        "echo $FOLDWIRE_RANK of $FOLDWIRE_SIZE; echo at $FOLDWIRE_ROOT; echo $FOLDWIRE_TOKEN; echo \
        $COLOUR",
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let ranks = by_rank(&output.stdout);
    assert_eq!(ranks.len(), 11);
    for rank in 0..11 {
        let lines = &ranks[&rank.to_string()];
        assert_eq!(lines[0], format!("{rank} of 11"));
        assert!(lines[1].starts_with("at 127.0.0.1:"), "{}", lines[1]);
        assert_eq!(lines[1..3], ranks["0"][1..3], "one root and one token for all");
        assert!(lines[2].len() >= 32);
        assert_eq!(lines[3], if rank == 10 { "blue" } else { "red" });
    }
    assert!(text(&output.stdout).contains("[ 9] 9 of 11"), "prefixes are aligned");
    let other = by_rank(&launch("-n 2", "echo $FOLDWIRE_TOKEN").stdout);
    assert_ne!(other["0"][0], ranks["0"][2], "each launch has a token of its own");
}

#[test]
fn output_keeps_its_stream_and_its_bytes() {
    let output = launch("-n 2", r"printf 'a\377\000b\npartial'; printf 'e\n' >&2");
    let mut lines: Vec<_> = output.stdout.split(|&byte| byte == b'\n').collect();
    lines.sort_unstable();
    assert_eq!(lines, [&b""[..], b"[0] a\xff\0b", b"[0] partial", b"[1] a\xff\0b", b"[1] partial"]);
    let mut errors: Vec<_> = text(&output.stderr).lines().map(str::to_owned).collect();
    errors.sort_unstable();
    assert_eq!(errors, ["[0] e", "[1] e"]);
    for options in ["-n 1", "-n 2 --no-prefix --env 1:QUIET=1"] {
        let output = launch(options, r"[ $QUIET ] || printf 'a\377\npartial'");
        assert_eq!(output.stdout, b"a\xff\npartial");
    }
}

#[test]
fn much_output_is_complete_and_lines_do_not_mix() {
    let output = launch("-n 4", "seq 1 20000");
    let expected: Vec<_> = (1..=20_000).map(|n: u32| n.to_string()).collect();
    let ranks = by_rank(&output.stdout);
    assert_eq!(ranks.len(), 4);
    assert!(ranks.values().all(|lines| *lines == expected));
}

#[test]
fn rank_0_has_the_standard_input_and_others_have_none() {
    let mut child = command("-n 3", "cat").stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"for rank 0\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "[0] for rank 0\n");
}

/// After the launcher is killed, only its guard process can end the ranks. Each rank here has a
/// child, and would run for a minute.
#[test]
fn ranks_end_with_a_launcher_that_is_killed() {
    let script = r#"trap "" HUP TERM; sleep 60 & echo $$ $!; [ $FOLDWIRE_RANK = 1 ] || sleep 60
        exec sleep 60"#;
    let (mut child, line, mut stdout) = start("-n 2", script);
    let mut lines = [line, String::new()];
    stdout.read_line(&mut lines[1]).unwrap();
    let all: Vec<Pid> = lines
        .iter()
        .flat_map(|line| line.split_once("] ").expect("a prefix").1.split_whitespace())
        .map(pid)
        .collect();
    assert_eq!(all.len(), 4);
    child.kill().unwrap();
    child.wait().unwrap();
    for process in all {
        assert!(ends(process), "{process} goes on");
    }
}

#[test]
fn a_rank_that_fails_ends_all_and_gives_its_code() {
    let output = launch("-n 4 --grace 0.2", "[ $FOLDWIRE_RANK = 2 ] && exit 7; exec sleep 60");
    assert_eq!(output.status.code(), Some(7));
    let errors = text(&output.stderr);
    assert_eq!(errors, "error: rank 2 ended with exit code 7; the others were ended\n");
}

#[test]
fn a_rank_that_dies_by_a_signal_gives_128_and_its_number() {
    let output = launch("-n 2 --grace 0.2", "[ $FOLDWIRE_RANK = 1 ] && kill -9 $$; exec sleep 60");
    assert_eq!(output.status.code(), Some(137));
    assert!(text(&output.stderr).contains("rank 1 was ended by signal 9 (SIGKILL)"));
}

#[test]
fn others_have_time_to_notice_and_their_code_does_not_count() {
    let output = launch(
        "-n 2 --grace 20",
        "[ $FOLDWIRE_RANK = 0 ] && exit 3; sleep 0.3; echo noticed; exit 4",
    );
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stdout), "[1] noticed\n");
}

#[test]
fn who_does_not_heed_sigterm_is_killed() {
    let script =
        "trap 'echo asked' TERM; [ $FOLDWIRE_RANK = 0 ] && exit 5; while :; do sleep 0.05; done";
    let output = launch("-n 2 --grace 0.3", script);
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(text(&output.stdout), "[1] asked\n");
}

#[test]
fn a_time_limit_ends_all_with_124() {
    let output = launch("-n 2 --timeout 0.3", "exec sleep 60");
    assert_eq!(output.status.code(), Some(124));
    assert!(text(&output.stderr).contains("did not end within 0.3 s"));
}

#[test]
fn a_time_limit_holds_although_a_rank_has_failed() {
    let start = Instant::now();
    let output =
        launch("-n 2 --timeout 0.5 --grace 20", "[ $FOLDWIRE_RANK = 0 ] && exit 6; exec sleep 60");
    assert_eq!(output.status.code(), Some(6));
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[test]
fn signals_to_the_launcher_end_all_ranks_and_what_they_started() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let (mut child, line, _stdout) = start("-n 1", "sleep 60 & echo $!; wait");
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert!(ends(pid(&line)));
    }
}

/// As under nohup, or in the background of a script. MPI and libfabric may load libpsm, which
/// installs a handler of SIGINT before the program begins.
#[test]
fn signals_that_were_ignored_at_the_start_stay_ignored() {
    let may_load_psm = cfg!(any(feature = "mpi", feature = "libfabric"));
    let (names, kills) = if may_load_psm { ("HUP", "") } else { ("HUP INT", "kill -INT $$;") };
    let rank = format!("kill -HUP $$; {kills} echo lives; exec sleep 1");
    let script = format!("trap '' {names}; exec \"$0\" launch -n 1 -- sh -c '{rank}'");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, FOLDWIRE]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "lives\n");
    send(&child, Signal::SIGHUP);
    if !may_load_psm {
        send(&child, Signal::SIGINT);
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_limit_of_open_files_is_named_and_leaves_no_rank() {
    let pids = tempfile::NamedTempFile::new().unwrap();
    let rank = r#"echo $$ >> "$0"; exec sleep 60"#;
    let script = format!("ulimit -n 30; exec \"$0\" launch -n 40 -- sh -c '{rank}' \"$1\"");
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", &script, FOLDWIRE]).arg(pids.path()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("ulimit") && !said.contains("PATH"), "{said}");
    for rank in std::fs::read_to_string(pids.path()).unwrap().lines() {
        assert!(ends(pid(rank)), "rank {rank} goes on");
    }
}

/// A rank that SIGTERM ends at once. Its child ignores it, and then prints its number.
const STUBBORN_CHILD: &str = r#"(trap "" TERM; exec sh -c 'echo $$; exec sleep 60') & wait"#;

#[test]
fn what_a_rank_started_is_killed_although_the_rank_has_ended() {
    for options in ["-n 1 --timeout 1 --grace 0.3", "-n 1 --timeout 1 --grace 0"] {
        let output = launch(options, STUBBORN_CHILD);
        assert_eq!(output.status.code(), Some(124));
        let child = pid(text(&output.stdout).trim());
        assert!(ends(child), "{child} goes on");
    }
}

#[test]
fn what_a_rank_started_has_time_to_end_although_the_rank_has_ended() {
    let start = Instant::now();
    let script =
        r#"(trap "sleep 1.5; echo saved; exit" TERM; while :; do sleep 0.05; done) & wait"#;
    let output = launch("-n 2 --timeout 1 --grace 20", script);
    assert_eq!(output.status.code(), Some(124));
    assert_eq!(by_rank(&output.stdout).into_values().flatten().collect::<Vec<_>>(), ["saved"; 2]);
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[test]
fn a_second_ctrl_c_kills_what_a_rank_has_left() {
    let (mut child, line, _stdout) = start("-n 1 --grace 60", STUBBORN_CHILD);
    send(&child, Signal::SIGINT);
    thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "the first one asks");
    send(&child, Signal::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(ends(pid(&line)));
}

#[test]
fn a_second_ctrl_c_does_not_wait() {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    let (mut child, line, _stdout) = start("-n 1 --grace 60", script);
    assert_eq!(line, "ready");
    let begin = Instant::now();
    send(&child, Signal::SIGINT);
    thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "the first one asks");
    send(&child, Signal::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begin.elapsed() < LONG / 2);
}

#[test]
fn ranks_end_when_nobody_reads_their_output() {
    let (mut child, line, stdout) = start("-n 2", "while :; do echo more; done");
    assert!(line.ends_with("more"));
    drop(stdout);
    assert_eq!(child.wait().unwrap().code(), Some(141));
}

#[test]
fn a_process_left_behind_does_not_hold_up_the_end() {
    let output = launch("-n 1", "sleep 60 & echo $!");
    assert!(output.status.success());
    let left = pid(text(&output.stdout).trim());
    kill(left, Signal::SIGKILL).expect("it is still there");
}

/// The pipe to the reader holds less than a rank writes here, so the rest waits in the launcher
/// after the rank's end.
#[test]
fn a_slow_reader_gets_all_output() {
    let mut child = command("-n 1", "seq 1 22000").spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    thread::sleep(Duration::from_secs(3));
    let mut all = String::new();
    stdout.read_to_string(&mut all).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(all.lines().map(str::to_owned).eq((1..=22_000).map(|n: u32| n.to_string())));
}

/// The process left behind writes all the time, and the reader is slow, so a forwarding thread is
/// nearly always writing.
#[test]
fn a_process_left_behind_that_writes_does_not_hold_up_the_end_of_a_slow_reader() {
    let start = Instant::now();
    let mut child = command("-n 1", "echo first; yes & exit 0").spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let (mut all, mut piece) = (Vec::new(), [0; 32 * 1024]);
    loop {
        let n_bytes = stdout.read(&mut piece).unwrap();
        if n_bytes == 0 {
            break;
        }
        all.extend_from_slice(&piece[..n_bytes]);
        thread::sleep(Duration::from_millis(5));
        assert!(start.elapsed() < LONG / 2, "it goes on");
    }
    assert!(child.wait().unwrap().success());
    assert!(all.starts_with(b"first\ny\n"));
}

#[test]
fn a_signal_ends_the_wait_for_a_reader() {
    let mut child = command("-n 1", "seq 1 22000").spawn().unwrap();
    let _unread = child.stdout.take().unwrap();
    thread::sleep(Duration::from_secs(2));
    assert!(child.try_wait().unwrap().is_none(), "output waits for its reader");
    send(&child, Signal::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn what_cannot_be_started_is_an_error_of_use() {
    for (args, hint) in [
        (&["-n", "2", "--", "./no-such-program"][..], "PATH"),
        (&["-n", "2", "no-such-program"], "cannot start `no-such-program`"),
        (&["-n", "2"], "PROGRAM"),
        (&["--", "true"], "--ranks <N>"),
        (&["-n", "0", "--", "true"], "at least 1 rank"),
        (&["-n", "2", "--env", "A", "--", "true"], "NAME=VALUE"),
        (&["-n", "2", "--env", "2:A=b", "--", "true"], "ranks are 0 to 1"),
        (&["-n", "2", "--timeout", "soon", "--", "true"], "seconds"),
    ] {
        let program =
            Command::new(env!("CARGO_BIN_EXE_foldwire")).arg("launch").args(args).output();
        let output = program.unwrap();
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
        assert!(errors.starts_with("error: ") && errors.contains(hint), "{args:?}: {errors}");
    }
}

/// Program of a rank in the next two tests, which start this test binary.
#[test]
#[ignore = "a program for other tests"]
fn a_rank() {
    let mut party = Rendezvous::from_env().unwrap().join().unwrap();
    let rank = party.rank().0 as u8;
    println!("\nparts {:?}", party.all_gather(&[rank, 10 * rank]).unwrap());
    if std::env::var_os("DIE").is_some() {
        std::process::abort();
    }
    while std::env::var_os("WATCH").is_some() {
        if let Some(lost) = party.poll_lost() {
            println!("lost {lost}");
            // Keep running until rank 0 has reported the lost rank to all others.
            thread::sleep(Duration::from_millis(500));
            party.poll_lost();
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Launches `a_rank` with these options. Returns the exit code, and the lines of all ranks that
/// begin with `word`.
fn ranks_that_join(options: &str, word: &str) -> (Option<i32>, Vec<String>) {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_foldwire"))
        .arg("launch")
        .args(options.split_whitespace())
        .args([Path::new("--"), &program])
        .args(["--exact", "launch::a_rank", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let lines = text(&output.stdout);
    let mut lines: Vec<_> = lines
        .lines()
        .filter(|line| line.split("] ").nth(1).is_some_and(|line| line.starts_with(word)))
        .map(str::to_owned)
        .collect();
    lines.sort();
    (output.status.code(), lines)
}

#[test]
fn ranks_find_each_other() {
    let (code, lines) = ranks_that_join("-n 3", "parts");
    assert_eq!(code, Some(0));
    let parts = "parts [[0, 0], [1, 10], [2, 20]]";
    assert_eq!(lines, [0, 1, 2].map(|rank| format!("[{rank}] {parts}")));
}

#[test]
fn ranks_hear_of_one_that_dies() {
    for dying in [0, 1] {
        let options = format!("-n 3 --grace 20 --env WATCH=1 --env {dying}:DIE=1");
        let (code, lines) = ranks_that_join(&options, "lost");
        assert_eq!(code, Some(134), "abort is signal 6");
        let others = [0, 1, 2].into_iter().filter(|&rank| rank != dying);
        let expected: Vec<_> = others.map(|rank| format!("[{rank}] lost {dying}")).collect();
        assert_eq!(lines, expected);
    }
}
