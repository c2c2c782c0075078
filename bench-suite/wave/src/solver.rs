//! The acoustic wave equation ∂²p/∂t² = v²∇²p + s by explicit finite differences, in single
//! precision.
//!
//! Second order in time, eighth order in space, on a cubic grid of points `[y][z][x]` (x
//! contiguous):
//!
//! ```text
//! next = g·(2·now − g·last + (v·dt/h)²·L(now))
//! ```
//!
//! L is the sum of three 9-point second derivatives. g is 1 inside and falls smoothly towards the
//! faces in a sponge, which damps outgoing waves. Cerjan et al. (Geophysics 50, 1985) multiply two
//! fields by g after each step: the new one, and the one before it. The formula contains both
//! factors. The outer g is that of the new field. The inner g is the second factor of `last`, which
//! got its first one when it was the new field. So no second pass over memory is necessary.
//!
//! The time step is a fixed fraction of the stability limit dt ≤ 2h / (v_max·√(3·Σ|c_k|)), computed
//! from the stencil's coefficients.
//!
//! No wave is faster than the highest velocity. A step therefore computes only the points in the
//! ball around the source that a wave can have reached. Values outside the ball would only be
//! numerical dispersion, and many of them subnormal numbers, which are slow. Each output value
//! depends on the previous fields alone, in a fixed order of operations. Results therefore depend
//! neither on the number of threads, which compute whole shots, nor on the division of a grid among
//! ranks.
//!
//! Cost: about 70 flops per point and step, and 16 bytes of memory traffic per point and pass. A
//! pass makes several steps.

use std::f32::consts::PI;
use std::ops::Range;

use foldwire::kernel::{Level, at_level};
use foldwire::layout::share;
use rayon::prelude::*;

/// Reach of the stencil in points. The grid has a border of this width that stays zero.
const HALO: usize = 4;

/// Second derivative of eighth order: coefficients of the centre, then of both neighbours at
/// distances 1…4.
const STENCIL: [f32; HALO + 1] = [-205.0 / 72.0, 8.0 / 5.0, -1.0 / 5.0, 8.0 / 315.0, -1.0 / 560.0];

/// Time step as a fraction of the stability limit.
const CFL: f32 = 0.9;

/// Margin in points around the ball that the fastest wave has reached, the same in each step. It
/// holds the wavelet's onset and dispersion.
const MARGIN: f32 = 8.0;

/// Distance from the source, in points, at which the direct wave has a peak of 1 on any grid. At r
/// points, a source of strength s gives p = s/(4πr), so s is 4π times this distance.
const REFERENCE: f32 = 100.0;

/// Number of values of a row that are computed together. Their sums stay in the first-level cache.
const CHUNK: usize = 256;

/// Steps per pass over memory. Their planes fit in a core's share of the last-level cache.
pub(super) const STEPS_PER_PASS: usize = 4;

/// The medium of the waves: a grid of velocities, surrounded by a sponge and a halo of zeros.
#[derive(Debug)]
pub(crate) struct Medium {
    /// Points along y, z, x, with sponge and halo.
    shape: [usize; 3],
    /// Points between a face of the grid and the interior: sponge and halo.
    border: usize,
    /// (v·dt/h)² of each point.
    courant2: Vec<f32>,
    /// Damping factors along y, z, x. The product of three is g.
    damping: [Vec<f32>; 3],
    /// Seconds per step.
    pub(super) dt: f32,
    /// Points that the fastest wave travels in one step.
    reach_per_step: f32,
}

