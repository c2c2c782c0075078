//! Kernels run by the host.
