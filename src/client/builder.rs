//! Makes a client: checks the address and the key, and fills in from the environment what was not chosen.

use std::fmt;
use std::sync::Arc;
#[cfg(not(target_arch = "wasm32"))]
use std::time::Duration;

use super::session::Credentials;
use super::{Client, Error, Shared};

/// The gateway on this machine, as it listens when nothing is configured.
const DEFAULT_BASE_URL: &str = "http://127.0.0.1:8080/v1";

/// Names of the environment, the first one that is set wins.
const BASE_URL_VARIABLES: [&str; 2] = ["IMAGATE_BASE_URL", "OPENAI_BASE_URL"];
const API_KEY_VARIABLES: [&str; 2] = ["IMAGATE_API_KEY", "OPENAI_API_KEY"];

/// Specification: "low retry counts". Ours: two, as the official clients do; none where there is no timer to wait with.
const MAX_RETRIES: u32 = if cfg!(target_arch = "wasm32") { 0 } else { 2 };

/// Ours: long enough for a lost packet or two, short against the time that an image takes.
#[cfg(not(target_arch = "wasm32"))]
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// What can be chosen about a [`Client`].
///
/// ```
/// use imagate::Client;
///
/// let client = Client::builder().base_url("https://images.example/v1").api_key("sk-img-…").max_retries(0).build()?;
/// # Ok::<(), imagate::client::Error>(())
/// ```
#[derive(Clone, Default)]
#[must_use = "it makes a client with `build`"]
pub struct Builder {
    base_url: Option<String>,
    api_key: Option<String>,
    max_retries: Option<u32>,
    http: Option<reqwest::Client>,
}

// === impl Builder ===

impl Builder {
    /// The address of the service, with or without `/v1` at its end.
    pub fn base_url(mut self, base_url: impl Into<String>) -> Self {
        self.base_url = Some(base_url.into());
        self
    }

    /// The key, as the service issued it.
    pub fn api_key(mut self, api_key: impl Into<String>) -> Self {
        self.api_key = Some(api_key.into());
        self
    }

    /// How often a call may be sent again when it is certain, or the service says, that nothing is paid twice.
    /// 2 when not chosen, and never more.
    pub fn max_retries(mut self, max_retries: u32) -> Self {
        self.max_retries = Some(max_retries.min(MAX_RETRIES));
        self
    }

    /// The HTTP client to use, for a proxy or TLS settings of your own. It should not follow redirects.
    pub fn http_client(mut self, http: reqwest::Client) -> Self {
        self.http = Some(http);
        self
    }

    /// The client.
    ///
    /// # Errors
    ///
    /// There is no key, a value cannot be used, or the TLS library does not start.
    pub fn build(self) -> Result<Client, Error> {
        let from_environment = || variable(&BASE_URL_VARIABLES).unwrap_or_else(|| DEFAULT_BASE_URL.to_owned());
        let base_url = base_url(&self.base_url.unwrap_or_else(from_environment))?;
        let api_key = self.api_key.or_else(|| variable(&API_KEY_VARIABLES));
        let missing = || Error::settings("there is no API key: set IMAGATE_API_KEY, or give one");
        let credentials = Credentials::new(&api_key.ok_or_else(missing)?)?;
        let http = self.http.map_or_else(http_client, Ok)?;
        let max_retries = self.max_retries.unwrap_or(MAX_RETRIES);
        Ok(Client { shared: Arc::new(Shared { base_url, http, credentials, max_retries }) })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("base_url", &self.base_url)
            .field("api_key", &self.api_key.as_ref().map(|_| "[redacted]"))
            .field("max_retries", &self.max_retries)
            .finish_non_exhaustive()
    }
}

/// The first of these variables that is set to something.
#[expect(clippy::disallowed_methods, reason = "the SDK's own reader of the environment, which the gateway never uses")]
fn variable(names: &[&str]) -> Option<String> {
    let set = names.iter().filter_map(|name| std::env::var(name).ok());
    set.map(|value| value.trim().to_owned()).find(|value| !value.is_empty())
}

/// Redirects are not followed: they would take the key, and a second paid request, to another address.
#[cfg(not(target_arch = "wasm32"))]
fn http_client() -> Result<reqwest::Client, Error> {
    http_builder().build().map_err(|source| Error::settings_from("the HTTP client does not start", source))
}

#[cfg(not(target_arch = "wasm32"))]
pub(super) fn http_builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).connect_timeout(CONNECT_LIMIT)
}

#[cfg(target_arch = "wasm32")]
fn http_client() -> Result<reqwest::Client, Error> {
    reqwest::Client::builder().build().map_err(|source| Error::settings_from("the HTTP client does not start", source))
}

/// The address without `/v1`, which the generated paths begin with.
fn base_url(text: &str) -> Result<String, Error> {
    let refuse = |what: &str| Error::settings(format!("the base URL {what}"));
    // The text itself is not shown: it may hold a password.
    let url = reqwest::Url::parse(text.trim()).map_err(|_| refuse("is not a web address such as https://host/v1"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(refuse("must begin with http:// or https:// and name a host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse("must not hold a user or password: the key is given apart"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(refuse("must not have a query or a fragment"));
    }
    let whole = url.as_str().trim_end_matches('/');
    Ok(whole.strip_suffix("/v1").unwrap_or(whole).trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(base_url(text).ok().as_deref(), expected, "{text}");
    }

    #[test]
    fn the_version_may_stand_in_the_address_or_not() {
        for text in ["https://host/v1", "https://host/v1/", "https://host", "https://host/", " HTTPS://Host/v1 "] {
            check(text, Some("https://host"));
        }
        check("http://127.0.0.1:8080/v1", Some("http://127.0.0.1:8080"));
        check("https://host/openai/v1", Some("https://host/openai"));
    }

    #[test]
    fn what_is_no_plain_address_is_refused() {
        for text in [
            "",
            "host/v1",
            "/v1",
            "ftp://host/v1",
            "https://",
            "https://user:pw@host/v1",
            "https://host/v1?a=b",
            "https://host/v1#x",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn an_error_does_not_show_a_password_in_the_address() {
        let error = base_url("https://user:hunter2@host").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}
