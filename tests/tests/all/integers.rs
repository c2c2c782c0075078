//! Integers: every type, every schedule, disagreements, and frames that no integer encoder makes.

use foldwire::codec::CodecId;
use foldwire::error::Field;
use foldwire::frame::{CallHeader, Header, MessageKind};
use foldwire::transport::Tag;
use foldwire::{
    Bound, Call, Collective, Communicator, DType, Element, Error, Op, Plan, Rank,
    SharedCommunicator, Transport, schedule,
};
use foldwire_tests::integers::all_calls;
use foldwire_tests::{Threads, data};
use foldwire_threads::World;
use std::task::Poll;
use std::time::Duration;

const SIZES: [usize; 5] = [1, 2, 3, 5, 8];

/// Makes all calls of each type, among as many ranks as `sizes` returns for it: the types have
/// numbers from 0 to 7.
fn every_type<const N: usize>(sizes: impl Fn(usize) -> [usize; N]) {
    let backend = Threads { frame_bytes: Some(8192) };
    let calls = [
        all_calls::<i8, Threads>,
        all_calls::<u8, Threads>,
        all_calls::<i16, Threads>,
        all_calls::<u16, Threads>,
        all_calls::<i32, Threads>,
        all_calls::<u32, Threads>,
        all_calls::<i64, Threads>,
        all_calls::<u64, Threads>,
    ];
    for (nth, all_calls) in calls.into_iter().enumerate() {
        sizes(nth).into_iter().for_each(|size| all_calls(&backend, size));
    }
}

#[test]
fn every_type_is_moved_and_reduced_exactly_by_every_schedule() {
    every_type(|nth| [3, SIZES[nth % SIZES.len()]]);
}

