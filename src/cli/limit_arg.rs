//! The argument `--limit NAME=VALUE` of keys and users.

use std::str::FromStr;

use serde_json::{Map, Value};

use super::failure::CommandFailure;
use crate::client::admin::types::RequestLimits;
use crate::gateway::config::check_limits;

/// A limit as written in an argument: its name, and its value as JSON.
#[derive(Clone, Debug)]
pub(super) struct LimitArg(String, Value);

impl FromStr for LimitArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, such as images_per_day=50")?;
        let value = match name {
            "models" => value.split(',').map(Value::from).collect(),
            // A size or a word is not JSON, so it is a text.
            _ => serde_json::from_str(value).unwrap_or_else(|_| value.into()),
        };
        Ok(Self(name.to_owned(), value))
    }
}

/// Returns the limits in the form in which they are stored; `None` if there are none.
///
/// # Errors
///
/// Fails with all limits that cannot be used, or are given twice.
pub(super) fn stored_limits(limits: Vec<LimitArg>) -> Result<Option<String>, CommandFailure> {
    let mut by_name = Map::new();
    for LimitArg(name, value) in limits {
        if by_name.insert(name.clone(), value).is_some() {
            return Err(CommandFailure::Usage(format!("the limit {name} is given twice")));
        }
    }
    check_limits(&by_name).map_err(|problems| CommandFailure::Input(problems.iter().map(ToString::to_string).collect()))
}

/// Returns the limits in the form in which a request to the admin API has them; `None` if there are none.
///
/// # Errors
///
/// Fails like [`stored_limits`].
pub(super) fn request_limits(limits: Vec<LimitArg>) -> Result<Option<RequestLimits>, CommandFailure> {
    let limits = stored_limits(limits)?;
    Ok(limits.map(|limits| serde_json::from_str(&limits)).transpose()?)
}

/// Returns the limits of a request that replaces all limits; without any, the request removes them.
///
/// # Errors
///
/// Fails like [`stored_limits`].
pub(super) fn all_request_limits(limits: Vec<LimitArg>) -> Result<RequestLimits, CommandFailure> {
    Ok(serde_json::from_str(stored_limits(limits)?.as_deref().unwrap_or("{}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(args: &[&str]) -> Result<Option<String>, CommandFailure> {
        stored_limits(args.iter().map(|arg| arg.parse().unwrap()).collect())
    }

    #[test]
    fn limits_are_numbers_words_sizes_and_lists() {
        let stored = stored(&["images_per_day=5", "max_size=2048x2048", "max_quality=low", "models=a,b"]);
        let expected = r#"{"images_per_day":5,"max_size":"2048x2048","max_quality":"low","models":["a","b"]}"#;
        let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(parse(&stored.unwrap().unwrap()), parse(expected));
        assert!("images_per_day".parse::<LimitArg>().is_err());
    }

    #[test]
    fn a_limit_that_is_unknown_impossible_or_given_twice_is_refused() {
        for args in [&["image_per_day=5"][..], &["images_per_day=0"], &["images_per_day=1", "images_per_day=2"]] {
            let failure = stored(args).unwrap_err();
            assert!(matches!(failure, CommandFailure::Usage(_) | CommandFailure::Input(_)), "{args:?}: {failure:?}");
        }
        assert_eq!(stored(&[]).unwrap(), None);
    }
}
