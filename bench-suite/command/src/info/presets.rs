//! The presets and their parts.

use foldwire::schedule::Schedule;
use foldwire::{Bound, Collective, Preset};
use foldwire_arguments::coding::CodecArg;
use foldwire_workbench::table::Align;

use super::section::ReportSection;

const COLUMNS: &[(&str, Align)] = &[
    ("preset", Align::Left),
    ("name", Align::Left),
    ("schedule of all-reduce", Align::Left),
    ("pipeline", Align::Left),
    ("codec", Align::Left),
    ("source", Align::Left),
    ("differs from the paper by", Align::Left),
];

pub(super) fn section() -> ReportSection {
    ReportSection::new("presets", "Presets").rows(
        COLUMNS,
        Preset::ALL.iter().map(|preset| {
            // Any bound will do, since none is shown.
            let plan = preset.plan(Collective::AllReduce, Bound::Relative(1e-3));
            let schedule = plan.schedule.map_or("chosen for each call", Schedule::name);
            let codec = CodecArg { codec: plan.codec, setting: plan.setting }.to_string();
            let name = [preset.name(), preset.title(), schedule, plan.pipeline.name];
            let source = [&*codec, preset.source(), preset.differs()];
            name.into_iter().chain(source).map(Into::into).collect::<Vec<_>>()
        }),
    )
}
