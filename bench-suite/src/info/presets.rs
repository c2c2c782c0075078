//! The presets: what each one is.

use foldwire::schedule::Schedule;
use foldwire::{Bound, Collective, Preset};

use super::section::Section;
use crate::cli::title;
use crate::table::Align;

const COLUMNS: &[(&str, Align)] = &[
    ("preset", Align::Left),
    ("name", Align::Left),
    ("schedule of all-reduce", Align::Left),
    ("pipeline", Align::Left),
    ("codec", Align::Left),
];

pub(super) fn section() -> Section {
    Section::new("presets", "Presets").rows(
        COLUMNS,
        Preset::ALL.map(|preset| {
            // The bound does not matter for what is shown.
            let plan = preset.plan(Collective::AllReduce, Bound::Relative(1e-3));
            let schedule = plan.schedule.map_or("chosen for each call", Schedule::name);
            [preset.name(), title(preset), schedule, plan.pipeline.name, plan.codec.name()]
                .map(Into::into)
                .into()
        }),
    )
}
