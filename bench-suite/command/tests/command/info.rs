//! Tests of `foldwire info`: every section exists, as text and as JSON.

use std::process::{Command, Output};

use serde_json::Value;

fn info(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_foldwire"));
    // Hide the variables of a launcher that may have started the tests.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["FOLDWIRE_", "OMPI_", "PMI", "SLURM_"].iter().any(|head| name.starts_with(head)) {
            command.env_remove(&*name);
        }
    }
    let output = command.arg("info").args(args).envs(env.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn json(env: &[(&str, &str)]) -> Value {
    serde_json::from_slice(&info(&["--json"], env).stdout).expect("stdout is one JSON object")
}

#[test]
fn all_sections_are_there() {
    let object = json(&[]);
    for key in [
        "machine",
        "kernels",
        "presets",
        "choices",
        "place",
        "links",
        "threads",
        "mpi",
        "libfabric",
        "tcp",
        "cuda",
    ] {
        assert!(object[key].is_object(), "{key}");
    }
    assert_eq!(object["machine"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(object["kernels"]["used"], foldwire::kernel::Level::best().name());
    let names: Vec<_> =
        object["presets"]["rows"].as_array().unwrap().iter().map(|row| &row["preset"]).collect();
    let all = foldwire::Preset::ALL.iter().map(|preset| preset.name());
    assert_eq!(names, all.collect::<Vec<_>>());
    assert_eq!(object["threads"]["built_in"], true);
    assert_eq!(object["mpi"]["built_in"], cfg!(feature = "mpi"));
    assert_eq!(object["libfabric"]["built_in"], cfg!(feature = "libfabric"));
    assert_eq!(object["tcp"]["built_in"], cfg!(feature = "tcp"));
    assert_eq!(object["cuda"]["built_in"], cfg!(feature = "cuda"));
    if let Some(missing) = object["cuda"]["driver"].as_str().filter(|it| it.starts_with('m')) {
        assert!(missing.contains("install NVIDIA's driver"), "{missing}");
    }
}

#[cfg(not(feature = "mpi"))]
#[test]
fn an_absent_backend_says_how_to_get_it() {
    let output = info(&[], &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("--features mpi") && text.contains("libopenmpi-dev"), "{text}");
}

#[cfg(feature = "tcp")]
#[test]
fn tcp_has_the_settings_of_the_environment() {
    let found = |env: &[(&str, &str)]| {
        let tcp = &json(env)["tcp"];
        ["streams", "encrypts", "shares_memory"].map(|name| tcp[name].clone())
    };
    let settings = |n_streams: u64, encrypts: bool, shares_memory: bool| -> [Value; 3] {
        [n_streams.into(), encrypts.into(), shares_memory.into()]
    };
    assert_eq!(found(&[]), settings(1, false, cfg!(target_os = "linux")));
    let own = [("FOLDWIRE_STREAMS", "3"), ("FOLDWIRE_SHARE_MEMORY", "0")];
    assert_eq!(found(&own), settings(3, false, false));
    // Nothing is shared if connections are encrypted.
    let encrypted = [("FOLDWIRE_ENCRYPT", "1"), ("FOLDWIRE_SHARE_MEMORY", "1")];
    assert_eq!(found(&encrypted), settings(1, true, false));
    let wrong = &json(&[("FOLDWIRE_SHARE_MEMORY", "yes")])["tcp"]["error"];
    assert!(wrong.as_str().unwrap().contains("FOLDWIRE_SHARE_MEMORY"), "{wrong}");
}

#[test]
fn the_place_is_that_of_the_environment() {
    let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "3"), ("PMI_LOCAL_SIZE", "3")];
    let place = &json(&pmi)["place"];
    assert!(place["error"].as_str().unwrap().contains("FOLDWIRE_JOB"), "{place}");
    let place = &json(&[&pmi[..], &[("PMI_JOBID", "7")]].concat())["place"];
    assert_eq!(
        (&place["from"], &place["rank"], &place["size"]),
        (&"PMI".into(), &1.into(), &3.into())
    );
    let place = &json(&[("FOLDWIRE_RANK", "x")])["place"];
    assert!(place["error"].as_str().unwrap().contains("FOLDWIRE_RANK holds `x`"), "{place}");
}

#[test]
fn choices_are_those_of_the_link_and_the_nodes_that_are_asked_for() {
    let rows = "all-reduce:8::link=-10gbit:circulant,all-reduce:8::node=2-:double-tree";
    let chosen = |args: &[&str]| {
        let args = [&["--json"], args].concat();
        let object: Value =
            serde_json::from_slice(&info(&args, &[("FOLDWIRE_SELECT", rows)]).stdout).unwrap();
        let choices = &object["choices"];
        // The printed rules have the syntax of the variable.
        assert_eq!(choices["FOLDWIRE_SELECT"], rows);
        let of_8 = |row: &&Value| row["collective"] == "all-reduce" && row["ranks"] == 8;
        let names = choices["rows"].as_array().unwrap().iter().filter(of_8);
        names.map(|row| row["schedule"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let by_model = chosen(&[]);
    assert_eq!(by_model, ["recursive-doubling", "circulant", "ring"]);
    assert_eq!(chosen(&["--link", "1gbit"]), ["circulant"]);
    assert_eq!(chosen(&["--link", "1gbit", "--ranks-per-node", "4"]), ["circulant"]);
    assert_eq!(chosen(&["--ranks-per-node", "4"]), ["double-tree"]);
    // The selection has no rule for nodes of different sizes.
    assert_eq!(chosen(&["--ranks-per-node", "3"]), by_model);
}

#[test]
fn choices_are_those_of_the_model_and_of_the_environment() {
    let rows = |env: &[(&str, &str)]| json(env)["choices"]["rows"].as_array().unwrap().clone();
    let of = |rows: &[Value], collective: &str, ranks: u64| -> Vec<(u64, String)> {
        let is = |row: &&Value| row["collective"] == collective && row["ranks"] == ranks;
        let range = |row: &Value| {
            (row["from_bytes"].as_u64().unwrap(), row["schedule"].as_str().unwrap().to_owned())
        };
        rows.iter().filter(is).map(range).collect()
    };
    let plain = of(&rows(&[]), "all-reduce", 8);
    assert_eq!(plain[0], (0, "recursive-doubling".to_owned()));
    let names: Vec<&str> = plain.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["recursive-doubling", "circulant", "ring"]);
    let set = [("FOLDWIRE_SELECT", "all-reduce:8:4K-:pairwise")];
    let chosen = of(&rows(&set), "all-reduce", 8);
    assert_eq!(chosen[1..], [(4096, "pairwise".to_owned())]);
    assert_eq!(of(&rows(&set), "all-reduce", 64), of(&rows(&[]), "all-reduce", 64));
    let wrong = json(&[("FOLDWIRE_SELECT", "all-reduce:8:ring")]);
    assert!(wrong["choices"]["FOLDWIRE_SELECT"].as_str().unwrap().starts_with("wrong"), "{wrong}");
}

#[test]
fn presets_alone_are_those_of_info() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_foldwire")).args(["presets", "--json"]).output().unwrap();
    let object: Value = serde_json::from_slice(&output.stdout).expect("stdout is one JSON object");
    assert_eq!(object, json(&[])["presets"]);
    assert!(object["rows"].as_array().unwrap().iter().all(|row| row["source"].is_string()));
}