impl Medium {
    /// A medium of `interior` points along y, z and x, `h` metres apart, with `sponge` more points
    /// on each side. `velocity` returns the velocity in m/s at an interior point. Points of the
    /// sponge use the nearest interior point.
    pub(super) fn new(
        interior: [usize; 3],
        sponge: usize,
        h: f32,
        velocity: impl Fn([usize; 3]) -> f32 + Sync,
    ) -> Self {
        let border = sponge + HALO;
        let shape = interior.map(|n| n + 2 * border);
        let [_, nz, nx] = shape;
        let nearest = |at: usize, axis: usize| at.saturating_sub(border).min(interior[axis] - 1);
        let mut field = vec![0.0_f32; shape.iter().product()];
        field.par_chunks_mut(nz * nx).enumerate().for_each(|(y, plane)| {
            for (z, row) in plane.chunks_mut(nx).enumerate() {
                for (x, value) in row.iter_mut().enumerate() {
                    *value = velocity([nearest(y, 0), nearest(z, 1), nearest(x, 2)]);
                }
            }
        });
        let v_max = field.iter().copied().fold(0.0, f32::max);
        let weights = STENCIL[0].abs() + 2.0 * STENCIL[1..].iter().map(|c| c.abs()).sum::<f32>();
        let dt = CFL * 2.0 * h / (v_max * (3.0 * weights).sqrt());
        field.par_iter_mut().for_each(|value| *value = (*value * dt / h).powi(2));
        Self {
            shape,
            border,
            courant2: field,
            damping: shape.map(|n| damping(n, sponge)),
            dt,
            reach_per_step: v_max * dt / h,
        }
    }

    fn index(&self, interior: [usize; 3]) -> usize {
        let [y, z, x] = interior.map(|at| at + self.border);
        (y * self.shape[1] + z) * self.shape[2] + x
    }
}

/// Damping factors along one axis: exp(−(0.3·d/D)²) at depth d, where D is the width of sponge and
/// halo together. With D = 20, as in Cerjan's paper, these are the paper's factors.
fn damping(n: usize, sponge: usize) -> Vec<f32> {
    let border = sponge + HALO;
    let factor = |at: usize| {
        let depth = border.saturating_sub(at.min(n - 1 - at)) as f32;
        (-(0.3 * depth / border as f32).powi(2)).exp()
    };
    (0..n).map(factor).collect()
}

/// Ricker wavelet: the second derivative of a Gaussian, with a peak of 1 at `t` = 0 and the maximum
/// of its spectrum at `hz`.
fn ricker(t: f32, hz: f32) -> f32 {
    let a = (PI * hz * t).powi(2);
    (1.0 - 2.0 * a) * (-a).exp()
}

/// Seconds from the start until the peak of the wavelet. Before the start, the wavelet would be
/// below 1e-4 of its peak.
pub(super) fn onset(hz: f32) -> f32 {
    1.2 / hz
}

/// A shot: the wavefield of one source in a medium.
#[derive(Debug)]
pub(super) struct Shot<'a> {
    medium: &'a Medium,
    /// Position of the source in the whole grid.
    source: [usize; 3],
    hz: f32,
    /// [`MARGIN`], which tests change.
    margin: f32,
    now: Vec<f32>,
    last: Vec<f32>,
    n_steps: usize,
}

impl<'a> Shot<'a> {
    /// A source at an interior point, before the first step.
    ///
    /// The spectrum of its wavelet has its maximum at `hz`. In a uniform medium the peak pressure
    /// is 1 at [`REFERENCE`] points from the source.
    pub(super) fn new(medium: &'a Medium, source: [usize; 3], hz: f32) -> Self {
        let n_points = medium.courant2.len();
        let source = source.map(|at| at + medium.border);
        let zeros = || vec![0.0; n_points];
        Self { medium, source, hz, margin: MARGIN, now: zeros(), last: zeros(), n_steps: 0 }
    }

