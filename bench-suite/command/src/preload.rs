//! `foldwire preload`: runs an unmodified MPI program with a library of `bindings/mpi-preload`.
//!
//! The library must match the program's MPI library. The program's file lists the libraries that it
//! needs. For a script, the version of the launcher determines the MPI library. Launchers receive
//! the variables through their own options, because ranks on other nodes would not inherit them.
//! Everyone on a node can read command lines, so no option contains the secret token. The command
//! then replaces this process.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use foldwire_arguments::PreloadArgs;
use foldwire_fields::usage::usage;
use foldwire_workbench::streams;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::FileHeader;
use object::read::{ReadCache, ReadRef};

/// Binary interface of an MPI library. Programs run with any library of the same interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MpiAbi {
    OpenMpi,
    Mpich,
    /// The standard ABI of MPI 5, in any library.
    Standard,
}

impl MpiAbi {
    /// Returns the interface of an MPI library with this file name.
    fn of_library(name: &str) -> Option<Self> {
        match name {
            "libmpi.so.40" => Some(Self::OpenMpi),
            "libmpich.so.12" | "libmpi.so.12" => Some(Self::Mpich),
            _ if name.starts_with("libmpi_abi.so") => Some(Self::Standard),
            _ => None,
        }
    }

    /// Returns the interface of a launcher, from the output of `--version`.
    fn of_launcher(version: &str) -> Option<Self> {
        if version.contains("Open MPI") || version.contains("OpenRTE") {
            Some(Self::OpenMpi)
        } else if version.contains("HYDRA") || version.contains("Intel(R) MPI") {
            Some(Self::Mpich)
        } else {
            None
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
            Self::Standard => "mpi-abi",
        }
    }

    /// Options of this interface's launcher that give all ranks a variable of the launcher's own
    /// environment.
    fn inherited_options(self, name: &str, value: &OsStr) -> Vec<OsString> {
        match self {
            Self::OpenMpi => vec!["-x".into(), name.into()],
            // Hydra has no option that adds a variable without its value. It gives ranks on all
            // nodes its whole environment, unless the user's options say otherwise.
            Self::Mpich | Self::Standard if name == TOKEN => Vec::new(),
            Self::Mpich | Self::Standard => self.variable_options(name, value),
        }
    }

    /// Options of this interface's launcher that set a variable on all ranks.
    /// [`of_launcher`](Self::of_launcher) never returns `Standard`.
    fn variable_options(self, name: &str, value: &OsStr) -> Vec<OsString> {
        match self {
            Self::OpenMpi => {
                let mut set = OsString::from(name);
                set.push("=");
                set.push(value);
                vec!["-x".into(), set]
            }
            Self::Mpich | Self::Standard => vec!["-genv".into(), name.into(), value.into()],
        }
    }
}

/// Variable with the secret of the ranks.
const TOKEN: &str = "FOLDWIRE_TOKEN";
/// Variable with the libraries that the dynamic linker loads first.
const LD_PRELOAD: &str = "LD_PRELOAD";

/// Variables for the ranks.
struct RankVariables {
    /// Variables that this command sets.
    set: Vec<(String, OsString)>,
    /// Variables of this command's environment.
    inherited: Vec<(String, OsString)>,
}

