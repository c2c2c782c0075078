//! How ranks find each other before they have a network: who they are, and what the others' addresses are.

mod exchange;

pub use exchange::Exchange;
