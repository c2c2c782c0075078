//! The picture of a schedule: ranks side by side, time downwards, a line for each message.

use foldwire::schedule::check::{Message, Summary};
use foldwire::schedule::{ProgramSpec, Schedule};
use foldwire_workbench::plot::{self, FONT, Plot};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::title;

/// Pixels between two ranks.
const ACROSS: u32 = 56;
/// Pixels between two units of time.
const DOWN: u32 = 44;
/// Pixels at each margin.
const MARGIN: u32 = 48;
/// Longest side in pixels. Larger pictures are scaled down to it.
const MAX_SIDE: u32 = 4000;
/// Largest number of messages that have labels with their parts.
const MAX_LABELS: usize = 200;

pub(super) struct SchedulePicture<'a> {
    pub(super) schedule: &'a dyn Schedule,
    pub(super) call: ProgramSpec,
    pub(super) summary: Summary,
    pub(super) messages: &'a [Message],
}

impl Plot for SchedulePicture<'_> {
    fn size(&self) -> (u32, u32) {
        let side = |n: usize, step: u32| {
            (2 * MARGIN).saturating_add((n as u32).saturating_mul(step)).min(MAX_SIDE)
        };
        // The title needs about this width.
        let width = side(self.call.size - 1, ACROSS).max(560);
        (width, side(self.summary.critical_path, DOWN) + MARGIN / 2)
    }

    fn draw_on<B: DrawingBackend<ErrorType: 'static>>(
        &self,
        root: DrawingArea<B, Shift>,
        scale: u32,
    ) -> anyhow::Result<()> {
        let (width, height) = self.size();
        let (n_gaps, n_units) = (self.call.size - 1, self.summary.critical_path.max(1));
        let at = |rank: usize, time: usize| {
            let (top, side) = (f64::from(MARGIN) * 1.5, f64::from(MARGIN));
            let across = (f64::from(width) - 2.0 * side) / n_gaps.max(1) as f64;
            let down = (f64::from(height) - top - side) / n_units as f64;
            let place = (side + rank as f64 * across, top + time as f64 * down);
            let pixel = |x: f64| (x * f64::from(scale)).round() as i32;
            (pixel(place.0), pixel(place.1))
        };
        let font = |size: u32| (FONT, size * scale).into_font();
        let centred = Pos::new(HPos::Center, VPos::Center);
        let caption = title(self.schedule, self.call, &self.summary);
        let corner = ((MARGIN / 4 * scale) as i32, (MARGIN / 4 * scale) as i32);
        root.draw(&Text::new(caption, corner, font(14)))?;
        let every = self.call.size.div_ceil(64);
        for rank in 0..self.call.size {
            let (top, end) = (at(rank, 0), at(rank, n_units));
            root.draw(&PathElement::new([top, end], RGBColor(200, 200, 200)))?;
            if rank.is_multiple_of(every) {
                let name = (top.0, top.1 - (12 * scale) as i32);
                root.draw(&Text::new(
                    rank.to_string(),
                    name,
                    font(12).into_text_style(&root).pos(centred),
                ))?;
            }
        }
        let are_labelled = self.messages.len() <= MAX_LABELS;
        for message in self.messages {
            let colour = plot::colour(message.part.index());
            let from = at(message.from.index(), message.departure);
            let to = at(message.to.index(), message.arrival);
            root.draw(&PathElement::new([from, to], colour.stroke_width(2 * scale)))?;
            root.draw(&Circle::new(to, 3 * scale, colour.filled()))?;
            if are_labelled {
                // Put the label closer to the end, where crossing lines have separated.
                let place = (from.0 + (to.0 - from.0) * 7 / 10, from.1 + (to.1 - from.1) * 7 / 10);
                let parts = match message.n_parts {
                    1 => message.part.to_string(),
                    n => format!("{}+{}", message.part, n - 1),
                };
                let style = font(11).into_text_style(&root).pos(centred);
                root.draw(&Circle::new(place, 8 * scale, WHITE.mix(0.85).filled()))?;
                root.draw(&Text::new(parts, place, style))?;
            }
        }
        Ok(())
    }
}
