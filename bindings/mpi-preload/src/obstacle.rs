//! Reasons why all messages of a program are passed on. Pure.

/// Reason why all messages are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Obstacle {
    /// There is none.
    None,
    /// Fortran functions are loaded whose calls Foldwire does not see.
    Fortran,
    /// The program has probes.
    Probe,
    /// The program has other functions that could receive a compressed message unopened.
    Function,
    /// A file calls functions `PMPI_`, which bypass Foldwire.
    Profiled,
    /// Another library has functions of the same names and comes first.
    InFront,
    /// The MPI library or the system lacks something.
    Library,
}

impl Obstacle {
    /// All obstacles.
    pub const ALL: [Self; 7] = [
        Self::None,
        Self::Fortran,
        Self::Probe,
        Self::Function,
        Self::Profiled,
        Self::InFront,
        Self::Library,
    ];

    /// Words for the user.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Fortran => "the program uses Open MPI's Fortran functions",
            Self::Probe => "the program has probes (MPI_Probe or a variant)",
            Self::Function => {
                "the program has functions that receive messages and that Foldwire does not know \
                 (MPI_Isendrecv, MPI_Request_get_status_all, large counts, or a variant)"
            }
            Self::Profiled => "the program or a tool calls functions PMPI_ that receive messages",
            Self::InFront => "another library comes first and has functions for messages",
            Self::Library => "the MPI library or the system lacks something",
        }
    }

    /// Obstacle that the name of a function means, in C or in Fortran.
    #[must_use]
    pub fn of_name(name: &[u8]) -> Self {
        let name = name.to_ascii_lowercase();
        let has = |part: &str| name.windows(part.len()).any(|it| it == part.as_bytes());
        let has_any = |parts: &[&str]| parts.iter().any(|part| has(part));
        let is_large = has("recv") && (name.ends_with(b"_c") || has("_large"));
        if has("mpix_") && has_any(&["recv", "request", "contin"]) {
            return Self::Function;
        }
        if !has("mpi_") {
            return Self::None;
        }
        if has("pmpi_") && has_any(&["recv", "wait", "test", "get_status"]) {
            Self::Profiled
        } else if has_any(&["mpi_probe", "mpi_iprobe", "mpi_mprobe", "mpi_improbe"]) {
            Self::Probe
        } else if is_large || has_any(&UNKNOWN) {
            Self::Function
        } else {
            Self::None
        }
    }
}

/// Functions that receive messages or complete requests, and that Foldwire does not export.
const UNKNOWN: [&str; 5] = [
    "mpi_isendrecv",
    "mpi_mrecv",
    "mpi_imrecv",
    "mpi_request_get_status_a",
    "mpi_request_get_status_s",
];
