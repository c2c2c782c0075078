//! The schedules that the library chooses for plans without a schedule.

use foldwire::op::OpCode;
use foldwire::schedule::ProgramSpec;
use foldwire::select::{self, Network, SelectionRule};
use foldwire::{Bound, Collective, Plan, Rank};
use foldwire_arguments::InfoArgs;
use foldwire_workbench::table::Align;

use serde_json::Value;

use super::section::{ReportCell, ReportSection};

const COLUMNS: &[(&str, Align)] = &[
    ("collective", Align::Left),
    ("ranks", Align::Right),
    ("from bytes", Align::Right),
    ("to bytes", Align::Right),
    ("schedule", Align::Left),
];
/// Numbers of ranks to show choices for.
const RANKS: [usize; 4] = [2, 8, 64, 512];
/// Size of a frame, as in the backends.
const FRAME_BYTES: usize = 256 << 10;
/// Longest array to show choices for.
const MOST_BYTES: usize = 1 << 46;

/// Conditions, besides the call, that a choice depends on.
struct SelectionContext<'a> {
    /// The environment's rules, which precede the model.
    rules: &'a [SelectionRule],
    network: Network,
    ranks_per_node: usize,
}

pub(super) fn section(args: &InfoArgs) -> ReportSection {
    let rules = select::from_env();
    let of_environment = match &rules {
        Ok([]) => ReportCell::from("not set"),
        Ok(rules) => {
            rules.iter().map(SelectionRule::to_string).collect::<Vec<_>>().join(",").into()
        }
        Err(error) => format!("wrong: {error}").into(),
    };
    let network = Network { link_rate: args.link.bytes_per_s(), frame_bytes: FRAME_BYTES };
    let ranks_per_node = args.ranks_per_node as usize;
    let setting = SelectionContext { rules: rules.unwrap_or_default(), network, ranks_per_node };
    let link = network.link_rate.map_or_else(
        || ReportCell::new("none: unknown, or as fast as memory", Value::Null),
        |rate| ReportCell::new(args.link.to_string(), rate),
    );
    ReportSection::new("choices", "Schedules chosen by preset foldwire")
        .property(select::VARIABLE, of_environment)
        .property("link", link)
        .property("ranks per node", ranks_per_node)
        .rows(COLUMNS, Collective::ALL.into_iter().flat_map(|collective| of(collective, &setting)))
}

/// Rows of a collective. A single row if one schedule is chosen for all numbers of ranks and bytes.
fn of(collective: Collective, setting: &SelectionContext<'_>) -> Vec<Vec<ReportCell>> {
    let of_size = RANKS.map(|size| ranges(collective, size, setting));
    let is_plain = of_size.iter().all(|ranges| ranges.len() == 1 && ranges[0] == of_size[0][0]);
    let n_sizes = if is_plain { 1 } else { RANKS.len() };
    let cells = |(size, ranges): (usize, &Vec<(usize, &'static str)>)| {
        let ends = ranges.iter().skip(1).map(|(from, _)| Some(from - 1)).chain([None]);
        let row =
            |((from, schedule), last): (&(usize, &'static str), Option<usize>)| -> Vec<ReportCell> {
                let ranks = if is_plain { "any".into() } else { ReportCell::from(size) };
                let last = last.map_or(ReportCell::from("any"), ReportCell::from);
                vec![collective.name().into(), ranks, (*from).into(), last, (*schedule).into()]
            };
        ranges.iter().zip(ends).map(row).collect::<Vec<_>>()
    };
    RANKS.into_iter().zip(&of_size).take(n_sizes).flat_map(cells).collect()
}

/// Finds the chosen schedules, each with the least number of bytes of its range. Assumes that the
/// choice changes at most once between two powers of 2.
fn ranges(
    collective: Collective,
    size: usize,
    setting: &SelectionContext<'_>,
) -> Vec<(usize, &'static str)> {
    let op = if collective.reduces() { OpCode::Sum } else { OpCode::None };
    let plan = Plan::foldwire(Bound::Relative(1e-3));
    let chosen = |n_bytes| {
        // A node cannot hold more ranks than there are. If nodes hold different numbers of ranks,
        // the selection has no rule for them.
        let per_node = setting.ranks_per_node.min(size);
        let per_node = if size.is_multiple_of(per_node) { per_node } else { 1 };
        let call = ProgramSpec::new(collective, size, Rank(0)).with_nodes(per_node);
        select::chosen(setting.rules, call, op, &plan, n_bytes, setting.network).name()
    };
    let mut ranges = vec![(0, chosen(0))];
    let mut below = 0;
    while below < MOST_BYTES {
        let (last, above) = (chosen(below), (2 * below).max(1));
        if chosen(above) != last {
            let (mut low, mut high) = (below, above);
            while high - low > 1 {
                let middle = low.midpoint(high);
                if chosen(middle) == last { low = middle } else { high = middle }
            }
            ranges.push((high, chosen(high)));
        }
        below = above;
    }
    ranges
}
