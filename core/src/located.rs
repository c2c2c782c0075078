//! Extremes and where they are, as `MPI_MAXLOC` and `MPI_MINLOC` find them.
//!
//! One all-reduce finds the extreme of each place. A second one finds the smallest index among the
//! ranks that have it. Both are operations of the library, so every schedule can do them, and
//! loops are vectorized. A pair of a value and an index would need one all-reduce, but an element
//! of 16 bytes, too.

use crate::collective::{Call, Communicator};
use crate::element::Element;
use crate::error::Error;
use crate::op::Op;
use crate::plan::Plan;
use crate::report::Report;
use crate::shared::SharedCommunicator;
use crate::shared::located::{check_indices, discard};
use crate::transport::Transport;
use alloc::vec::Vec;

/// Writes the methods into an `impl`. They take `&self`, or `&mut self` if the argument is `mut`.
macro_rules! methods {
    ($($mutable:ident)?) => {
        /// Finds the largest of all ranks' values at each place, and where it is: `values` receive
        /// the largest ones, and `indices` the index that a rank passed with it. If several ranks
        /// have it, that is the smallest index.
        ///
        /// NaN is larger than all other values, and 0 than −0. The call is exact: two all-reduces.
        ///
        /// # Errors
        /// [`Error::Length`] if there are not as many indices as values. Otherwise as
        /// [`all_reduce`](Self::all_reduce).
        ///
        /// # Examples
        /// ```
        /// # use foldwire::{Communicator, Error, Transport};
        /// /// Returns the largest temperature of each layer, and the rank that has it.
        /// fn hottest<X: Transport>(
        ///     comm: &mut Communicator<X>, mut layers: [f64; 3],
        /// ) -> Result<([f64; 3], [i64; 3]), Error> {
        ///     let mut ranks = [i64::from(comm.rank().0); 3];
        ///     comm.max_loc(&mut layers, &mut ranks)?;
        ///     Ok((layers, ranks))
        /// }
        /// ```
        pub fn max_loc<T: Element>(
            &$($mutable)? self, values: &mut [T], indices: &mut [i64],
        ) -> Result<Report, Error> {
            self.locate(values, indices, Op::Max)
        }

        /// Finds the smallest of all ranks' values at each place, and where it is. Otherwise as
        /// [`max_loc`](Self::max_loc), but NaN is smaller than all other values.
        ///
        /// # Errors
        /// As [`max_loc`](Self::max_loc).
        pub fn min_loc<T: Element>(
            &$($mutable)? self, values: &mut [T], indices: &mut [i64],
        ) -> Result<Report, Error> {
            self.locate(values, indices, Op::Min)
        }

        fn locate<T: Element>(
            &$($mutable)? self, values: &mut [T], indices: &mut [i64], op: Op<'_, T>,
        ) -> Result<Report, Error> {
            check_indices(values, indices)?;
            let own: Vec<T> = values.to_vec();
            self.in_turn(|calls| {
                let mut report = calls.run(Call::all_reduce(&mut *values, op), &Plan::raw())?;
                discard(&own, values, indices);
                report += calls.run(Call::all_reduce(&mut *indices, Op::Min), &Plan::raw())?;
                Ok(report)
            })
        }
    };
}

impl<X: Transport> Communicator<X> {
    methods!(mut);
}

impl<'a, X: Transport + 'a> SharedCommunicator<'a, X> {
    methods!();
}
