//! The headers that a program adds to all requests of a client or to one request.

use std::fmt;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::Error;

/// Headers as they were given. Their values may be secrets, so they are not printed.
#[derive(Clone, Default)]
pub(super) struct ExtraHeaders(Vec<(String, String)>);

// === impl ExtraHeaders ===

impl ExtraHeaders {
    pub(super) fn push(&mut self, name: String, value: String) {
        self.0.push((name, value));
    }

    /// Returns the headers as they are sent. `to_error` gets the name of the first one that cannot be sent, and the
    /// problem.
    pub(super) fn parse(&self, to_error: impl Fn(&str, String) -> Error) -> Result<HeaderMap, Error> {
        let parse = |(name, value): &(String, String)| {
            let problem = |problem: &str| to_error(name, format!("the header {name:?} {problem}"));
            let header = HeaderName::try_from(name).map_err(|_| problem("has an invalid name"))?;
            let mut value = HeaderValue::try_from(value).map_err(|_| problem("has characters that cannot be sent"))?;
            value.set_sensitive(true);
            Ok((header, value))
        };
        self.0.iter().map(parse).collect()
    }
}

impl fmt::Debug for ExtraHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}
