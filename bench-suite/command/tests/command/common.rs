//! Helpers for several test files.

use std::path::Path;
use std::process::{Command, Output};
use std::thread;

/// Number of commands to run at the same time. A process spends more time waiting for its libraries
/// than finding an error.
const AT_ONCE: usize = 8;

/// Checks that usage errors exit with code 2 and a hint on stderr, and leave stdout empty. `cases`
/// holds arguments and a part of the message.
pub(crate) fn assert_refused(run: impl Fn(&str) -> Output + Sync, cases: &[(&str, &str)]) {
    let check = |&(args, hint): &(&str, &str)| {
        let output = run(args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {errors}");
        assert!(errors.contains(hint), "{args}: {errors}");
        assert!(output.stdout.is_empty(), "{args}");
        assert!(args.is_empty() || errors.starts_with("error: "), "{args}: {errors}");
    };
    for cases in cases.chunks(AT_ONCE) {
        thread::scope(|scope| {
            for case in cases {
                scope.spawn(move || check(case));
            }
        });
    }
}

/// Runs the command in a folder.
pub(crate) fn foldwire(folder: &Path, args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_foldwire"))
        .args(args.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("the command starts")
}
