//! What neighbours that divide a grid along its slowest dimension give each other.

use foldwire::{Communicator, Element, Error, Incoming, Outgoing, Plan, Rank, Report, Transport};

/// Messages to the rank before, and to the one after.
const TAGS: [u32; 2] = [0, 1];

/// The planes at a rank's borders, and room for its neighbours': of the rank before, and of the one
/// after. What is empty is not sent, and room for nothing awaits nothing.
pub(crate) struct HaloPlanes<'s, T> {
    pub(crate) own: [&'s [T]; 2],
    pub(crate) theirs: [&'s mut [T]; 2],
}

impl<T: Element> HaloPlanes<'_, T> {
    /// Gives neighbours the planes that they need, and takes theirs.
    ///
    /// # Errors
    /// As [`Communicator::exchange`].
    pub(crate) fn exchange<X: Transport>(
        self,
        comm: &mut Communicator<X>,
        plan: &Plan,
    ) -> Result<Report, Error> {
        let (rank, size) = (comm.rank().index(), comm.size());
        let neighbours = [rank.checked_sub(1), Some(rank + 1).filter(|&next| next < size)];
        let (mut sends, mut recvs) = (Vec::new(), Vec::new());
        // Who sends to the rank before is the one after for that rank.
        let tags = [(TAGS[0], TAGS[1]), (TAGS[1], TAGS[0])];
        let planes = self.own.into_iter().zip(self.theirs);
        for ((neighbour, (own, theirs)), (sent, received)) in
            neighbours.into_iter().zip(planes).zip(tags)
        {
            let Some(neighbour) = neighbour.map(Rank::new) else { continue };
            if !own.is_empty() {
                sends.push(Outgoing::new(neighbour, sent, own));
            }
            if !theirs.is_empty() {
                recvs.push(Incoming::new(neighbour, received, theirs));
            }
        }
        comm.exchange(&mut sends, &mut recvs, plan)
    }
}
