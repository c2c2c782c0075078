//! Errors in JSON, which has no infinite numbers: `"inf"` stands for one. A `null` would say that
//! no error is known.
//!
//! For a field of type `f64` or `Option<f64>`: `#[serde(with = "infinite")]`.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Writes a finite number as it is, and any other as a text.
///
/// # Errors
/// Errors of the serializer.
pub fn serialize<X: Copy + Into<Option<f64>>, S: Serializer>(
    number: &X,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let number: Option<f64> = (*number).into();
    match number {
        Some(number) if !number.is_finite() => serializer.collect_str(&number),
        number => number.serialize(serializer),
    }
}

/// Reads what [`serialize`] wrote.
///
/// # Errors
/// If it is neither a number nor the text of one.
pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Finite(f64),
        Text(String),
    }

    Option::<Number>::deserialize(deserializer)?
        .map(|number| match number {
            Number::Finite(number) => Ok(number),
            Number::Text(text) => text.parse().map_err(D::Error::custom),
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Row {
        #[serde(default, with = "super")]
        error: Option<f64>,
    }

    #[test]
    fn an_infinite_error_is_not_an_unknown_one() {
        for (error, text) in [
            (Some(0.5), r#"{"error":0.5}"#),
            (Some(f64::INFINITY), r#"{"error":"inf"}"#),
            (None, r#"{"error":null}"#),
        ] {
            assert_eq!(serde_json::to_string(&Row { error }).unwrap(), text);
            assert_eq!(serde_json::from_str::<Row>(text).unwrap(), Row { error });
        }
        assert_eq!(serde_json::from_str::<Row>("{}").unwrap(), Row { error: None });
        assert!(serde_json::from_str::<Row>(r#"{"error":"big"}"#).is_err());
    }
}
