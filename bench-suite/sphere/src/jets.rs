//! Two unstable jets, the initial state and the driving force of [`TestCase::Jets`].
//!
//! A jet blows eastward around each hemisphere: u(φ) = U · √2 cos φ · sin²ᵏ(2φ), with its maximum
//! near 45°. Each has a small hill of water, from which waves grow until they break into vortices,
//! as in the test of J. Galewsky et al. (Tellus A 56, 2004). Two differences keep the flow chaotic
//! for as long as one likes. The mean wind of each row is pulled back to the jet, and what departs
//! from that mean is damped. And the jets are as narrow as the grid allows, because the growth of
//! differences follows the shear.
//!
//! With x = sin² φ and s = 2x − 1, the winds are in balance with the heights
//! H − ∫ (Ω·R·w + w²/2) dx / g, where w = U · √2 · (1 − s²)ᵏ. The integral of (1 − s²)ⁿ follows
//! from that of n − 1.
//!
//! [`TestCase::Jets`]: super::TestCase::Jets

use std::f64::consts::{FRAC_PI_4, PI, SQRT_2};

use super::{GRAVITY, RADIUS, ROTATION};

/// Largest wind U of the jets, in m/s.
const SPEED: f64 = 110.0;
/// The exponent k: the larger, the narrower. Here half of the wind is left 3° from the maximum.
const NARROWNESS: i32 = 64;
/// Height of the water in m at the poles.
const HEIGHT: f64 = 10_000.0;
/// Height of the hills in m.
const HILL: f64 = 120.0;
/// Part of the difference between the jet and a row's mean wind that comes back per second.
pub(super) const PULL: f64 = 1.0 / (0.2 * 86_400.0);
/// Part of what departs from the mean wind that is lost per second.
pub(super) const DRAG: f64 = 1.0 / (2.0 * 86_400.0);

/// Eastward wind in m/s. `strength` multiplies it.
pub(super) fn wind(strength: f64, latitude: f64) -> f64 {
    strength * SPEED * SQRT_2 * latitude.cos() * (2.0 * latitude).sin().powi(2 * NARROWNESS)
}

/// Height of the water in m.
pub(super) fn height(strength: f64, latitude: f64, longitude: f64) -> f64 {
    let w = strength * SPEED * SQRT_2;
    let s = -(2.0 * latitude).cos();
    // From a pole, where s = 1, to here. ds = 2 dx.
    let [once, twice] =
        [NARROWNESS, 2 * NARROWNESS].map(|n| 0.5 * (integral(n, 1.0) - integral(n, s)));
    let rise = (ROTATION * RADIUS * w * once + 0.5 * w * w * twice) / GRAVITY;
    let hill = |centre: [f64; 2]| {
        let away = (longitude - centre[1] + PI).rem_euclid(2.0 * PI) - PI;
        HILL * latitude.cos()
            * (-(3.0 * away).powi(2) - (15.0 * (latitude - centre[0])).powi(2)).exp()
    };
    HEIGHT + rise + hill([FRAC_PI_4, 0.0]) + hill([-FRAC_PI_4, 2.0])
}

/// The integral of (1 − s²)ⁿ from 0 to `s`.
fn integral(n: i32, s: f64) -> f64 {
    let base = 1.0 - s * s;
    let next = |(before, power): (f64, f64), n: i32| {
        let (n, power) = (f64::from(n), power * base);
        ((s * power + 2.0 * n * before) / (2.0 * n + 1.0), power)
    };
    let (integral, _) = (1..=n).fold((s, 1.0), next);
    integral
}
