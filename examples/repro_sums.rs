//! Reproducible sums beside other sums: times of one and of 1000 sums, over threads.
//!
//! Run: `cargo run --release -p foldwire-examples --example repro_sums [RANKS [GBIT]]`. With GBIT,
//! each rank has an emulated link of so many Gbit/s and 20 µs.
//!
//! Codes that need reproducible sums often make two all-reduces: one finds the largest exponents,
//! the other adds integers ([`by_hand`]). The rows compare that with `repro_sums`, and both with
//! two plain all-reduces of local sums, which are not reproducible. The last table has the local
//! part alone.

use foldwire::{Communicator, ExactSum, Op, Plan, Summands};
use foldwire_threads::{Endpoint, World};
use std::hint::black_box;
use std::time::{Duration, Instant};

const PLAN: Plan = Plan::raw();

/// Returns the median time of `body`, in microseconds, of runs that take about `work` values.
fn median(work: usize, mut body: impl FnMut()) -> f64 {
    let n_runs = if cfg!(test) { 1 } else { (20_000_000 / work.max(10_000)).max(5) };
    let mut times: Vec<Duration> = (0..n_runs + n_runs / 10)
        .map(|_| {
            let start = Instant::now();
            body();
            start.elapsed()
        })
        .skip(n_runs / 10)
        .collect();
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

/// Values of all signs between 1e-4 and 1e4.
fn values(n: usize) -> Vec<f64> {
    let mut state = 1u64;
    let mut unit = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..n).map(|_| (unit() - 0.5) * 10f64.powf(unit() * 8.0 - 4.0)).collect()
}

/// Sums the rows of `values` as codes do by hand: all ranks agree on the largest magnitude of each
/// row, round the values to multiples of 2⁻⁶² of it, in two integers, and add those. This is
/// reproducible, but not exact, and ∞ and NaN are not handled.
fn by_hand(comm: &mut Communicator<Endpoint>, values: &[f64], sums: &mut [f64]) {
    let n_values = values.len() / sums.len();
    for (largest, row) in sums.iter_mut().zip(values.chunks(n_values)) {
        *largest = row.iter().fold(0.0, |all, x| if x.abs() > all { x.abs() } else { all });
    }
    comm.all_reduce(sums, Op::Max, &PLAN).expect("a maximum");
    let exponent = |largest: f64| (largest.to_bits() >> 52).clamp(100, 1900);
    let power_of_two = |biased: u64| f64::from_bits(biased << 52);
    let unit = f64::from(1 << 31);
    let mut integers = vec![[0i64; 2]; sums.len()];
    for ((integers, row), &largest) in integers.iter_mut().zip(values.chunks(n_values)).zip(&*sums)
    {
        let scale = power_of_two(2046 - exponent(largest));
        for x in row {
            let scaled = x * scale * (unit / 2.0);
            let upper = scaled as i64;
            integers[0] += upper;
            integers[1] += ((scaled - upper as f64) * unit) as i64;
        }
    }
    comm.all_reduce(integers.as_flattened_mut(), Op::Sum, &PLAN).expect("a sum");
    for (sum, [upper, lower]) in sums.iter_mut().zip(integers) {
        let scale = power_of_two(exponent(*sum)) / (unit / 2.0);
        *sum = (upper as f64 + lower as f64 / unit) * scale;
    }
}

/// Times `n_sums` sums of `n_values` values on each rank. Returns microseconds of two plain
/// all-reduces of local sums, of sums by hand, and of reproducible sums.
fn times(comm: &mut Communicator<Endpoint>, n_sums: usize, n_values: usize) -> [f64; 3] {
    let values = values(n_sums * n_values);
    let mut sums = vec![0.0; n_sums];
    let plain = median(n_sums * n_values, || {
        for (sum, row) in sums.iter_mut().zip(values.chunks(n_values)) {
            *sum = row.iter().sum();
        }
        comm.all_reduce(&mut sums, Op::Sum, &PLAN).expect("a sum");
        comm.all_reduce(&mut sums, Op::Max, &PLAN).expect("a maximum");
    });
    let exact = median(n_sums * n_values, || {
        if n_sums == 1 {
            sums[0] = comm.repro_sum(&values).expect("a sum");
        } else {
            comm.repro_sums(Summands::Rows(&values), &mut sums, &PLAN).expect("sums");
        }
    });
    let by_hand = median(n_sums * n_values, || by_hand(comm, &values, &mut sums));
    [plain, by_hand, exact]
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|number| number.parse::<f64>().ok());
    let n_ranks = arguments.next().unwrap_or(2.0) as usize;
    report(n_ranks, arguments.next());
}

/// Prints the tables, without or with links of this many Gbit/s.
fn report(n_ranks: usize, rate: Option<f64>) {
    println!("sums  values/rank  two all-reduces, us  by hand, us  reproducible, us");
    let of_one = [(1, 1), (1, 100), (1, 1_000_000)];
    let of_many =
        [(2, 2), (8, 1), (8, 100), (16, 10), (100, 1), (100, 100), (1000, 1), (1000, 100)];
    for (n_sums, n_values) in of_one.into_iter().chain(of_many) {
        let mut world = World::new(n_ranks);
        if let Some(rate) = rate {
            world = world.link_rate(rate * 125e6).link_latency(Duration::from_micros(20));
        }
        let all = world.run(|mut comm| times(&mut comm, n_sums, n_values));
        let [plain, by_hand, exact] = all[0];
        println!("{n_sums:4}  {n_values:11}  {plain:19.2}  {by_hand:11.2}  {exact:16.2}");
    }
    println!("\nlocal part, ns/value: plain sum, ExactSum");
    for n in [10, 100, 1000, 100_000, if cfg!(test) { 1 } else { 10_000_000 }] {
        let values = values(n);
        let plain = median(n, || {
            black_box(black_box(&values).iter().sum::<f64>());
        });
        let exact = median(n, || {
            let mut sum = ExactSum::new();
            sum.add_all(black_box(&values));
            black_box(sum.to_f64());
        });
        let each = 1000.0 / n as f64;
        println!("{n:8}  {:6.3}  {:6.3}", plain * each, exact * each);
    }
}

#[test]
fn the_tables_are_printed() {
    report(3, None);
}

#[test]
fn sums_by_hand_are_close() {
    let all = World::new(2).run(|mut comm| {
        let values = values(3000);
        let mut sums = [[0.0; 3]; 2];
        by_hand(&mut comm, &values, &mut sums[0]);
        comm.repro_sums(Summands::Rows(&values), &mut sums[1], &PLAN).expect("sums");
        sums
    });
    for (close, exact) in all[0][0].into_iter().zip(all[0][1]) {
        assert!((close - exact).abs() < 1e-9 * exact.abs(), "{close} {exact}");
    }
}
