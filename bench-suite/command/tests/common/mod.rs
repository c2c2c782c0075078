//! What several files of tests ask of the command.

use std::process::Output;
use std::thread;

/// A process waits for its libraries for longer than it takes to find an error.
const AT_ONCE: usize = 8;

/// Whatever the user gets wrong ends with code 2 and a hint on stderr, and stdout stays empty.
/// `cases`: arguments, and a part of what is said of them.
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
