//! The ground below the survey: five layers, separated by an undulating, a dipping, a domed and a
//! nearly flat boundary.
//!
//! Coordinates are fractions of the volume along y, z (depth) and x, so a volume of any size holds
//! the whole model. Velocities are typical of sediments. They differ little, because the fastest
//! layer limits the time step.

/// Velocities of the layers in m/s, from the top.
const VELOCITIES: [f32; 5] = [2000.0, 2250.0, 2500.0, 2800.0, 3100.0];

/// Depths of the lower boundaries of all layers but the last.
fn boundaries(y: f32, x: f32) -> [f32; 4] {
    let dome = (-((x - 0.55).powi(2) + (y - 0.5).powi(2)) / (2.0 * 0.17 * 0.17)).exp();
    [
        0.20 + 0.012 * (14.0 * x + 5.0 * y).sin(),
        0.36 + 0.16 * (x - 0.5) + 0.08 * (y - 0.5),
        0.66 - 0.15 * dome,
        0.84 - 0.06 * (x - 0.5),
    ]
}

/// Velocity in m/s at a point.
pub(super) fn velocity([y, z, x]: [f32; 3]) -> f32 {
    let above = boundaries(y, x).iter().filter(|&&depth| z >= depth).count();
    VELOCITIES[above]
}

/// Travel time in seconds from the surface to the bottom, in the middle of a volume `depth` metres
/// deep.
pub(super) fn time_to_bottom(depth: f32) -> f32 {
    let mut time = 0.0;
    let mut top = 0.0;
    let bottoms = boundaries(0.5, 0.5).into_iter().chain([1.0]);
    for (bottom, velocity) in bottoms.zip(VELOCITIES) {
        time += (bottom - top) * depth / velocity;
        top = bottom;
    }
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_lie_in_order_everywhere() {
        for at in 0..=400 {
            let [y, x] = [(at / 20) as f32 / 20.0, (at % 20) as f32 / 20.0];
            let depths = boundaries(y, x);
            assert!(
                depths.is_sorted() && depths[0] > 0.0 && depths[3] < 1.0,
                "{y} {x}: {depths:?}"
            );
        }
    }

    #[test]
    fn the_way_down_takes_as_long_as_its_layers() {
        let steps = 10_000;
        let time: f64 = (0..steps)
            .map(|at| f64::from(velocity([0.5, (at as f32 + 0.5) / steps as f32, 0.5])).recip())
            .sum::<f64>()
            * (1000.0 / f64::from(steps));
        assert!((time - f64::from(time_to_bottom(1000.0))).abs() < 1e-3);
    }
}
