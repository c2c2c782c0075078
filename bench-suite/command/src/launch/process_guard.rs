//! A shell that ends the ranks if the launcher is killed: it waits for the end of a pipe.
//!
//! The launcher tells it the ranks' process groups, a line each time they change. Only the launcher
//! can write to the pipe, so the pipe ends when the launcher does. The shell then kills the groups
//! that the last line named: the ranks, and whatever they have started that has not left its group.
//! The shell is in a group of its own, and has another name than the launcher: what kills that one
//! spares it.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::unistd::Pid;

const SCRIPT: &str = r#"trap "" HUP INT QUIT TERM
groups=
while read -r line; do groups=$line; done
[ -z "$groups" ] || kill -s KILL -- $groups"#;

/// Ends the ranks that it knows of when this process ends, unless it is dropped before.
pub(super) struct ProcessGuard(Child);

impl ProcessGuard {
    pub(super) fn start() -> io::Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT]).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().map(Self)
    }

    /// These are the groups from now on.
    pub(super) fn set_groups(&mut self, groups: impl Iterator<Item = Pid>) {
        let groups: Vec<String> = groups.map(|group| format!("-{group}")).collect();
        if let Some(pipe) = &mut self.0.stdin {
            // Fails if somebody has killed the shell. Then nobody ends the ranks in this one's
            // stead.
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