/// Operations on the bits of integers, each with its definition for two values.
macro_rules! bit_ops {
    ($integer:ty) => {{
        let truth = |is_true: bool| <$integer>::from(is_true);
        let ops: [(Op<'_, $integer>, &(dyn Fn($integer, $integer) -> $integer + Sync)); 6] = [
            (Op::BIT_AND, &|a, b| a & b),
            (Op::BIT_OR, &|a, b| a | b),
            (Op::BIT_XOR, &|a, b| a ^ b),
            (Op::LOGICAL_AND, &move |a, b| truth(a != 0 && b != 0)),
            (Op::LOGICAL_OR, &move |a, b| truth(a != 0 || b != 0)),
            (Op::LOGICAL_XOR, &move |a, b| truth((a != 0) != (b != 0))),
        ];
        check_bit_ops(&ops);
    }};
}

/// An operation, and its definition.
type Defined<'a, T> = (Op<'a, T>, &'a (dyn Fn(T, T) -> T + Sync));

/// Reduces by each of the operations with every schedule, and compares with their definitions.
/// The bound of the plan does not apply.
fn check_bit_ops<T: Element>(ops: &[Defined<'_, T>]) {
    const COUNT: usize = 203;
    let lossy = Plan::foldwire(Bound::Relative(0.1));
    for size in [2, 3, 5] {
        let values = |rank: usize| {
            let mut random = data::Random(rank as u64 + 7);
            // A third are 0, and a third have one of two bits.
            let value = |i: usize| [0, 1 << (random.bits() % 2), random.bits()][i % 3];
            (0..COUNT).map(value).map(data::from_bits::<T>).collect::<Vec<T>>()
        };
        World::new(size).run(|mut comm| {
            let rank = comm.rank().index();
            for (op, define) in ops {
                let reduced = |ranks: std::ops::Range<usize>| {
                    let combine = |a: Vec<T>, b: Vec<T>| {
                        a.into_iter().zip(b).map(|(a, b)| define(a, b)).collect()
                    };
                    ranks.map(values).reduce(combine).expect("a rank")
                };
                for schedule in schedule::ALL {
                    let plan = lossy.with_schedule(*schedule);
                    if schedule.supports(Collective::AllReduce) {
                        let mut all = values(rank);
                        comm.all_reduce(&mut all, *op, &plan).expect("a reduction");
                        assert_eq!(all, reduced(0..size), "{}", schedule.name());
                    }
                    if schedule.supports(Collective::Scan) {
                        let mut scan = values(rank);
                        comm.scan(&mut scan, *op, &plan).expect("a scan");
                        assert_eq!(scan, reduced(0..rank + 1), "{}", schedule.name());
                    }
                }
            }
        });
    }
}

#[test]
fn bits_and_truth_are_combined_by_every_schedule() {
    bit_ops!(u8);
    bit_ops!(i16);
    bit_ops!(u64);
}

#[test]
fn ranks_with_other_operations_on_bits_hear_of_it() {
    let results = World::new(2).run(|mut comm| {
        let op = if comm.rank() == Rank(0) { Op::BIT_AND } else { Op::LOGICAL_AND };
        comm.all_reduce(&mut [7_u32; 100], op, &Plan::raw()).map(drop)
    });
    for (rank, result) in results.into_iter().enumerate() {
        let Err(Error::Mismatch { field: Field::Op, .. }) = result else {
            panic!("rank {rank}: {result:?}");
        };
        let said = result.unwrap_err().to_string();
        assert!(said.contains("bitwise and") && said.contains("logical and"), "{said}");
    }
}

/// Slow tests. When one fails, a faster test usually fails too.
mod long {
    use super::*;

    #[test]
    fn every_type_is_moved_and_reduced_exactly_among_any_number_of_ranks() {
        every_type(|_| SIZES);
    }
}

#[test]
fn calls_at_once_in_groups_and_in_a_queue_take_integers() {
    let lossy = Plan::foldwire(Bound::Relative(0.1));
    World::new(3).run_endpoints(|endpoint| {
        let comm = SharedCommunicator::new(endpoint, 2).expect("there are channels");
        let mine = |i: usize| vec![comm.rank().0 as i64 + i as i64; 50_000];
        let [a, b] = [0, 1].map(|i| comm.start(Call::all_reduce(mine(i), Op::Sum), &lossy));
        let [a, b] = [a, b].map(|call| call.expect("a call").wait().into_result().expect("sums").0);
        assert!(a == vec![3; 50_000] && b == vec![6; 50_000]);

        let (mut long, mut short) = (mine(2), [i64::from(comm.rank().0); 3]);
        let bound = Bound::Relative(0.1);
        let arrays = &mut [(&mut long[..], bound), (&mut short[..], bound)];
        let reports = comm.all_reduce_group(arrays, Op::Max, &lossy).expect("a group");
        assert!(long == vec![4; 50_000] && short == [2; 3], "{reports:?}");
        assert!(reports.iter().all(|report| report.worst_case == Some(0.0)));
    });
    World::new(2).run_endpoints(|endpoint| {
        let mut comm = Communicator::new(endpoint).expect("frames are large enough");
        let mut sum = vec![200_u8; 1000];
        comm.run(Call::all_reduce(&mut sum, Op::Sum), &lossy).expect("a sum");
        assert!(sum == vec![144; 1000], "modulo 256");
    });
}

#[test]
fn ranks_with_other_signs_hear_of_it() {
    let ends = World::new(2).run(|mut comm| match comm.rank() {
        Rank(0) => comm.all_reduce(&mut [1_i32; 10], Op::Sum, &Plan::raw()),
        _ => comm.all_reduce(&mut [1_u32; 10], Op::Sum, &Plan::raw()),
    });
    for (end, words) in ends.into_iter().zip([["i32", "u32"], ["u32", "i32"]]) {
        let Err(Error::Mismatch { field: Field::Type, ours, theirs, .. }) = end else {
            panic!("{end:?}")
        };
        assert_eq!([ours.to_string(), theirs.to_string()], words);
    }
}

#[test]
fn what_a_plan_says_of_a_bound_need_not_agree_for_integers() {
    let sums = World::new(3).run(|mut comm| {
        let plan = Plan::foldwire(Bound::Absolute(f64::from(comm.rank().0 + 1)));
        let mut data = vec![u64::MAX; 5000];
        let report = comm.all_reduce(&mut data, Op::Sum, &plan).expect("one exact sum");
        assert_eq!((report.bound, report.worst_case), (0.0, Some(0.0)));
        data::digest(&data)
    });
    assert_eq!(sums, [data::digest(&[u64::MAX - 2; 5000]); 3]);
}

/// The message claims that it was compressed within a bound.
#[test]
fn a_compressed_message_of_integers_is_damaged() {
    let ends = World::new(2).run(|mut comm: Communicator<_>| {
        comm.config_mut().timeout = Duration::from_secs(20);
        if comm.rank() == Rank(1) {
            return comm.recv(&mut [0_i32; 8], Rank(0), 3).map(|_| ());
        }
        let call = CallHeader {
            codec: CodecId::FzLight,
            dtype: DType::I32,
            count: 8,
            step: 1.0,
            root: 1,
            ..CallHeader::of_no_call(0, 0)
        };
        let header = Header {
            kind: MessageKind::Message,
            call,
            as_floats: false,
            from: Rank(0),
            part: 3,
            round: 0,
            n_values: 8,
            n_bytes: 8 * i32::BYTES as u32,
            operands: 1,
        };
        let transport = comm.transport_mut();
        let Poll::Ready(Ok(mut frame)) = transport.poll_frame() else { panic!("no frame") };
        header.emit(frame.as_mut(), false);
        let n_bytes = foldwire::frame::HEADER_BYTES + 32;
        transport.send(Rank(1), Tag(0), frame, n_bytes).expect("room");
        comm.barrier().map(|_| ())
    });
    assert!(matches!(ends[1], Err(Error::Frame { rank: Rank(0), .. })), "{:?}", ends[1]);
    assert!(ends[0].is_err());
}
