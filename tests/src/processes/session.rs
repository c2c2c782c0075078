//! Processes that find each other through the bootstrap, and helpers that start them.

use foldwire::Rank;
use foldwire_bootstrap::{Error, Exchange, Rendezvous, Session};
use std::cell::RefCell;
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::rc::Rc;

/// A bootstrap session that outlives the endpoint that it sets up.
#[derive(Clone)]
pub struct SharedSession(Rc<RefCell<Session>>);

impl SharedSession {
    /// Shares a session.
    #[must_use]
    pub fn new(session: Session) -> Self {
        Self(Rc::new(RefCell::new(session)))
    }
}

impl Exchange for SharedSession {
    type Error = Error;

    fn rank(&self) -> Rank {
        self.0.borrow().rank()
    }

    fn size(&self) -> usize {
        self.0.borrow().size()
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.0.borrow_mut().all_gather(mine)
    }

    fn poll_lost(&mut self) -> Option<Rank> {
        self.0.borrow_mut().poll_lost()
    }
}

impl SharedSession {
    /// Joins the session that this process's environment describes.
    ///
    /// # Panics
    /// If the ranks cannot connect.
    #[must_use]
    pub fn join() -> Self {
        let session = Rendezvous::from_env().and_then(Rendezvous::join);
        Self::new(session.unwrap_or_else(|error| panic!("cannot join the session: {error}")))
    }
}

/// Gathers each rank's words, in rank order.
pub(super) fn gather(session: &SharedSession, own: Vec<u64>) -> Vec<u64> {
    let mine: Vec<u8> = own.iter().flat_map(|word| word.to_le_bytes()).collect();
    let all = session.clone().all_gather(&mine).expect("all ranks take part").concat();
    let words = all.chunks_exact(8).map(|bytes| bytes.try_into().expect("eight bytes"));
    words.map(u64::from_le_bytes).collect()
}

/// Runs `program` with these arguments as `n` ranks. Returns each rank's process ID and output, in
/// rank order.
///
/// # Panics
/// If the program cannot be started.
#[must_use]
pub fn launch(program: &str, words: &[&str], n: usize) -> Vec<(u32, Output)> {
    // A port that was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let root = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let start = |rank: usize| -> Child {
        Command::new(program)
            .args(words)
            .env("FOLDWIRE_RANK", rank.to_string())
            .env("FOLDWIRE_SIZE", n.to_string())
            .env("FOLDWIRE_ROOT", &root)
            .env("RUST_BACKTRACE", "0")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program")
    };
    let children: Vec<Child> = (0..n).map(start).collect();
    let end = |child: Child| (child.id(), child.wait_with_output().expect("an end"));
    children.into_iter().map(end).collect()
}

/// Formats each rank's exit status and output.
#[must_use]
pub fn text(outputs: &[(u32, Output)]) -> String {
    let ranks = outputs.iter().enumerate().map(|(rank, (_, output))| {
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("rank {rank}: {}\n{said}{errors}", output.status)
    });
    ranks.collect::<Vec<_>>().join("\n")
}
