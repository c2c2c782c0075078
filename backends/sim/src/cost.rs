//! How long a collective takes on thousands of ranks: the real schedules and lanes, with modelled compute and network.
