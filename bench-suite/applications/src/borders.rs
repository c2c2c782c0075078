//! Exchange of border planes between the neighbours of a grid that is divided along its slowest
//! dimension.

use foldwire::{Communicator, Element, Error, Incoming, Outgoing, Plan, Rank, Report, Transport};

/// Tags of messages to the previous rank and to the next rank.
const TAGS: [u32; 2] = [0, 1];

/// The planes at a rank's borders, and buffers for its neighbours' planes.
///
/// Each array holds the entry for the previous rank, then the entry for the next one. An empty
/// plane is not sent, and an empty buffer receives no message.
pub(crate) struct HaloPlanes<'s, T> {
    pub(crate) own: [&'s [T]; 2],
    pub(crate) theirs: [&'s mut [T]; 2],
}

impl<T: Element> HaloPlanes<'_, T> {
    /// Sends this rank's border planes to its neighbours and receives theirs.
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
        // Tags to send and to receive with. The previous rank sends to its next rank, this one, so
        // its message has the second tag. A message from the next rank has the first tag.
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