    /// Advances by `n_steps` time steps in one pass over memory.
    ///
    /// The first step moves through the grid plane by plane. Each further step follows [`HALO`]
    /// planes behind the previous one, as closely as the stencil allows. It therefore finds its
    /// planes in a cache.
    pub(super) fn advance(&mut self, n_steps: usize) {
        let Self { medium, source, hz, margin, n_steps: before, .. } = *self;
        let [ny, nz, nx] = medium.shape;
        let inner = HALO..ny - HALO;
        for front in HALO..inner.end + n_steps.saturating_sub(1) * HALO {
            for nth in 0..n_steps {
                let y = front.checked_sub(nth * HALO).filter(|y| inner.contains(y));
                let Some(y) = y else { continue };
                let (now, last) = match nth % 2 {
                    0 => (&self.now, &mut self.last),
                    _ => (&self.last, &mut self.now),
                };
                let ball = Ball::after(medium, source, before + nth, margin);
                let last = &mut last[y * nz * nx..(y + 1) * nz * nx];
                PlaneUpdate { medium, ball, y, now, at: y, last: &mut *last }.advance();
                if y == source[0] {
                    let at = source[1] * nx + source[2];
                    let t = (before + nth) as f32 * medium.dt - onset(hz);
                    let courant2 = medium.courant2[y * nz * nx + at];
                    last[at] += courant2 * (4.0 * PI * REFERENCE) * ricker(t, hz);
                }
            }
        }
        if n_steps % 2 == 1 {
            std::mem::swap(&mut self.now, &mut self.last);
        }
        self.n_steps += n_steps;
    }

    /// The field without sponge and halo.
    pub(super) fn snapshot(&self) -> Vec<f32> {
        let [ny, nz, nx] = self.medium.shape.map(|n| n - 2 * self.medium.border);
        let row = |at: usize| {
            let start = self.medium.index([at / nz, at % nz, 0]);
            &self.now[start..start + nx]
        };
        (0..ny * nz).flat_map(row).copied().collect()
    }
}

/// The points that a wave can have reached.
#[derive(Clone, Copy)]
struct Ball {
    centre: [usize; 3],
    radius2: f32,
}

impl Ball {
    /// The ball that the fastest wave has reached after `n_steps` steps, plus `margin` points.
    fn after(medium: &Medium, centre: [usize; 3], n_steps: usize, margin: f32) -> Self {
        let reach = medium.reach_per_step * n_steps as f32 + margin;
        Self { centre, radius2: reach * reach }
    }

    /// The range of x in row (y, z) that is inside the ball and outside the halo.
    fn row(&self, y: usize, z: usize, nx: usize) -> Option<(usize, usize)> {
        let off2 = (y.abs_diff(self.centre[0]).pow(2) + z.abs_diff(self.centre[1]).pow(2)) as f32;
        if off2 > self.radius2 {
            return None;
        }
        let half = (self.radius2 - off2).sqrt() as usize;
        let centre = self.centre[2];
        Some((centre.saturating_sub(half).max(HALO), (centre + half + 1).min(nx - HALO)))
    }
}

/// Computation of the next values of a plane. They overwrite `last`.
struct PlaneUpdate<'a> {
    medium: &'a Medium,
    ball: Ball,
    /// Index of the plane in the grid.
    y: usize,
    now: &'a [f32],
    /// Index of the plane in `now`.
    at: usize,
    last: &'a mut [f32],
}

impl PlaneUpdate<'_> {
    fn advance(self) {
        at_level::run(Level::best(), self);
    }
}

impl at_level::Task for PlaneUpdate<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { medium, ball, y, now, at, last } = self;
        let [_, nz, nx] = medium.shape;
        let courant2 = &medium.courant2[y * nz * nx..(y + 1) * nz * nx];
        for z in HALO..nz - HALO {
            let Some((from, to)) = ball.row(y, z, nx) else { continue };
            let damping = medium.damping[0][y] * medium.damping[1][z];
            for from in (from..to).step_by(CHUNK) {
                let to = to.min(from + CHUNK);
                let rows = RowStencil { now, stride: [nz * nx, nx], at: (at * nz + z) * nx + from };
                update(
                    &mut last[z * nx + from..z * nx + to],
                    &rows,
                    &courant2[z * nx + from..],
                    damping,
                    &medium.damping[2][from..],
                );
            }
        }
    }
}

