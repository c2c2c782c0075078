//! Tests of `foldwire schedule`.

#[cfg(feature = "plots")]
use std::fs;
use std::process::{Command, Output};

use foldwire::schedule;
use serde_json::Value;

fn run(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldwire"));
    command.arg("schedule").args(args.split_whitespace()).output().unwrap()
}

fn text(args: &str) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_table_has_every_schedule() {
    let table = text("--ranks 13");
    assert!(table.starts_with("13 ranks\n"), "{table}");
    for schedule in schedule::ALL {
        let is_its = |line: &str| line.split_whitespace().next() == Some(schedule.name());
        assert!(table.lines().any(is_its), "{}: {table}", schedule.name());
    }
    let row = |line: &&str| line.contains("recursive-doubling");
    let doubling: Vec<_> = table.lines().find(row).unwrap().split_whitespace().collect();
    // 8 ranks double three times. The 5 others, rank 0 among them, send a message before and
    // receive one after.
    assert_eq!(doubling[1..], ["all-reduce", "1", "34", "1", "5"]);
}

/// Collectives without a root ignore the option.
#[test]
fn only_what_has_a_root_takes_one() {
    assert_eq!(text("chain --collective scan --root 2"), text("chain --collective scan"));
    assert_ne!(text("chain --collective bcast --root 2"), text("chain --collective bcast"));
    assert!(text("--root 2").lines().count() > schedule::ALL.len());
}

#[test]
fn programs_are_shown_rank_by_rank() {
    let shown = text("chain --collective exscan --ranks 3");
    let expected = "exclusive-scan by chain, 3 ranks: 2 messages, 2 one after the other\n\
                    \nrank 0\n  0: send part 0 to 1\n\
                    \nrank 1\n  0: store-reduce-send part 0 from 0 to 2\n\
                    \nrank 2\n  0: store part 0 from 1\n";
    assert_eq!(shown, expected);
    assert!(text("two-levels --ranks 4 --ranks-per-node 2").contains("4 ranks, 2 a node: "));
}

#[test]
fn messages_are_listed_with_their_times() {
    let object: Value =
        serde_json::from_str(&text("binomial --collective bcast --ranks 8 --root 3 --json"))
            .unwrap();
    let messages = object["messages"].as_array().unwrap();
    assert_eq!((messages.len(), &object["critical_path"]), (7, &3.into()));
    assert!(
        messages.iter().all(|message| message["departure"].as_u64() < message["arrival"].as_u64())
    );
    let last = messages.last().unwrap();
    assert_eq!(last["arrival"], object["critical_path"]);
    // Every rank but the root receives the whole array once.
    let mut receivers: Vec<_> = messages.iter().map(|message| message["to"].as_u64()).collect();
    receivers.sort_unstable();
    assert_eq!(receivers, [0, 1, 2, 4, 5, 6, 7].map(Some));
}

#[cfg(feature = "plots")]
#[test]
fn a_picture_has_a_line_for_each_rank_and_message() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ring.svg");
    text(&format!("ring --ranks 5 --plot {}", file.display()));
    let svg = fs::read_to_string(file).unwrap();
    assert!(
        svg.contains("all-reduce by ring, 5 ranks: 40 messages, 8 one after the other"),
        "{svg}"
    );
    assert_eq!(svg.matches("<polyline").count(), 5 + 40, "{svg}");
}

#[test]
fn what_cannot_be_is_an_error_of_use() {
    for (args, said) in [
        ("ring --collective bcast", "ring has no broadcast"),
        ("binomial --ranks 3 --root 3", "there is no rank 3 among 3"),
        ("rign", "rign"),
        ("ring --ranks 0", "0"),
        ("ring --plot ring.pdf", ".svg or .png"),
    ] {
        let output = run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(said), "{args}: {stderr}");
    }
}
