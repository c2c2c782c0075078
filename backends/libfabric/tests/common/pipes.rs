//! Two processes that know each other by a pair of pipes: the smallest real [`Exchange`].

#![allow(
    unreachable_pub,
    dead_code,
    reason = "shared by tests and examples, which use parts of it"
)]

use std::env;
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use foldwire::Rank;
use foldwire_bootstrap::Exchange;

/// Set in the child.
const CHILD: &str = "FOLDWIRE_TEST_CHILD";

/// Whether this process was started by [`Pipes::parent`].
pub fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Rank 0 is the parent, rank 1 the child.
pub struct Pipes {
    rank: u32,
    from: Box<dyn Read>,
    to: Box<dyn Write>,
}

impl Pipes {
    /// Starts this program again with these arguments, as rank 1.
    pub fn parent(args: &[&str]) -> io::Result<(Self, Child)> {
        let mut child = Command::new(env::current_exe()?)
            .args(args)
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::other("the child has no pipes");
        let to: ChildStdin = child.stdin.take().ok_or_else(missing)?;
        let from: ChildStdout = child.stdout.take().ok_or_else(missing)?;
        Ok((Self { rank: 0, from: Box::new(from), to: Box::new(to) }, child))
    }

    /// Rank 1, in a child.
    pub fn child() -> Self {
        Self { rank: 1, from: Box::new(io::stdin()), to: Box::new(io::stdout()) }
    }
}

impl Exchange for Pipes {
    type Error = io::Error;

    fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    fn size(&self) -> usize {
        2
    }

    fn all_gather(&mut self, mine: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        // In hexadecimal and marked, since a test harness prints to the same pipe.
        let digits: String = mine.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.to, "\n#{digits}#")?;
        self.to.flush()?;
        let mut line = Vec::new();
        let theirs = loop {
            line.clear();
            loop {
                let mut byte = [0];
                self.from.read_exact(&mut byte)?;
                if byte == [b'\n'] {
                    break;
                }
                line.push(byte[0]);
            }
            let text = String::from_utf8_lossy(&line).into_owned();
            if let Some(digits) = text.strip_prefix('#').and_then(|text| text.strip_suffix('#')) {
                let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16);
                let bytes: Result<Vec<u8>, _> = (0..digits.len()).step_by(2).map(byte).collect();
                break bytes.map_err(io::Error::other)?;
            }
        };
        Ok(if self.rank == 0 { vec![mine.to_vec(), theirs] } else { vec![theirs, mine.to_vec()] })
    }
}
