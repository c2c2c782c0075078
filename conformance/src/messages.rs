//! Messages between two ranks: between all pairs of ranks, several at once, in any order.

use crate::data::{self, Random};
use crate::suite::{Make, PATIENT};
use crate::{Backend, with_type};
use foldwire::{
    Bound, Communicator, DType, Error, Float, Incoming, Op, Outgoing, Plan, Rank, Rows, Transport,
};

/// Number of messages from each rank to each rank in an exchange.
const PER_PAIR: usize = 2;

/// Sends some arrays from every rank to every rank, itself included, with each plan, between
/// collective calls.
pub(crate) fn messages(make: &Make<'_>, size: usize) {
    for (seed, &dtype) in DType::FLOATS.iter().enumerate() {
        let frame_bytes = [Some(20_000), None][seed % 2];
        let backend = make(frame_bytes);
        let outcomes = backend.run(size, |mut comm| {
            comm.config_mut().timeout = PATIENT;
            with_type!(dtype, T => {
                exchange_with_all::<T, _>(&mut comm, seed)?;
                pass_columns::<T, _>(&mut comm)?;
                pass_around::<T, _>(&mut comm)
            })
        });
        for (rank, outcome) in backend.ranks(size).zip(outcomes) {
            assert_eq!(outcome, Ok(()), "{size} ranks, {dtype}: rank {rank}");
        }
    }
}

fn exchange_with_all<T: Float, X: Transport>(
    comm: &mut Communicator<X>,
    seed: usize,
) -> Result<(), Error> {
    let (rank, size) = (comm.rank().index(), comm.size());
    let bound = if T::BYTES == 2 { 0.1 } else { 1e-3 };
    let plans = [
        Plan::foldwire(Bound::Absolute(bound)),
        Plan::raw(),
        // Exact below 200 bytes.
        Plan::foldwire(Bound::Relative(1e-2)).with_exact_below(200),
    ];
    for (round, plan) in plans.iter().enumerate() {
        let mut random = Random((seed * plans.len() + round) as u64);
        let mut lens = vec![0; size * size * PER_PAIR];
        lens.fill_with(|| *random.pick(&[0, 1, 40, 4097, 30_011]));
        let nth = |from: usize, to: usize, n: usize| (from * size + to) * PER_PAIR + n;
        let values = |nth: usize| data::smooth::<T>(nth, lens[nth]);
        let all = |of: &dyn Fn(usize, usize) -> usize| -> Vec<(usize, usize)> {
            let each = (0..size).flat_map(|peer| (0..PER_PAIR).map(move |n| (peer, n)));
            each.map(|(peer, n)| (peer, of(peer, n))).collect()
        };
        let sent: Vec<_> = all(&|to, n| nth(rank, to, n));
        let sent: Vec<_> = sent.into_iter().map(|(to, nth)| (to, nth, values(nth))).collect();
        let mut got: Vec<_> = all(&|from, n| nth(from, rank, n))
            .into_iter()
            .map(|(from, nth)| (from, nth, vec![T::ZERO; lens[nth]]))
            .collect();
        // List the receives in a different order than their peers list the sends.
        got.reverse();
        let outgoing =
            sent.iter().map(|(to, nth, data)| Outgoing::new(Rank::new(*to), *nth as u32, data));
        let incoming = got
            .iter_mut()
            .map(|(from, nth, data)| Incoming::new(Rank::new(*from), *nth as u32, data));
        let (mut outgoing, mut incoming) =
            (outgoing.collect::<Vec<_>>(), incoming.collect::<Vec<_>>());
        let report = comm.exchange(&mut outgoing, &mut incoming, plan)?;
        drop((outgoing, incoming));
        for (from, nth, data) in &got {
            let want = values(*nth);
            let is_exact = *from == rank || plan.bound.is_none();
            for (got, want) in data.iter().zip(&want) {
                let off = (got.to_f64() - want.to_f64()).abs();
                let most = if is_exact { 0.0 } else { report.bound };
                assert!(off <= most, "round {round}, from {from}: {want:?} became {got:?}");
            }
        }
        let n_sent: usize =
            sent.iter().filter(|sent| sent.0 != rank).map(|sent| sent.2.len()).sum();
        assert_eq!(report.raw_bytes, (n_sent * T::BYTES) as u64);
        assert!(report.n_messages as usize >= (size - 1) * PER_PAIR, "{report:?}");
        // A collective call in between does not receive any of the messages.
        let sum = comm.all_reduce_scalar(T::from_f64(1.0), Op::Sum)?;
        assert_eq!(sum.to_f64(), size as f64);
    }
    Ok(())
}

