//! A shell that kills the ranks if the launcher is killed. It waits for the end of a pipe.
//!
//! The launcher writes the ranks' process groups to the pipe, a line per change. Only the launcher
//! can write to the pipe, so the pipe ends with the launcher. The shell then kills the groups in
//! the last line: the ranks, and all their child processes that have not left the group. The shell
//! has its own group and a different name, so signals to the launcher by group or name do not reach
//! it.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::unistd::Pid;

const SCRIPT: &str = r#"trap "" HUP INT QUIT TERM
groups=
while read -r line; do groups=$line; done
[ -z "$groups" ] || kill -s KILL -- $groups"#;

/// Kills the ranks if this process ends without dropping the guard.
pub(super) struct ProcessGuard(Child);

impl ProcessGuard {
    pub(super) fn start() -> io::Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT]).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().map(Self)
    }

    /// Replaces the groups to kill.
    pub(super) fn set_groups(&mut self, groups: impl Iterator<Item = Pid>) {
        let groups: Vec<String> = groups.map(|group| format!("-{group}")).collect();
        if let Some(pipe) = &mut self.0.stdin {
            // This fails if somebody has killed the shell. Then the ranks have no guard.
            let _ = pipe.write_all((groups.join(" ") + "\n").as_bytes());
        }
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        self.set_groups([].into_iter());
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
