//! Tables of the functions that drive calls and compute for them. A table makes the compiler emit
//! its functions in the crate that defines it ([`instances`](crate::instances)).

use super::call_state::CallState;
use super::operands::Operands;
use super::resolved::{Preparation, Resolved};
use super::{Communicator, Request};
use crate::element::{Element, each_type};
use crate::engine::{Coding, Work};
use crate::error::Error;
use crate::handle::Progress;
use crate::plan::Plan;
use crate::transport::Transport;

macro_rules! computing {
    ($($type:ty)*) => {
        /// Functions that compute on values, for each element type.
        #[expect(dead_code, missing_debug_implementations, reason = "exists to be compiled")]
        pub struct Computing($(Computes<$type>),*);

        /// A table for all element types, which makes the compiler emit their functions in this
        /// crate.
        pub static COMPUTING: Computing = Computing($(Computes::<$type> { _by: |work| work }),*);
    };
}

struct Computes<T: Element> {
    _by: for<'w> fn(&'w Work<'w, 'w, T>) -> &'w dyn Operands,
}

each_type!(computing);

/// Functions that drive a call over a transport.
pub(crate) struct Driver<X: Transport> {
    _start: StartFn<X>,
    _start_prepared: StartPreparedFn<X>,
    _advance: AdvanceFn<X>,
    _give_up: GiveUpFn<X>,
}

type StartFn<X> = fn(
    &mut Communicator<X>,
    Request<'static>,
    &mut dyn Operands,
    &Plan,
) -> Result<CallState<'static>, Error>;

type StartPreparedFn<X> = fn(
    &mut Communicator<X>,
    Request<'static>,
    (&Resolved<'static>, &Coding),
    &Preparation,
) -> CallState<'static>;

type GiveUpFn<X> =
    fn(&mut CallState<'static>, &mut Communicator<X>, Option<&mut dyn Operands>, Option<&Error>);

type AdvanceFn<X> =
    fn(&mut CallState<'static>, &mut Communicator<X>, &mut dyn Operands) -> Result<Progress, Error>;

impl<X: Transport> Driver<X> {
    pub(crate) const NEW: Self = Self {
        _start: CallState::start,
        _start_prepared: CallState::start_prepared,
        _advance: CallState::advance,
        _give_up: CallState::give_up,
    };
}
