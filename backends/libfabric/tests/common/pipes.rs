//! Processes connected by pipes: rank 0 starts this program again for each other rank. This is the
//! smallest real [`Exchange`]. It detects a rank that has failed.

#![allow(unreachable_pub, dead_code, reason = "tests and examples use only parts of it")]

use std::cell::RefCell;
use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use foldwire::Rank;
use foldwire_bootstrap::Exchange;

/// Environment variable of the children: their rank and the number of ranks.
const CHILD: &str = "FOLDWIRE_TEST_CHILD";

/// Connection to another process. Messages are lines of hexadecimal digits between marks, since the
/// test harness prints to the same pipe.
struct Pipe {
    from: Box<dyn Read>,
    to: Box<dyn Write>,
}

impl Pipe {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let digits: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(self.to, "\n#{digits}#")?;
        self.to.flush()
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let mut line = Vec::new();
            let mut byte = [0];
            while byte != [b'\n'] {
                self.from.read_exact(&mut byte)?;
                line.extend_from_slice(&byte);
            }
            let text = String::from_utf8_lossy(&line);
            let digits = text.trim().strip_prefix('#').and_then(|text| text.strip_suffix('#'));
            if let Some(digits) = digits {
                let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16);
                let bytes: Result<_, _> = (0..digits.len()).step_by(2).map(byte).collect();
                return bytes.map_err(io::Error::other);
            }
        }
    }
}

/// Kills its process if the test fails before the process ends.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        // A killed rank leaves this file of libfabric's `shm`. It would hinder a later process with
        // the same id.
        let _ = fs::remove_file(format!("/dev/shm/{}:0:0", self.0.id()));
    }
}

/// The pipes of this process, shared by an endpoint and its test.
#[derive(Clone)]
pub struct SharedPipes(Rc<RefCell<Pipes>>);

impl SharedPipes {
    /// As [`Pipes::open`].
    pub fn open(size: u32, args: &[&str]) -> io::Result<Self> {
        Ok(Self(Rc::new(RefCell::new(Pipes::open(size, args)?))))
    }

    /// As [`Pipes::wait`].
    pub fn wait(&self) -> io::Result<Vec<Rank>> {
        self.0.borrow_mut().wait()
    }
}

impl Exchange for SharedPipes {
    type Error = io::Error;

    fn rank(&self) -> Rank {
        self.0.borrow().rank()
    }

    fn size(&self) -> usize {
        self.0.borrow().size()
    }

    fn all_gather(&mut self, mine: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.0.borrow_mut().all_gather(mine)
    }

    fn poll_lost(&mut self) -> Option<Rank> {
        self.0.borrow_mut().poll_lost()
    }
}

/// The pipes of one process. Rank 0 has one to each other rank; each other rank has one to rank 0.
pub struct Pipes {
    rank: u32,
    size: u32,
    pipes: Vec<Pipe>,
    /// The processes of ranks 1, 2, …, until they end.
    children: Vec<Option<ChildGuard>>,
}

impl Pipes {
    /// In a child, opens its pipe to rank 0. Otherwise this process is rank 0: it starts this
    /// program again with these arguments as ranks 1 … `size` − 1.
    pub fn open(size: u32, args: &[&str]) -> io::Result<Self> {
        if let Ok(child) = env::var(CHILD) {
            let bad = || io::Error::other("unexpected environment");
            let (rank, size) = child.split_once('/').ok_or_else(bad)?;
            let pipe = Pipe { from: Box::new(io::stdin()), to: Box::new(io::stdout()) };
            let parse = |text: &str| text.parse().map_err(io::Error::other);
            let (rank, size) = (parse(rank)?, parse(size)?);
            return Ok(Self { rank, size, pipes: vec![pipe], children: Vec::new() });
        }
        let (mut pipes, mut children) = (Vec::new(), Vec::new());
        for rank in 1..size {
            let mut child = Command::new(env::current_exe()?)
                .args(args)
                .env(CHILD, format!("{rank}/{size}"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let missing = || io::Error::other("the child has no pipes");
            let to = Box::new(child.stdin.take().ok_or_else(missing)?);
            let from = Box::new(child.stdout.take().ok_or_else(missing)?);
            pipes.push(Pipe { from, to });
            children.push(Some(ChildGuard(child)));
        }
        Ok(Self { rank: 0, size, pipes, children })
    }

    /// Waits for the other processes. Returns the ranks that failed.
    pub fn wait(&mut self) -> io::Result<Vec<Rank>> {
        self.pipes.clear();
        let mut failed = Vec::new();
        for (child, rank) in self.children.iter_mut().zip(1..) {
            if let Some(mut child) = child.take()
                && !child.0.wait()?.success()
            {
                failed.push(Rank(rank));
            }
        }
        Ok(failed)
    }
}

impl Exchange for Pipes {
    type Error = io::Error;

    fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    fn size(&self) -> usize {
        self.size as usize
    }

    fn all_gather(&mut self, mine: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        if self.rank > 0 {
            let pipe = &mut self.pipes[0];
            pipe.send(mine)?;
            return (0..self.size).map(|_| pipe.receive()).collect();
        }
        let mut all = vec![mine.to_vec()];
        for pipe in &mut self.pipes {
            all.push(pipe.receive()?);
        }
        for pipe in &mut self.pipes {
            all.iter().try_for_each(|message| pipe.send(message))?;
        }
        Ok(all)
    }

    fn poll_lost(&mut self) -> Option<Rank> {
        for (child, rank) in self.children.iter_mut().zip(1..) {
            let status = child.as_mut().and_then(|child| child.0.try_wait().ok().flatten());
            if let Some(status) = status {
                *child = None;
                if !status.success() {
                    return Some(Rank(rank));
                }
            }
        }
        None
    }
}