/// One rank's planes of a simulation, with copies of its neighbours' planes within reach of the
/// stencil. Shots repeat at the same point.
#[derive(Debug)]
pub struct WaveSlab<'a> {
    medium: &'a Medium,
    source: [usize; 3],
    hz: f32,
    /// Seconds from one shot to the next.
    period: f32,
    /// Range of this rank's planes in the whole grid.
    own: Range<usize>,
    now: Vec<f32>,
    last: Vec<f32>,
    n_steps: usize,
}

impl<'a> WaveSlab<'a> {
    /// The planes of rank `index` of `size`. `None` if the rank would have fewer planes than the
    /// stencil reaches.
    pub(crate) fn new(
        medium: &'a Medium,
        source: [usize; 3],
        (hz, period): (f32, f32),
        (size, index): (usize, usize),
    ) -> Option<Self> {
        let [ny, nz, nx] = medium.shape;
        let own = share(ny - 2 * HALO, size, index);
        let own = own.start + HALO..own.end + HALO;
        let source = source.map(|at| at + medium.border);
        let zeros = || vec![0.0; (own.len() + 2 * HALO) * nz * nx];
        let (now, last) = (zeros(), zeros());
        let slab = Self { medium, source, hz, period, own, now, last, n_steps: 0 };
        (slab.own.len() >= HALO).then_some(slab)
    }

    /// Advances this rank's planes by one time step. The copies of the neighbours' planes must be
    /// those of the current step.
    pub fn step(&mut self) {
        let medium = self.medium;
        let [_, nz, nx] = medium.shape;
        let ball = Ball::after(medium, self.source, self.n_steps, MARGIN);
        let planes = self.last.chunks_mut(nz * nx).enumerate().skip(HALO).take(self.own.len());
        for (at, last) in planes {
            let y = self.own.start + at - HALO;
            PlaneUpdate { medium, ball, y, now: &self.now, at, last }.advance();
        }
        std::mem::swap(&mut self.now, &mut self.last);
        let t = (self.n_steps as f32 * medium.dt) % self.period - onset(self.hz);
        let [y, z, x] = self.source;
        if self.own.contains(&y) {
            let at = ((y - self.own.start + HALO) * nz + z) * nx + x;
            let courant2 = medium.courant2[(y * nz + z) * nx + x];
            self.now[at] += courant2 * (4.0 * PI * REFERENCE) * ricker(t, self.hz);
        }
        self.n_steps += 1;
    }

    /// Planes to exchange after a step: this rank's planes at both borders to send, and buffers for
    /// the planes of the previous and the next rank.
    pub fn halos(&mut self) -> ([&[f32]; 2], [&mut [f32]; 2]) {
        let [_, nz, nx] = self.medium.shape;
        let reach = HALO * nz * nx;
        let (before, rest) = self.now.split_at_mut(reach);
        let (own, behind) = rest.split_at_mut(self.own.len() * nz * nx);
        let own: &[f32] = own;
        ([&own[..reach], &own[own.len() - reach..]], [before, behind])
    }

    /// This rank's part of the interior.
    pub fn snapshot(&self) -> Vec<f32> {
        let ([ny, nz, nx], border) = (self.medium.shape, self.medium.border);
        let mut values = Vec::new();
        for y in self.own.clone().filter(|y| (border..ny - border).contains(y)) {
            for z in border..nz - border {
                let row = ((y - self.own.start + HALO) * nz + z) * nx;
                values.extend_from_slice(&self.now[row + border..row + nx - border]);
            }
        }
        values
    }
}

/// The field around a chunk of a row.
struct RowStencil<'a> {
    now: &'a [f32],
    /// Distance of neighbours along y and z in `now`.
    stride: [usize; 2],
    /// Index of the chunk's first point.
    at: usize,
}

