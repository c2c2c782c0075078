//! Ranks as processes over libfabric.
