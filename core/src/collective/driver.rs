//! The functions that drive calls and compute for them: [`instances`](crate::instances) keeps
//! them.

use super::operands::Operands;
use super::resolved::Resolved;
use super::underway::Underway;
use super::{Communicator, Request};
use crate::element::{Element, each_type};
use crate::engine::{Coding, Work};
use crate::error::Error;
use crate::handle::Step;
use crate::plan::Plan;
use crate::transport::Transport;

macro_rules! computing {
    ($($type:ty)*) => {
        /// Computing, of each type.
        #[expect(dead_code, missing_debug_implementations, reason = "there to be compiled")]
        pub struct Computing($(Computes<$type>),*);

        /// The functions of all types.
        pub static COMPUTING: Computing = Computing($(Computes::<$type> { _by: |work| work }),*);
    };
}

struct Computes<T: Element> {
    _by: for<'w> fn(&'w Work<'w, 'w, T>) -> &'w dyn Operands,
}

each_type!(computing);

/// The functions that drive a call over a transport.
pub(crate) struct Driver<X: Transport> {
    _start: Start<X>,
    _start_prepared: StartPrepared<X>,
    _advance: Advance<X>,
    _give_up: fn(&mut Underway<'static>, &mut Communicator<X>, Option<&Error>),
}

type Start<X> = fn(
    &mut Communicator<X>,
    Request<'static>,
    &mut dyn Operands,
    &Plan,
) -> Result<Underway<'static>, Error>;

type StartPrepared<X> =
    fn(&mut Communicator<X>, Request<'static>, (&Resolved<'static>, &Coding)) -> Underway<'static>;

type Advance<X> =
    fn(&mut Underway<'static>, &mut Communicator<X>, &mut dyn Operands) -> Result<Step, Error>;

impl<X: Transport> Driver<X> {
    pub(crate) const NEW: Self = Self {
        _start: Underway::start,
        _start_prepared: Underway::start_prepared,
        _advance: Underway::advance,
        _give_up: Underway::give_up,
    };
}
