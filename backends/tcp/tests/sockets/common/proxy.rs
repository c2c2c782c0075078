//! Proxy between two ranks that forwards their bytes and then injects a fault.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

/// Fault that the proxy injects after a number of bytes from the connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyFault {
    /// Closes both connections, as if a process ended.
    Close,
    /// Resets both connections.
    Reset,
    /// Closes one direction only.
    CloseOneWay,
    /// Forwards nothing more, as if a process were stopped.
    Freeze,
    /// Inserts bytes.
    Insert,
    /// Repeats bytes.
    Repeat,
    /// Leaves bytes out.
    LeaveOut,
    /// Flips bits.
    Flip,
    /// Forwards nothing for a while and then continues, which must do no harm.
    Pause,
}

/// Length of a pause.
pub(crate) const PAUSE: Duration = Duration::from_millis(300);

impl ProxyFault {
    /// All faults that end calls.
    pub(crate) const ALL: [Self; 8] = [
        Self::Close,
        Self::Reset,
        Self::CloseOneWay,
        Self::Freeze,
        Self::Insert,
        Self::Repeat,
        Self::LeaveOut,
        Self::Flip,
    ];
}

/// Forwards connections to `to`, and injects the fault once, after `n_bytes` from the connector on
/// any connection. Returns the proxy's address.
pub(crate) fn start(to: SocketAddr, fault: ProxyFault, n_bytes: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let state = Arc::new(ProxyState {
        left: AtomicUsize::new(n_bytes),
        is_done: AtomicBool::new(false),
        fault,
    });
    thread::spawn(move || {
        for from in listener.incoming().flatten() {
            let Ok(to) = TcpStream::connect(to) else { return };
            let (from2, to2) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let state2 = Arc::clone(&state);
            let state = Arc::clone(&state);
            thread::spawn(move || state.forward(from, to, true));
            thread::spawn(move || state2.forward(to2, from2, false));
        }
    });
    address
}

struct ProxyState {
    /// Bytes from the connector that are forwarded before the fault.
    left: AtomicUsize,
    /// The fault was injected.
    is_done: AtomicBool,
    fault: ProxyFault,
}

impl ProxyState {
    /// Forwards until the end of the connection. Bytes count towards the fault if `counts`.
    fn forward(&self, mut from: TcpStream, mut to: TcpStream, counts: bool) {
        let mut bytes = [0; 4096];
        while let Ok(n_bytes @ 1..) = from.read(&mut bytes) {
            if self.is_done.load(Ordering::Acquire) && self.fault == ProxyFault::Freeze {
                thread::sleep(Duration::from_secs(60));
            }
            let left = if counts { self.take(n_bytes) } else { None };
            let Some(n_before) = left else {
                if to.write_all(&bytes[..n_bytes]).is_err() {
                    break;
                }
                continue;
            };
            let _ = to.write_all(&bytes[..n_before]);
            let rest = &mut bytes[n_before..n_bytes];
            let _ = match self.fault {
                ProxyFault::Close => break,
                ProxyFault::Reset => {
                    for socket in [&from, &to] {
                        SockRef::from(socket).set_linger(Some(Duration::ZERO)).unwrap();
                    }
                    // The other direction's thread holds clones, which it closes when its read
                    // ends.
                    let _ = to.shutdown(Shutdown::Both);
                    return;
                }
                ProxyFault::CloseOneWay => {
                    let _ = to.shutdown(Shutdown::Write);
                    thread::sleep(Duration::from_secs(60));
                    return;
                }
                ProxyFault::Freeze => {
                    thread::sleep(Duration::from_secs(60));
                    return;
                }
                ProxyFault::Insert => to.write_all(&[0x5a; 100]).and_then(|()| to.write_all(rest)),
                ProxyFault::Repeat => {
                    to.write_all(rest).and_then(|()| to.write_all(&rest[..rest.len().min(100)]))
                }
                ProxyFault::Pause => {
                    thread::sleep(PAUSE);
                    to.write_all(rest)
                }
                ProxyFault::LeaveOut => to.write_all(&rest[rest.len().min(100)..]),
                ProxyFault::Flip => {
                    rest.iter_mut().take(20).for_each(|byte| *byte ^= 0x11);
                    to.write_all(rest)
                }
            };
        }
        let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
    }

    /// Counts bytes. Returns the number of bytes before the fault, if it falls within them.
    fn take(&self, n_bytes: usize) -> Option<usize> {
        let before = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| {
            Some(left.saturating_sub(n_bytes))
        });
        let before = before.unwrap_or(0);
        let is_due = before < n_bytes && !self.is_done.swap(true, Ordering::AcqRel);
        is_due.then_some(before)
    }
}