/// Runs the subcommand.
///
/// # Errors
/// If no library can be determined or found, the words of the command set `LD_PRELOAD`, or the
/// command cannot be run.
pub(crate) fn run(args: &PreloadArgs) -> anyhow::Result<ExitCode> {
    let launcher = launcher_of(&args.command[0]);
    let needed = args.command.iter().find_map(|word| abi_of_program(&which(word)?));
    let Some(abi) = needed.or(launcher) else {
        bail!(usage!(
            "no word of the command `{} …` is an MPI program or a launcher of Open MPI or MPICH; \
            name the program's file",
            args.command[0].display()
        ));
    };
    let library = match &args.library {
        Some(library) => library.clone(),
        None => library_beside_command(abi)?,
    };
    let library = library.canonicalize().with_context(|| library.display().to_string())?;
    refuse_other_preloads(&args.command)?;
    let variables = variables(args, library.into_os_string(), env::vars_os());
    let words = words(&args.command, launcher, &variables);
    if args.print {
        let mut line = String::new();
        if launcher.is_none() {
            for (name, value) in &variables.set {
                let _ = write!(line, "{name}={} ", value.display());
            }
        }
        let words: Vec<_> = words.iter().map(|word| word.display().to_string()).collect();
        streams::write(&format!("{line}{}\n", words.join(" ")))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    if launcher.is_none() {
        command.envs(variables.set);
    }
    // `exec` returns only if it failed.
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", args.command[0].display()))
}

/// The variables for the ranks. `environment` is this command's own.
fn variables(
    args: &PreloadArgs,
    library: OsString,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> RankVariables {
    let mut libraries = library;
    let mut inherited = Vec::new();
    for (name, value) in environment {
        let Ok(name) = name.into_string() else { continue };
        if name == LD_PRELOAD && !value.is_empty() {
            // The user's libraries come after Foldwire's, whose functions the program calls.
            libraries.push(":");
            libraries.push(value);
        } else if name.starts_with("FOLDWIRE_")
            && !(name == "FOLDWIRE_BOUND" && args.bound.is_some())
        {
            inherited.push((name, value));
        }
    }
    let bound = args.bound.iter().map(|bound| ("FOLDWIRE_BOUND".to_owned(), bound.into()));
    let set = std::iter::once((LD_PRELOAD.to_owned(), libraries)).chain(bound).collect();
    RankVariables { set, inherited }
}

/// The words of the command to run: those of the user, and options of the launcher if there is one.
fn words(
    command: &[OsString],
    launcher: Option<MpiAbi>,
    variables: &RankVariables,
) -> Vec<OsString> {
    let mut words = command.to_vec();
    if let Some(launcher) = launcher {
        let RankVariables { set, inherited } = variables;
        let set = set.iter().flat_map(|(name, value)| launcher.variable_options(name, value));
        let inherited =
            inherited.iter().flat_map(|(name, value)| launcher.inherited_options(name, value));
        let options: Vec<_> = set.chain(inherited).collect();
        let _ = words.splice(1..1, options);
    }
    words
}

/// Checks that no word before the program sets `LD_PRELOAD`, which would replace Foldwire's
/// library.
///
/// # Errors
/// If a word sets it: `-x LD_PRELOAD=…`, `-genv LD_PRELOAD …`, `env LD_PRELOAD=…`.
fn refuse_other_preloads(command: &[OsString]) -> anyhow::Result<()> {
    let n_words = command.iter().position(|word| is_program(word)).unwrap_or(command.len());
    let sets_it = |word: &&OsString| {
        let word = word.to_string_lossy();
        let mut names = word.split([',', ';', ' ']);
        names.any(|name| name.split('=').next().is_some_and(|name| name == LD_PRELOAD))
    };
    let Some(word) = command[..n_words].iter().find(sets_it) else { return Ok(()) };
    bail!(usage!(
        "`{}` in the command would replace Foldwire's library; leave it out, and write \
         LD_PRELOAD=LIBRARY before `foldwire preload`, which loads both",
        word.display()
    ))
}

/// The file that a word of a command names, if it exists.
fn which(word: &OsStr) -> Option<PathBuf> {
    let path = Path::new(word);
    if path.components().count() > 1 {
        return path.is_file().then(|| path.to_owned());
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(path)).find(|file| file.is_file())
}

/// Returns whether a word names an MPI program.
fn is_program(word: &OsStr) -> bool {
    which(word).is_some_and(|file| abi_of_program(&file).is_some())
}

/// The interface of a program that needs an MPI library. A word may name a long file of data, so
/// this reads only the header of a file that is no program, and little of a program.
fn abi_of_program(file: &Path) -> Option<MpiAbi> {
    let file = ReadCache::new(File::open(file).ok()?);
    needed(&file).ok()?.iter().find_map(|name| MpiAbi::of_library(name))
}

/// Names of the libraries that a program needs.
fn needed<'d>(file: impl ReadRef<'d>) -> object::Result<Vec<String>> {
    let header = FileHeader64::<object::Endianness>::parse(file)?;
    let endian = header.endian()?;
    let table = header.sections(endian, file)?.dynamic_table(endian, file)?;
    let needed = table.iter().filter(|entry| entry.tag == DT_NEEDED);
    needed.map(|entry| Ok(String::from_utf8_lossy(table.string(entry)?).into_owned())).collect()
}

/// The interface of a launcher. Only `mpirun`, `mpiexec` and similar names are run with
/// `--version`.
fn launcher_of(word: &OsStr) -> Option<MpiAbi> {
    let name = Path::new(word).file_name()?.to_str()?;
    if !["mpirun", "mpiexec", "orterun", "prterun"].iter().any(|known| name.starts_with(known)) {
        return None;
    }
    let version = Command::new(word).arg("--version").stdin(Stdio::null()).output().ok()?;
    MpiAbi::of_launcher(&String::from_utf8_lossy(&version.stdout))
}

/// Finds the library beside this command, or in the folder `lib` beside the command's folder.
fn library_beside_command(abi: MpiAbi) -> anyhow::Result<PathBuf> {
    let file = format!("libfoldwire_preload_{}.so", abi.name().replace('-', "_"));
    let own = env::current_exe().context("this command's own place is unknown")?;
    let folder = own.parent().unwrap_or(Path::new("."));
    let places = [folder.join(&file), folder.join("../lib").join(&file)];
    if let Some(found) = places.iter().find(|place| place.is_file()) {
        return Ok(found.clone());
    }
    bail!(
        "there is no {file} in {}; build it (cargo build --release -p foldwire-preload-{}), or \
         name it by --library",
        folder.display(),
        abi.name()
    )
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{self, Cursor, Read, Seek, SeekFrom};

    use super::*;

    /// Counts the bytes that are read.
    struct CountedReads<'n, R>(R, &'n Cell<usize>);

    impl<R: Read> Read for CountedReads<'_, R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n_bytes = self.0.read(buffer)?;
            self.1.set(self.1.get() + n_bytes);
            Ok(n_bytes)
        }
    }

    impl<R: Seek> Seek for CountedReads<'_, R> {
        fn seek(&mut self, place: SeekFrom) -> io::Result<u64> {
            self.0.seek(place)
        }
    }

    #[test]
    fn a_programs_file_says_which_libraries_it_needs() {
        // Like all programs, this test needs the C library.
        let n_read = Cell::new(0);
        let own = File::open(env::current_exe().unwrap()).unwrap();
        let needed = needed(&ReadCache::new(CountedReads(own, &n_read))).unwrap();
        assert!(needed.iter().any(|name| name.starts_with("libc.so")), "{needed:?}");
        assert!(n_read.get() < 64 << 10, "{n_read:?} bytes");
        assert!(super::needed(&b"#!/bin/sh"[..]).is_err());
    }

    #[test]
    fn files_of_data_are_not_read_whole() {
        let n_read = Cell::new(0);
        let data = Cursor::new(vec![0; 1 << 20]);
        assert!(needed(&ReadCache::new(CountedReads(data, &n_read))).is_err());
        assert!(n_read.get() <= size_of::<FileHeader64<object::Endianness>>(), "{n_read:?} bytes");
    }

    #[test]
    fn families_are_told_by_libraries_and_launchers() {
        assert_eq!(MpiAbi::of_library("libmpi.so.40"), Some(MpiAbi::OpenMpi));
        assert_eq!(MpiAbi::of_library("libmpi.so.12"), Some(MpiAbi::Mpich));
        assert_eq!(MpiAbi::of_library("libmpi_abi.so.1"), Some(MpiAbi::Standard));
        assert_eq!(MpiAbi::of_library("libm.so.6"), None);
        assert_eq!(MpiAbi::of_launcher("mpirun (Open MPI) 4.1.4"), Some(MpiAbi::OpenMpi));
        assert_eq!(MpiAbi::of_launcher("HYDRA build details:"), Some(MpiAbi::Mpich));
        assert_eq!(MpiAbi::of_launcher("slurm 23"), None);
    }

    fn args(bound: Option<&str>, command: &[&str]) -> PreloadArgs {
        PreloadArgs {
            bound: bound.map(Into::into),
            library: None,
            print: true,
            command: command.iter().map(Into::into).collect(),
        }
    }

    /// Words of a command for two ranks in this environment.
    fn words_in(
        launcher: MpiAbi,
        bound: Option<&str>,
        environment: &[(&str, &str)],
    ) -> Vec<OsString> {
        let args = args(bound, &["mpirun", "-n", "2", "./a"]);
        let environment = environment.iter().map(|(name, value)| (name.into(), value.into()));
        words(&args.command, Some(launcher), &variables(&args, "ours.so".into(), environment))
    }

    #[test]
    fn libraries_of_the_environment_follow_foldwires() {
        let inherited = [("LD_PRELOAD", "tool.so:other.so"), ("HOME", "/root")];
        let expected = "mpirun -x LD_PRELOAD=ours.so:tool.so:other.so -n 2 ./a";
        assert_eq!(words_in(MpiAbi::OpenMpi, None, &inherited).join(OsStr::new(" ")), expected);
        let expected = "mpirun -genv LD_PRELOAD ours.so:tool.so:other.so -n 2 ./a";
        assert_eq!(words_in(MpiAbi::Mpich, None, &inherited).join(OsStr::new(" ")), expected);
        let empty = words_in(MpiAbi::OpenMpi, None, &[("LD_PRELOAD", "")]);
        assert_eq!(empty[..3], ["mpirun", "-x", "LD_PRELOAD=ours.so"]);
    }

    #[test]
    fn a_command_that_sets_ld_preload_is_refused() {
        for command in [
            &["mpirun", "-x", "LD_PRELOAD=tool.so", "./a"][..],
            &["mpirun", "-x", "LD_PRELOAD", "./a"],
            &["mpirun", "--mca", "mca_base_env_list", "A=1;LD_PRELOAD=tool.so", "./a"],
            &["mpiexec", "-genv", "LD_PRELOAD", "tool.so", "./a"],
            &["mpiexec", "-genvlist", "PATH,LD_PRELOAD", "./a"],
            &["mpirun", "env", "LD_PRELOAD=tool.so", "./a"],
        ] {
            let error = refuse_other_preloads(&args(None, command).command).unwrap_err();
            assert!(error.to_string().contains("before `foldwire preload`"), "{error}");
            assert!(error.is::<foldwire_fields::usage::UsageError>());
        }
        let other = ["mpirun", "-x", "MY_LD_PRELOAD=tool.so", "./a", "--LD_PRELOADS"];
        assert!(refuse_other_preloads(&args(None, &other).command).is_ok());
    }

    #[test]
    fn no_word_contains_the_token() {
        let environment = [("FOLDWIRE_TOKEN", "secret"), ("FOLDWIRE_BOUND", "lossless")];
        let open_mpi = words_in(MpiAbi::OpenMpi, None, &environment);
        let expected = "mpirun -x LD_PRELOAD=ours.so -x FOLDWIRE_TOKEN -x FOLDWIRE_BOUND -n 2 ./a";
        assert_eq!(open_mpi.join(OsStr::new(" ")), expected);
        let mpich = words_in(MpiAbi::Mpich, Some("rel:1e-3"), &environment);
        let expected = "mpirun -genv LD_PRELOAD ours.so -genv FOLDWIRE_BOUND rel:1e-3 -n 2 ./a";
        assert_eq!(mpich.join(OsStr::new(" ")), expected);
    }

    #[test]
    fn launchers_hand_variables_on_by_their_own_options() {
        let words = MpiAbi::OpenMpi.variable_options("A", OsStr::new("b c"));
        assert_eq!(words, ["-x", "A=b c"]);
        assert_eq!(MpiAbi::Mpich.variable_options("A", OsStr::new("b")), ["-genv", "A", "b"]);
    }
}
