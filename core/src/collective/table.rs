//! The collectives, one row each, for every type whose methods they are.

/// Calls `$methods` with all rows. A row is `name / start_name [buffers] (argument: kind, …) =
/// |own| call;`, where `own` is the calling rank. Kinds: `send` is read; `recv` and `data` are
/// written, and `data` read as well; the others are what they are called.
macro_rules! each_collective {
    ($methods:ident) => {
        $methods! {
            /// `data` becomes the reduction of all ranks' `data`, the same bits on every rank.
            all_reduce / start_all_reduce [in_place data] (data: data, op: op) = |_own| {
                Call::new(Collective::AllReduce, data.len()).op(op).in_place(data)
            };

            /// As [`all_reduce`](Self::all_reduce), from `send` into `recv` of the same length.
            all_reduce_into / start_all_reduce_into [split send recv]
                (send: send, recv: recv, op: op) = |_own| {
                Call::new(Collective::AllReduce, send.len()).op(op).split(send, recv)
            };

            /// `recv` becomes this rank's share of the reduction of all ranks' `send`.
            reduce_scatter / start_reduce_scatter [split send recv]
                (send: send, recv: recv, op: op) = |_own| {
                Call::new(Collective::ReduceScatter, send.len()).op(op).split(send, recv)
            };

            /// This rank's share of `data` becomes the reduction of all ranks' `data`; the rest is
            /// unchanged, or rounded where the plan rounds without bias.
            reduce_scatter_in_place / start_reduce_scatter_in_place [in_place data]
                (data: data, op: op) = |_own| {
                Call::new(Collective::ReduceScatter, data.len()).op(op).in_place(data)
            };

            /// As [`reduce_scatter_in_place`](Self::reduce_scatter_in_place), with the result at
            /// the front of `data`, where MPI leaves it; the rest may be anything.
            reduce_scatter_to_front / start_reduce_scatter_to_front [in_place data]
                (data: data, op: op) = |_own| {
                let call = Call::new(Collective::ReduceScatter, data.len());
                call.op(op).in_place(data).in_front()
            };

            /// `recv` becomes this rank's share of the reduction of all ranks' `send`, where that
            /// of rank r has `counts[r]` values. All ranks give the same `counts`.
            reduce_scatter_v / start_reduce_scatter_v [split send recv]
                (send: send, recv: recv, counts: counts, op: op) = |_own| {
                let shares = Shares::Given(counts);
                Call::new(Collective::ReduceScatter, 0).shares(shares).op(op).split(send, recv)
            };

            /// As [`reduce_scatter_v`](Self::reduce_scatter_v), into this rank's share of `data`;
            /// the rest is unchanged, or rounded where the plan rounds without bias.
            reduce_scatter_v_in_place / start_reduce_scatter_v_in_place [in_place data]
                (data: data, counts: counts, op: op) = |_own| {
                let shares = Shares::Given(counts);
                Call::new(Collective::ReduceScatter, 0).shares(shares).op(op).in_place(data)
            };

            /// As [`reduce_scatter_v_in_place`](Self::reduce_scatter_v_in_place), with the result
            /// at the front of `data`, where MPI leaves it; the rest may be anything.
            reduce_scatter_v_to_front / start_reduce_scatter_v_to_front [in_place data]
                (data: data, counts: counts, op: op) = |_own| {
                let call = Call::new(Collective::ReduceScatter, 0);
                call.shares(Shares::Given(counts)).op(op).in_place(data).in_front()
            };

            /// `recv` becomes the concatenation of all ranks' `send`, which are shares of
            /// `recv.len()` values (equally long if that is a multiple of the size). The same bits
            /// on every rank.
            all_gather / start_all_gather [split send recv] (send: send, recv: recv) = |_own| {
                Call::new(Collective::AllGather, recv.len()).split(send, recv)
            };

            /// As [`all_gather`](Self::all_gather), from this rank's share of `data`.
            all_gather_in_place / start_all_gather_in_place [in_place data] (data: data) = |_own| {
                Call::new(Collective::AllGather, data.len()).in_place(data)
            };

            /// `recv` becomes the concatenation of all ranks' `send`, of which that of rank r has
            /// `counts[r]` values. The same bits on every rank. All ranks give the same `counts`.
            all_gather_v / start_all_gather_v [split send recv]
                (send: send, recv: recv, counts: counts) = |_own| {
                let shares = Shares::Given(counts);
                Call::new(Collective::AllGather, 0).shares(shares).split(send, recv)
            };

            /// As [`all_gather_v`](Self::all_gather_v), from this rank's share of `data`.
            all_gather_v_in_place / start_all_gather_v_in_place [in_place data]
                (data: data, counts: counts) = |_own| {
                Call::new(Collective::AllGather, 0).shares(Shares::Given(counts)).in_place(data)
            };

            /// `data` becomes the root's `data`, the same bits on every rank, the root's included.
            broadcast / start_broadcast [in_place data] (data: data, root: root) = |_own| {
                Call::new(Collective::Broadcast, data.len()).root(root).in_place(data)
            };

            /// What the root may call in place of [`broadcast`](Self::broadcast), while the others
            /// call that with this rank as the root: `data` are only read. Unless the codec is
            /// exact, the root's values then differ from the others', by the bound at most.
            broadcast_from / start_broadcast_from [read_only data] (data: send) = |own| {
                Call::new(Collective::Broadcast, data.len()).root(own).read_only(data)
            };

            /// `recv` becomes this rank's share of the root's `send` of `count` values; `send` is
            /// not looked at elsewhere and may be empty.
            scatter / start_scatter [split send recv]
                (count: count, send: send, recv: recv, root: root) = |_own| {
                Call::new(Collective::Scatter, count).root(root).split(send, recv)
            };

            /// The root's `recv` of `count` values becomes the concatenation of all ranks' `send`,
            /// which are shares; `recv` is not touched elsewhere and may be empty.
            gather / start_gather [split send recv]
                (count: count, send: send, recv: recv, root: root) = |_own| {
                Call::new(Collective::Gather, count).root(root).split(send, recv)
            };

            /// As [`scatter`](Self::scatter), where the share of rank r has `counts[r]` values. All
            /// ranks give the same `counts`.
            scatter_v / start_scatter_v [split send recv]
                (counts: counts, send: send, recv: recv, root: root) = |_own| {
                let shares = Shares::Given(counts);
                Call::new(Collective::Scatter, 0).shares(shares).root(root).split(send, recv)
            };

            /// As [`gather`](Self::gather), where the share of rank r has `counts[r]` values. All
            /// ranks give the same `counts`.
            gather_v / start_gather_v [split send recv]
                (counts: counts, send: send, recv: recv, root: root) = |_own| {
                let shares = Shares::Given(counts);
                Call::new(Collective::Gather, 0).shares(shares).root(root).split(send, recv)
            };

            /// The root's `recv` becomes the reduction of all ranks' `send`; `recv` is not touched
            /// elsewhere and may be empty.
            reduce / start_reduce [split send recv]
                (send: send, recv: recv, op: op, root: root) = |_own| {
                Call::new(Collective::Reduce, send.len()).op(op).root(root).split(send, recv)
            };

            /// The root's `data` becomes the reduction of all ranks' `data`; elsewhere it is
            /// unchanged.
            reduce_in_place / start_reduce_in_place [in_place data]
                (data: data, op: op, root: root) = |_own| {
                Call::new(Collective::Reduce, data.len()).op(op).root(root).in_place(data)
            };

            /// `data` becomes the reduction of this rank's `data` and of those of all ranks before
            /// it.
            scan / start_scan [in_place data] (data: data, op: op) = |_own| {
                Call::new(Collective::Scan, data.len()).op(op).in_place(data)
            };

            /// As [`scan`](Self::scan), from `send` into `recv` of the same length.
            scan_into / start_scan_into [split send recv]
                (send: send, recv: recv, op: op) = |_own| {
                Call::new(Collective::Scan, send.len()).op(op).split(send, recv)
            };

            /// `data` becomes the reduction of the `data` of all ranks before this one; that of
            /// rank 0 is unchanged.
            exclusive_scan / start_exclusive_scan [in_place data] (data: data, op: op) = |_own| {
                Call::new(Collective::ExclusiveScan, data.len()).op(op).in_place(data)
            };

            /// As [`exclusive_scan`](Self::exclusive_scan), from `send` into `recv` of the same
            /// length; that of rank 0 is not touched and may be empty.
            exclusive_scan_into / start_exclusive_scan_into [split send recv]
                (send: send, recv: recv, op: op) = |_own| {
                Call::new(Collective::ExclusiveScan, send.len()).op(op).split(send, recv)
            };

            /// Each rank sends its share r of `send` to rank r; `recv` becomes the concatenation of
            /// what all ranks have for this one, by their ranks. `send` is as long on every rank,
            /// and `recv` has room for as many shares as there are ranks. What a rank has for
            /// itself is copied as it is.
            all_to_all / start_all_to_all [split send recv] (send: send, recv: recv) = |_own| {
                Call::new(Collective::AllToAll, send.len()).split(send, recv)
            };

            /// As [`all_to_all`](Self::all_to_all), from `data` into `data`, whose length is a
            /// multiple of the size.
            all_to_all_in_place / start_all_to_all_in_place [in_place data] (data: data) = |_own| {
                Call::new(Collective::AllToAll, data.len()).in_place(data)
            };

            /// As [`all_to_all`](Self::all_to_all): `send` has `send_counts[r]` values for rank r,
            /// and `recv` room for `recv_counts[r]` values from it, one after the other by rank.
            /// What one rank sends to another must be as many as that expects.
            all_to_all_v / start_all_to_all_v [split send recv]
                (send: send, send_counts: counts, recv: recv, recv_counts: counts) = |_own| {
                let shares = Shares::Exchanged { send: send_counts, recv: recv_counts };
                Call::new(Collective::AllToAll, 0).shares(shares).split(send, recv)
            };
        }
    };
}

/// The type of an argument of this kind that is borrowed: a buffer for the first lifetime, what
/// says what is to be done with it for the second.
macro_rules! borrowed {
    ($lent:lifetime $said:lifetime, $value:ident, data) => { &$lent mut [$value] };
    ($lent:lifetime $said:lifetime, $value:ident, recv) => { &$lent mut [$value] };
    ($lent:lifetime $said:lifetime, $value:ident, send) => { &$lent [$value] };
    ($lent:lifetime $said:lifetime, $value:ident, op) => { crate::op::Op<$said, $value> };
    ($lent:lifetime $said:lifetime, $value:ident, root) => { crate::transport::Rank };
    ($lent:lifetime $said:lifetime, $value:ident, count) => { usize };
    ($lent:lifetime $said:lifetime, $value:ident, counts) => { &$said [usize] };
}

/// What the documentation of a method says that starts what another does.
macro_rules! starts {
    ($name:ident) => {
        concat!("Starts what [`", stringify!($name), "`](Self::", stringify!($name), ") does.")
    };
}

pub(crate) use {borrowed, each_collective, starts};
