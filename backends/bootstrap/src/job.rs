//! Identity of a job, so that two jobs that run at the same time do not mix.
//!
//! Two jobs may use the same port, and without a token they share the empty secret. Each rank
//! therefore sends its job's identity when it connects, and rank 0 refuses ranks of other jobs.
//!
//! | source | the identity is a hash of |
//! |---|---|
//! | `FOLDWIRE_JOB` | a name from the user or from `foldwire launch` |
//! | a launcher | its variables that name the job ([`Place`](crate::Place)) |
//! | MPICH's launcher on one machine, which names no job | process id and start time of `hydra_pmi_proxy`, which started all ranks |
//! | `FOLDWIRE_ROOT` alone | nothing: the user guarantees that no other job has this address |
//!
//! A group of several ranks without any of these sources is refused
//! ([`PlaceError::JobUnknown`](crate::PlaceError::JobUnknown)).

use std::fmt;
use std::fs;

use sha2::{Digest, Sha256};

/// Bytes of a job's identity.
pub const JOB_BYTES: usize = 16;

/// Number of further ports to try if another program listens at the first.
const N_SPARE_PORTS: u64 = 3;
/// Derived ports lie below the ephemeral ports that systems assign (from 32768).
const FIRST_PORT: u64 = 20_000;
const N_PORTS: u64 = 9_000;

/// Number of ancestor processes to search.
const MAX_ANCESTORS: usize = 64;

/// The job that a rank belongs to. Equal on all ranks of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    id: [u8; JOB_BYTES],
    /// True if no address was given, so that rank 0 may listen at a spare port.
    chooses_port: bool,
}

impl Job {
    /// The job at an address that no other job uses.
    #[must_use]
    pub fn at_given_root() -> Self {
        Self { id: [0; JOB_BYTES], chooses_port: false }
    }

    /// The job with these names, at a given address.
    #[must_use]
    pub fn named(names: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for name in names {
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name);
        }
        let digest: [u8; 32] = hash.finalize().into();
        let mut id = [0; JOB_BYTES];
        id.copy_from_slice(&digest[..JOB_BYTES]);
        Self { id, chooses_port: false }
    }

    /// The same job at a port derived from its identity.
    pub(crate) fn choosing_port(self) -> Self {
        Self { chooses_port: true, ..self }
    }

    /// The identity that messages carry.
    #[must_use]
    pub const fn id(&self) -> [u8; JOB_BYTES] {
        self.id
    }

    /// Returns whether rank 0 may listen at a spare port.
    pub(crate) const fn chooses_port(&self) -> bool {
        self.chooses_port
    }

    /// The first derived port: equal on all ranks, and most likely different for another job.
    pub(crate) fn port(&self) -> u16 {
        self.derived_port(0)
    }

    /// Spare ports. If rank 0 cannot listen at `port`, it listens at one of these instead, or
    /// reports there why it cannot listen.
    ///
    /// At a given address they depend on `port` too, because jobs at different addresses may have
    /// the same identity.
    pub(crate) fn spare_ports(&self, port: u16) -> impl Iterator<Item = u16> {
        let first = if self.chooses_port { 0 } else { u64::from(port) << 8 };
        let (job, n) = (*self, N_SPARE_PORTS);
        (1..=n).map(move |nth| job.derived_port(first + nth)).filter(move |&spare| spare != port)
    }

    fn derived_port(&self, nth: u64) -> u16 {
        let mut hash = Sha256::new();
        hash.update(self.id);
        hash.update(nth.to_le_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let word = digest.first_chunk().copied().map_or(0, u64::from_le_bytes);
        (FIRST_PORT + word % N_PORTS) as u16
    }
}

/// First four bytes of an identity, for messages to users.
pub(crate) fn short(id: &[u8; JOB_BYTES]) -> u32 {
    let [a, b, c, d, ..] = *id;
    u32::from_be_bytes([a, b, c, d])
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", short(&self.id))
    }
}

/// Returns process id and start time of the nearest ancestor with this name. Together they are
/// unique on this machine since it was started. `None` if there is no such ancestor, or no `/proc`.
pub(crate) fn ancestor(name: &str) -> Option<String> {
    let mut process = "self".to_owned();
    for _ in 0..MAX_ANCESTORS {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name is in parentheses and may itself contain parentheses.
        let (head, rest) = stat.rsplit_once(") ")?;
        let (number, found) = head.split_once(" (")?;
        // `rest` begins with field 3. Field 4 is the parent, and field 22 the start time (proc(5)).
        let mut fields = rest.split(' ');
        let parent = fields.nth(1)?;
        if found == name {
            return Some(format!("{number} {}", fields.nth(17)?));
        }
        process = parent.to_owned();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_the_same_joined_text_are_different_jobs() {
        let jobs = [&["a", "b"][..], &["ab"], &["a", "b", ""], &["", "ab"], &[]].map(Job::named);
        for (at, job) in jobs.iter().enumerate() {
            assert!(jobs[at + 1..].iter().all(|other| other.id != job.id), "{at}");
        }
        assert_eq!(Job::named(&["a", "b"]), jobs[0]);
        assert_ne!(jobs[4].id, Job::at_given_root().id);
    }

    #[test]
    fn ports_depend_on_the_job_and_lie_below_the_ephemeral_ports() {
        let job = Job::named(&["a"]).choosing_port();
        let ports: Vec<_> = job.spare_ports(job.port()).chain([job.port()]).collect();
        assert!(ports.len() > 1 && ports.iter().all(|port| (20_000..29_000).contains(port)));
        assert_ne!(job.port(), Job::named(&["b"]).port());
        let given = Job::at_given_root();
        assert!(given.spare_ports(80).ne(given.spare_ports(81)), "they depend on the address too");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn ancestors_are_found_by_name() {
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        let start = ancestor(own.trim_end()).unwrap();
        let (number, start) = start.split_once(' ').unwrap();
        assert_eq!(number, std::process::id().to_string());
        assert!(start.parse::<u64>().is_ok_and(|ticks| ticks > 0), "{start}");
        assert_eq!(ancestor("no process has this name"), None);
    }
}