/// Computes the next values of a chunk. They overwrite `last`, the values of the previous step.
#[inline(always)]
fn update(
    last: &mut [f32],
    rows: &RowStencil<'_>,
    courant2: &[f32],
    damping: f32,
    damping_x: &[f32],
) {
    let n = last.len();
    let (courant2, damping_x) = (&courant2[..n], &damping_x[..n]);
    let run = |start: usize| &rows.now[start..start + n];
    let now = run(rows.at);
    let mut laplacian = [0.0_f32; CHUNK];
    let laplacian = &mut laplacian[..n];
    for (k, &weight) in STENCIL.iter().enumerate().skip(1) {
        let [dy, dz] = rows.stride.map(|stride| k * stride);
        add_neighbours(
            laplacian,
            weight,
            [
                run(rows.at - k),
                run(rows.at + k),
                run(rows.at - dz),
                run(rows.at + dz),
                run(rows.at - dy),
                run(rows.at + dy),
            ],
        );
    }
    for x in 0..n {
        let g = damping * damping_x[x];
        let sum = 3.0 * STENCIL[0] * now[x] + laplacian[x];
        last[x] = g * (2.0 * now[x] - g * last[x] + courant2[x] * sum);
    }
}

/// Adds `weight` times the sum of six neighbours to each value.
#[inline(always)]
fn add_neighbours(sum: &mut [f32], weight: f32, [a, b, c, d, e, f]: [&[f32]; 6]) {
    let n = sum.len();
    let (a, b, c, d, e, f) = (&a[..n], &b[..n], &c[..n], &d[..n], &e[..n], &f[..n]);
    for x in 0..n {
        sum[x] += weight * (((a[x] + b[x]) + (c[x] + d[x])) + (e[x] + f[x]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H: f32 = 10.0;

    fn layers([y, z, x]: [usize; 3]) -> f32 {
        2000.0 + if 2 * z > 50 + x { 900.0 } else { 0.0 } + y as f32
    }

    fn largest(field: &[f32]) -> f32 {
        field.iter().fold(0.0, |max, value| max.max(value.abs()))
    }

    /// A wave arrives after distance/velocity, with an amplitude proportional to 1/r.
    #[test]
    fn the_direct_wave_arrives_when_and_as_strong_as_it_should() {
        let (v, hz, from, to) = (2000.0, 18.0, [24, 24, 10], [24, 24, 60]);
        let medium = Medium::new([48, 48, 72], 16, H, |_| v);
        let mut shot = Shot::new(&medium, from, hz);
        let distance = (to[2] - from[2]) as f32;
        let (mut peak, mut at) = (0.0, 0.0);
        while (shot.n_steps as f32) * medium.dt < onset(hz) + 1.5 * distance * H / v {
            shot.advance(1);
            let value = shot.now[medium.index(to)];
            if value > peak {
                // The source adds its value for time 0 in the first step, so the field after n
                // steps is that of time (n − 1)·dt.
                (peak, at) = (value, (shot.n_steps - 1) as f32 * medium.dt - onset(hz));
            }
        }
        let cells_off = (at * v / H - distance).abs();
        assert!(cells_off < 1.5, "arrived {cells_off} cells off");
        let expected = REFERENCE / distance;
        assert!((peak / expected - 1.0).abs() < 0.1, "{peak} for {expected}");
    }

    #[test]
    fn steps_are_the_same_in_one_pass_or_in_several() {
        let medium = Medium::new([24, 20, 30], 8, H, layers);
        let mut single = Shot::new(&medium, [20, 2, 15], 18.0);
        (0..60).for_each(|_| single.advance(1));
        for at_once in [2, 3, 4, 7, 60] {
            let mut shot = Shot::new(&medium, [20, 2, 15], 18.0);
            while shot.n_steps < 60 {
                shot.advance(at_once.min(60 - shot.n_steps));
            }
            assert!(shot.snapshot() == single.snapshot(), "{at_once}");
            assert!(largest(&shot.snapshot()) > 0.01);
        }
    }

    /// Reciprocity: a signal from A to B equals the signal from B to A.
    #[test]
    fn source_and_receiver_may_change_places() {
        let (a, b) = ([12, 6, 8], [20, 30, 27]);
        let medium = Medium::new([32, 40, 36], 12, H, layers);
        let mut traces = [(a, b), (b, a)].map(|(from, to)| {
            let mut shot = Shot::new(&medium, from, 20.0);
            let mut trace = Vec::new();
            for _ in 0..160 {
                shot.advance(1);
                trace.push(shot.now[medium.index(to)]);
            }
            trace
        });
        let scale = largest(&traces[0]);
        let [there, back] = &mut traces;
        there.iter_mut().zip(back).for_each(|(there, back)| *there -= *back);
        assert!(largest(there) < 1e-3 * scale, "{} of {scale}", largest(there));
    }

    /// Energy leaves through the sponge. It never grows, even long after the source has ended.
    #[test]
    fn long_runs_die_away() {
        let medium = Medium::new([24, 24, 24], 16, H, layers);
        let mut shot = Shot::new(&medium, [12, 2, 12], 20.0);
        let mut peaks = Vec::new();
        for _ in 0..10 {
            (0..100).for_each(|_| shot.advance(1));
            peaks.push(largest(&shot.now));
        }
        assert!(peaks[0] > 1.0 && peaks[2] < 0.1 * peaks[0], "{peaks:?}");
        assert!(peaks[9] < 2e-2 * peaks[0], "{peaks:?}");
    }

    /// The values that a step skips are negligible.
    #[test]
    fn values_outside_the_ball_are_negligible() {
        let medium = Medium::new([30, 30, 30], 8, H, layers);
        let mut whole = Shot::new(&medium, [4, 4, 4], 20.0);
        let mut ball = Shot::new(&medium, [4, 4, 4], 20.0);
        whole.margin = 1e3;
        for _ in 0..60 {
            whole.advance(1);
            ball.advance(1);
        }
        let scale = largest(&ball.now);
        let off =
            whole.now.iter().zip(&ball.now).fold(0.0_f32, |max, (a, b)| max.max((a - b).abs()));
        assert!(off < 1e-5 * scale, "{off} of {scale}");
    }

    /// Slabs with exact copies of their neighbours' planes compute the same bits as one shot.
    #[test]
    fn slabs_together_have_the_bits_of_the_whole() {
        let (source, hz) = ([14, 2, 20], 20.0);
        let medium = Medium::new([20, 24, 28], 8, H, layers);
        let mut whole = Shot::new(&medium, source, hz);
        (0..120).for_each(|_| whole.advance(1));
        for size in [1, 2, 3, 7] {
            let slab = |rank| WaveSlab::new(&medium, source, (hz, f32::INFINITY), (size, rank));
            let mut slabs: Vec<_> = (0..size).map(|rank| slab(rank).unwrap()).collect();
            for _ in 0..120 {
                slabs.iter_mut().for_each(WaveSlab::step);
                for at in 1..size {
                    let (before, behind) = slabs.split_at_mut(at);
                    let (own_before, [_, after]) = before[at - 1].halos();
                    let (own_behind, [in_front, _]) = behind[0].halos();
                    after.copy_from_slice(own_behind[0]);
                    in_front.copy_from_slice(own_before[1]);
                }
            }
            let parts: Vec<f32> = slabs.iter().flat_map(WaveSlab::snapshot).collect();
            assert!(parts == whole.snapshot(), "{size} slabs");
        }
        assert!(WaveSlab::new(&medium, source, (hz, 1.0), (12, 11)).is_none());
    }

    #[test]
    fn results_do_not_depend_on_the_number_of_threads() {
        let snapshot = |n_threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            pool.install(|| {
                let medium = Medium::new([20, 24, 28], 8, H, layers);
                let mut shot = Shot::new(&medium, [3, 2, 20], 20.0);
                (0..80).for_each(|_| shot.advance(1));
                shot.snapshot().into_iter().map(f32::to_bits).collect::<Vec<_>>()
            })
        };
        let one = snapshot(1);
        assert_eq!(one.len(), 20 * 24 * 28);
        assert!(one == snapshot(2) && one == snapshot(5));
    }
}