/// Passes an array around from rank 0. Each rank forwards what it received.
fn pass_around<T: Float, X: Transport>(comm: &mut Communicator<X>) -> Result<(), Error> {
    let (rank, size) = (comm.rank().index(), comm.size());
    let plan = Plan::foldwire(Bound::Absolute(0.1));
    let start = data::smooth::<T>(1, 50_000);
    let mut data = vec![T::ZERO; start.len()];
    let (before, after) = (Rank::new((rank + size - 1) % size), Rank::new((rank + 1) % size));
    if rank == 0 {
        let send = Outgoing::new(after, 5, &start);
        comm.send_recv(send, Incoming::new(before, 5, &mut data), &plan)?;
    } else {
        comm.recv(&mut data, before, 5)?;
        comm.send(&data, after, 5, &plan)?;
    }
    // Each rank encodes again what it decoded. That changes no value, so errors do not add up.
    for (got, want) in data.iter().zip(&start) {
        let off = (got.to_f64() - want.to_f64()).abs();
        assert!(off <= 0.1, "{want:?} became {got:?} on its way to rank {rank}");
    }
    Ok(())
}

/// Sends the first columns of a matrix from each rank to the next, row by row. The receiver stores
/// the values in rows of another length, with gaps between them. The result equals that of the same
/// values sent as one block.
fn pass_columns<T: Float, X: Transport>(comm: &mut Communicator<X>) -> Result<(), Error> {
    let (rank, size) = (comm.rank().index(), comm.size());
    let [after, before] = [rank + 1, rank + size - 1].map(|rank| Rank::new(rank % size));
    let bound = if T::BYTES == 2 { 0.1 } else { 1e-3 };
    let plans = [Plan::raw(), Plan::foldwire(Bound::Relative(bound))];
    // A face of a grid with many short rows, one with few long rows, and rows without gaps.
    let faces = [(4001, 3, 7), (2, 9000, 9001), (5, 20, 20)];
    for (plan, (n_rows, n_columns, stride)) in plans.iter().flat_map(|p| faces.map(|f| (p, f))) {
        let from = Rows { n_rows, n_columns, stride };
        let into = Rows { n_rows: n_columns, n_columns: n_rows, stride: n_rows + 2 };
        let matrix = data::smooth::<T>(rank, (n_rows - 1) * stride + n_columns);
        let block: Vec<T> =
            matrix.chunks(stride).flat_map(|row| &row[..n_columns]).copied().collect();
        let mut apart = vec![T::ONE; (n_columns - 1) * (n_rows + 2) + n_rows];
        let mut together = vec![T::ZERO; block.len()];
        comm.exchange(
            &mut [Outgoing::of_rows(after, 1, &matrix, from), Outgoing::new(after, 2, &block)],
            &mut [
                Incoming::of_rows(before, 1, &mut apart, into),
                Incoming::new(before, 2, &mut together),
            ],
            plan,
        )?;
        for (row, want) in apart.chunks(n_rows + 2).zip(together.chunks(n_rows)) {
            let (values, between) = row.split_at(n_rows);
            assert_eq!(data::bits(values), data::bits(want), "columns that came to rank {rank}");
            assert!(between.iter().all(|x| *x == T::ONE), "what lies between rows is unchanged");
        }
        assert!(together.iter().any(|x| *x != T::ZERO), "something was sent");
    }
    Ok(())
}
