//! Division of the array among parts. Ranks must agree on it, as on the schedule.

use crate::coded_enum::coded_enum;

coded_enum! {
    /// Rule by which an all-reduce divides the array among the parts of its schedule.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Division {
        /// Part p is one block, the share of rank p, as in the published systems.
        #[default]
        Blocks = 0, "blocks";
        /// Each round takes the next section of the array and divides it among the parts. All parts
        /// then compress to about the same size. Blocks of real fields do not, and a ring moves at
        /// the pace of its largest message.
        Interleaved = 1, "interleaved";
    }
}
