//! This process's place in a job, as its environment specifies it.

use foldwire_bootstrap::{Launcher, Place, PlaceError};
use serde_json::Value;

use super::section::{ReportCell, ReportSection};

pub(super) fn section() -> ReportSection {
    of(Place::from_env())
}

fn of(place: Result<Place, PlaceError>) -> ReportSection {
    let section = ReportSection::new("place", "Place in a group, from the environment");
    let place = match place {
        Err(error) => return section.property("error", error.to_string()),
        Ok(place) => place,
    };
    let section = section
        .property(
            "from",
            match place.launcher {
                Launcher::Alone => ReportCell::new("nothing is set: a single process", Value::Null),
                launcher => launcher.to_string().into(),
            },
        )
        .property("rank", place.rank.index())
        .property("size", place.size);
    if place.size == 1 {
        return section;
    }
    let token = match (&place.token, place.root.is_loopback()) {
        (Some(_), _) => ReportCell::new("set", true),
        (None, true) => ReportCell::new("not set (and not needed on one machine)", false),
        (None, false) => {
            ReportCell::new("not set; set FOLDWIRE_TOKEN to the same secret on every rank", false)
        }
    };
    section
        .property("root", place.root.to_string())
        .property("job", place.job.to_string())
        .property("token", token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(env: &[(&str, &str)]) -> String {
        let lookup = |name: &str| {
            env.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        };
        of(Place::detect(lookup)).text()
    }

    #[test]
    fn a_place_is_shown_without_its_secret() {
        let mut env =
            vec![("FOLDWIRE_RANK", "1"), ("FOLDWIRE_SIZE", "2"), ("FOLDWIRE_ROOT", "node1:80")];
        assert!(text(&env).contains("node1:80"));
        assert!(text(&env).contains("set FOLDWIRE_TOKEN"));
        env.push(("FOLDWIRE_TOKEN", "0123456789abcdef"));
        assert!(text(&env).contains("token  set\n") && !text(&env).contains("0123"));
    }

    #[test]
    fn a_broken_environment_is_told_in_its_place() {
        assert!(text(&[("FOLDWIRE_RANK", "x")]).contains("FOLDWIRE_RANK holds `x`"));
        assert!(text(&[]).contains("a single process"));
    }
}
