//! Methods that all communicators have, written once: those named after collectives, which run the
//! [`Call`](crate::Call) of their name, the barrier, and messages between two ranks.

/// Writes the methods into an `impl`. They take `&self`, or `&mut self` if the argument is `mut`.
macro_rules! named_methods {
    ($($mutable:ident)?) => {
        /// Runs [`Call::all_reduce`](crate::Call::all_reduce).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn all_reduce<T: Element>(
            &$($mutable)? self, data: &mut [T], op: Op<'_, T>, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::all_reduce(data, op), plan)
        }

        /// Runs [`Call::all_reduce_into`](crate::Call::all_reduce_into).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn all_reduce_into<T: Element>(
            &$($mutable)? self, send: &[T], recv: &mut [T], op: Op<'_, T>, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::all_reduce_into(send, recv, op), plan)
        }

        /// Runs [`Call::reduce_scatter`](crate::Call::reduce_scatter).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn reduce_scatter<T: Element>(
            &$($mutable)? self, send: &[T], recv: &mut [T], op: Op<'_, T>, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::reduce_scatter(send, recv, op), plan)
        }

        /// Runs [`Call::reduce_scatter_in_place`](crate::Call::reduce_scatter_in_place).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn reduce_scatter_in_place<T: Element>(
            &$($mutable)? self, data: &mut [T], op: Op<'_, T>, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::reduce_scatter_in_place(data, op), plan)
        }

        /// Runs [`Call::reduce_scatter_to_front`](crate::Call::reduce_scatter_to_front).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn reduce_scatter_to_front<T: Element>(
            &$($mutable)? self, data: &mut [T], op: Op<'_, T>, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::reduce_scatter_to_front(data, op), plan)
        }

        /// Runs [`Call::reduce_scatter_v`](crate::Call::reduce_scatter_v).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn reduce_scatter_v<T: Element>(
            &$($mutable)? self, send: &[T], recv: &mut [T], counts: &[usize], op: Op<'_, T>,
            plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::reduce_scatter_v(send, recv, counts, op), plan)
        }

        /// Runs [`Call::reduce_scatter_v_in_place`](crate::Call::reduce_scatter_v_in_place).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn reduce_scatter_v_in_place<T: Element>(
            &$($mutable)? self, data: &mut [T], counts: &[usize], op: Op<'_, T>, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::reduce_scatter_v_in_place(data, counts, op), plan)
        }

        /// Runs [`Call::reduce_scatter_v_to_front`](crate::Call::reduce_scatter_v_to_front).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn reduce_scatter_v_to_front<T: Element>(
            &$($mutable)? self, data: &mut [T], counts: &[usize], op: Op<'_, T>, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::reduce_scatter_v_to_front(data, counts, op), plan)
        }

        /// Runs [`Call::all_gather`](crate::Call::all_gather).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn all_gather<T: Element>(
            &$($mutable)? self, send: &[T], recv: &mut [T], plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::all_gather(send, recv), plan)
        }

        /// Runs [`Call::all_gather_in_place`](crate::Call::all_gather_in_place).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn all_gather_in_place<T: Element>(
            &$($mutable)? self, data: &mut [T], plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::all_gather_in_place(data), plan)
        }

        /// Runs [`Call::all_gather_v`](crate::Call::all_gather_v).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn all_gather_v<T: Element>(
            &$($mutable)? self, send: &[T], recv: &mut [T], counts: &[usize], plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::all_gather_v(send, recv, counts), plan)
        }

        /// Runs [`Call::all_gather_v_in_place`](crate::Call::all_gather_v_in_place).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn all_gather_v_in_place<T: Element>(
            &$($mutable)? self, data: &mut [T], counts: &[usize], plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::all_gather_v_in_place(data, counts), plan)
        }

        /// Runs [`Call::broadcast`](crate::Call::broadcast).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn broadcast<T: Element>(
            &$($mutable)? self, data: &mut [T], root: Rank, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::broadcast(data, root), plan)
        }

        /// Runs [`Call::broadcast_from`](crate::Call::broadcast_from).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn broadcast_from<T: Element>(
            &$($mutable)? self, data: &[T], plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::broadcast_from(data), plan)
        }

        /// Runs [`Call::scatter`](crate::Call::scatter).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn scatter<T: Element>(
            &$($mutable)? self, count: usize, send: &[T], recv: &mut [T], root: Rank, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::scatter(count, send, recv, root), plan)
        }

        /// Runs [`Call::scatter_v`](crate::Call::scatter_v).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn scatter_v<T: Element>(
            &$($mutable)? self, counts: &[usize], send: &[T], recv: &mut [T], root: Rank,
            plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::scatter_v(counts, send, recv, root), plan)
        }

        /// Runs [`Call::gather`](crate::Call::gather).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn gather<T: Element>(
            &$($mutable)? self, count: usize, send: &[T], recv: &mut [T], root: Rank, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::gather(count, send, recv, root), plan)
        }

        /// Runs [`Call::gather_v`](crate::Call::gather_v).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn gather_v<T: Element>(
            &$($mutable)? self, counts: &[usize], send: &[T], recv: &mut [T], root: Rank,
            plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::gather_v(counts, send, recv, root), plan)
        }

        /// Runs [`Call::gather_in_place`](crate::Call::gather_in_place).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn gather_in_place<T: Element>(
            &$($mutable)? self, data: &mut [T], plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::gather_in_place(data), plan)
        }

        /// Runs [`Call::gather_v_in_place`](crate::Call::gather_v_in_place).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn gather_v_in_place<T: Element>(
            &$($mutable)? self, data: &mut [T], counts: &[usize], plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::gather_v_in_place(data, counts), plan)
        }

        /// Runs [`Call::reduce`](crate::Call::reduce).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn reduce<T: Element>(
            &$($mutable)? self, send: &[T], recv: &mut [T], op: Op<'_, T>, root: Rank, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::reduce(send, recv, op, root), plan)
        }

        /// Runs [`Call::reduce_in_place`](crate::Call::reduce_in_place).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn reduce_in_place<T: Element>(
            &$($mutable)? self, data: &mut [T], op: Op<'_, T>, root: Rank, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::reduce_in_place(data, op, root), plan)
        }

        /// Runs [`Call::scan`](crate::Call::scan).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn scan<T: Element>(
            &$($mutable)? self, data: &mut [T], op: Op<'_, T>, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::scan(data, op), plan)
        }

        /// Runs [`Call::scan_into`](crate::Call::scan_into).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn scan_into<T: Element>(
            &$($mutable)? self, send: &[T], recv: &mut [T], op: Op<'_, T>, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::scan_into(send, recv, op), plan)
        }

        /// Runs [`Call::exclusive_scan`](crate::Call::exclusive_scan).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn exclusive_scan<T: Element>(
            &$($mutable)? self, data: &mut [T], op: Op<'_, T>, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::exclusive_scan(data, op), plan)
        }

        /// Runs [`Call::exclusive_scan_into`](crate::Call::exclusive_scan_into).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn exclusive_scan_into<T: Element>(
            &$($mutable)? self, send: &[T], recv: &mut [T], op: Op<'_, T>, plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::exclusive_scan_into(send, recv, op), plan)
        }

        /// Runs [`Call::all_to_all`](crate::Call::all_to_all).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn all_to_all<T: Element>(
            &$($mutable)? self, send: &[T], recv: &mut [T], plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::all_to_all(send, recv), plan)
        }

        /// Runs [`Call::all_to_all_in_place`](crate::Call::all_to_all_in_place).
        ///
        /// # Errors
        /// As [`run`](Self::run).
        pub fn all_to_all_in_place<T: Element>(
            &$($mutable)? self, data: &mut [T], plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::all_to_all_in_place(data), plan)
        }

        /// Runs [`Call::all_to_all_v`](crate::Call::all_to_all_v).
        ///
        /// # Errors
        /// [`Error::OwnCount`] if this rank's counts for itself differ. Otherwise as
        /// [`run`](Self::run).
        pub fn all_to_all_v<T: Element>(
            &$($mutable)? self, send: &[T], send_counts: &[usize], recv: &mut [T],
            recv_counts: &[usize], plan: &Plan,
        ) -> Result<Report, Error> {
            self.run(Call::all_to_all_v(send, send_counts, recv, recv_counts), plan)
        }

        /// Waits until all ranks have called this.
        ///
        /// # Errors
        /// Any [`Error`], after which the communicator is unusable.
        pub fn barrier(&$($mutable)? self) -> Result<Report, Error> {
            // Even an empty reduction cannot finish before all ranks have begun it.
            self.all_reduce::<f32>(&mut [], Op::Max, &Plan::raw())
        }

        /// Reduces all ranks' `value` exactly. All ranks get the same bits.
        ///
        /// # Errors
        /// Any [`Error`]. The communicator stays usable after a [usage error](Error::is_usage).
        pub fn all_reduce_scalar<T: Element>(
            &$($mutable)? self, value: T, op: Op<'_, T>,
        ) -> Result<T, Error> {
            let mut values = [value];
            self.all_reduce(&mut values, op, &Plan::raw())?;
            Ok(values[0])
        }

        /// Sends values to a rank, which must [receive](Self::recv) the same number of values of
        /// this type with this tag. Returns when the values have left this rank, which does not
        /// mean that they have arrived.
        ///
        /// The sender alone chooses the bound. A relative bound refers to these values. A message
        /// uses the plan's codec and bound, and sends short arrays uncompressed
        /// ([`Plan::with_exact_below`]).
        ///
        /// # Errors
        /// Any [`Error`]. The communicator stays usable after a [usage error](Error::is_usage).
        ///
        /// # Examples
        /// ```
        /// use foldwire::{Bound, Communicator, Error, Plan, Rank, Transport};
        ///
        /// fn pass_on<X: Transport>(
        ///     comm: &mut Communicator<X>,
        ///     field: &mut [f32],
        /// ) -> Result<(), Error> {
        ///     let (rank, size) = (comm.rank().index(), comm.size());
        ///     if rank > 0 {
        ///         comm.recv(field, Rank::new(rank - 1), 7)?;
        ///     }
        ///     if rank + 1 < size {
        ///         let plan = Plan::foldwire(Bound::Relative(1e-4));
        ///         comm.send(field, Rank::new(rank + 1), 7, &plan)?;
        ///     }
        ///     Ok(())
        /// }
        /// ```
        pub fn send<T: Element>(
            &$($mutable)? self, data: &[T], to: Rank, tag: u32, plan: &Plan,
        ) -> Result<Report, Error> {
            self.exchange(&mut [Outgoing::new(to, tag, data)], &mut [], plan)
        }

        /// Receives the values that a rank [sends](Self::send) with this tag. The report holds the
        /// sender's bound.
        ///
        /// # Errors
        /// Any [`Error`]. The communicator stays usable after a [usage error](Error::is_usage).
        pub fn recv<T: Element>(
            &$($mutable)? self, data: &mut [T], from: Rank, tag: u32,
        ) -> Result<Report, Error> {
            self.exchange(&mut [], &mut [Incoming::new(from, tag, data)], &Plan::raw())
        }

        /// Sends one array and receives another, side by side, as when values are shifted along a
        /// ring.
        ///
        /// # Errors
        /// Any [`Error`]. The communicator stays usable after a [usage error](Error::is_usage).
        pub fn send_recv<'d, T: Element>(
            &$($mutable)? self, send: Outgoing<'d, T>, recv: Incoming<'d, T>, plan: &Plan,
        ) -> Result<Report, Error> {
            self.exchange(&mut [send], &mut [recv], plan)
        }
    };
}

pub(crate) use named_methods;
