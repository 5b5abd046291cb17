//! Builds a client: checks the address and the key, and takes values that were not given from the environment.
//!
//! This module decides which key is sent to which address: a key from the environment goes only to the address of its
//! own pair, and no key leaves the machine unencrypted unless [`Builder::allow_http`] allows it.

mod environment;

#[cfg(feature = "cli")]
pub(super) use environment::OPENAI_ORIGIN;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::extra_headers::ExtraHeaders;
use super::retry::Retry;
use super::retry_notice::{RetryNotice, RetryObserver};
use super::session::BearerCredentials;
use super::transport::Transport;
use super::{Client, ClientState, Error};
use crate::service_settings::split_operation;

/// The time limit for connecting (our choice): long enough for one or two lost packets, and short compared with the
/// time that an image takes.
#[cfg(not(target_arch = "wasm32"))]
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// The path of a base URL without one, and that of the API document.
pub(super) const DEFAULT_BASE_PATH: &str = "/v1";

/// The settings of a [`Client`] that is to be built.
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
    retry: Retry,
    omits_idempotency_keys: bool,
    deadline: Option<Duration>,
    allows_http: bool,
    http: Option<reqwest::Client>,
    transport: Option<Arc<dyn Transport>>,
    retry_observer: Option<RetryObserver>,
    headers: ExtraHeaders,
}

// === impl Builder ===

impl Builder {
    /// Sets the base URL of the service, to which the paths of the API are added: `https://host/v1`, or what another
    /// service documents, such as `https://host/v1beta/openai` or `https://host/api/v3`. A URL without a path gets `/v1`.
    pub fn base_url(mut self, base_url: impl Into<String>) -> Self {
        self.base_url = Some(base_url.into());
        self
    }

    /// Sets the key, as the service issued it.
    pub fn api_key(mut self, api_key: impl Into<String>) -> Self {
        self.api_key = Some(api_key.into());
        self
    }

    /// Allows the client to send the key over plain http to another machine, where every machine on the way can read
    /// it. Use this only for a private network that you trust. Without it the client refuses such an address before it
    /// sends anything; an address on this machine (`localhost` and the loopback addresses) is never refused.
    pub fn allow_http(mut self, allow: bool) -> Self {
        self.allows_http = allow;
        self
    }

    /// Sets how often the client may send a call again if it is certain, or the service says, that nothing is paid for
    /// twice. The default is 2, which is also the maximum.
    pub fn max_retries(mut self, max_retries: u32) -> Self {
        self.retry = self.retry.max_retries(max_retries);
        self
    }

    /// Sets the policy of retries; a request can have one of its own.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets whether a call for images gets an idempotency key of its own if its request has none. The default is true:
    /// the key is the same for all retries of the call, so a gateway pays for the images once, whatever happens to its
    /// answer. It keeps the answer for that, for a day.
    ///
    /// If the program drops the call or the stream before its end, or if its error leaves the outcome unknown
    /// ([`Error::is_outcome_unknown`]), the client and its clones keep the key for an hour, and give it to the next equal
    /// call: one with the same operation, headers and body, with the content of its files. So a gateway sends the image
    /// that it has made. Of several equal calls, only one gets the key. A gateway completes a stream with a key, and
    /// charges for it, also after its caller has gone.
    ///
    /// A stream of [`ResponseCalls::stream`](super::ResponseCalls::stream) gets no key, because programs cancel tasks by
    /// dropping it. In a browser no call gets one.
    pub fn idempotency_keys(mut self, adds: bool) -> Self {
        self.omits_idempotency_keys = !adds;
        self
    }

    /// Sets the limit of each call that can make images, as a whole: see
    /// [`GenerateRequest::deadline`](super::GenerateRequest::deadline). There is none by default, and a request can have
    /// its own.
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.deadline = Some(limit);
        self
    }

    /// Sets the HTTP client to use, for your own proxy or TLS settings. It should not follow redirects, because they
    /// lead to addresses that are not checked.
    pub fn http_client(mut self, http: reqwest::Client) -> Self {
        self.http = Some(http);
        self
    }

    /// Sets the transport that carries each attempt of each call, for tracing, recording or tests. Without one, the HTTP
    /// client does. To keep a handle of the transport, give an `Arc` of it.
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }

    /// Sets a function that is called each time the client is going to send a call again, before it waits. It should
    /// return at once, because the call waits for it.
    ///
    /// ```
    /// use imagate::Client;
    ///
    /// let builder = Client::builder().base_url("https://images.example").api_key("sk-img-…");
    /// let client = builder
    ///     .on_retry(|retry| eprintln!("attempt {} in {:?}: {}", retry.attempt, retry.pause, retry.reason))
    ///     .build()?;
    /// # Ok::<(), imagate::client::Error>(())
    /// ```
    pub fn on_retry(mut self, observe: impl Fn(&RetryNotice) + Send + Sync + 'static) -> Self {
        self.retry_observer = Some(Arc::new(observe));
        self
    }

    /// Adds a header to each request, such as `openai-organization`, `openai-project`, or `api-key` for a service that
    /// does not read `authorization`. It replaces a header of the client with the same name. Values are not printed.
    /// A request can have headers of its own, such as those of
    /// [`GenerateRequest::header`](crate::client::GenerateRequest::header).
    ///
    /// A name or a value that cannot be sent is an error of [`Builder::build`].
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push(name.into(), value.into());
        self
    }

    /// Builds the client.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no key, or none for this address, if a value cannot be used, if the key would go
    /// over plain http to another machine, or if the TLS library does not start.
    pub fn build(self) -> Result<Client, Error> {
        let pair = environment::complete_pair(self.base_url, self.api_key, environment::variable)?;
        let address = ServiceAddress::parse(&pair.base_url)?;
        if !address.is_encrypted && !address.is_local && !self.allows_http {
            return Err(unencrypted_error("the base URL", "the key"));
        }
        let credentials = BearerCredentials::new("API key", &pair.api_key)?;
        let headers = self.headers.parse(|_, problem| Error::settings(problem))?;
        let http = self.http.map_or_else(|| http_client(address.is_local), Ok)?;
        let (transport, retry, adds_idempotency_keys) = (self.transport, self.retry, !self.omits_idempotency_keys);
        let state = ClientState {
            address,
            http,
            transport,
            retry_observer: self.retry_observer,
            credentials,
            retry,
            headers,
            adds_idempotency_keys,
            unfinished_calls: Arc::default(),
            deadline: self.deadline,
            honors_keys: Arc::default(),
        };
        Ok(Client { shared: Arc::new(state) })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("base_url", &self.base_url)
            .field("api_key", &self.api_key.as_ref().map(|_| "[redacted]"))
            .field("retry", &self.retry)
            .field("allows_http", &self.allows_http)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

/// Builds the HTTP client. Redirects are not followed: they would send the key, and a second paid request, to another
/// address.
#[cfg(not(target_arch = "wasm32"))]
fn http_client(is_local: bool) -> Result<reqwest::Client, Error> {
    build_http_client(http_builder(is_local))
}

#[cfg(not(target_arch = "wasm32"))]
pub(super) fn build_http_client(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, Error> {
    #[cfg(feature = "rustls-no-provider")]
    check_crypto_provider(cfg!(feature = "rustls") || rustls::crypto::CryptoProvider::get_default().is_some())?;
    builder.build().map_err(|source| Error::settings_from("the HTTP client cannot be created", source))
}

/// Returns the settings of the HTTP client. A service on this machine is not called through a proxy from the
/// environment, because the proxy could read the key.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn http_builder(is_local: bool) -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).connect_timeout(CONNECT_LIMIT);
    if is_local { builder.no_proxy() } else { builder }
}

/// Returns an error if rustls has no provider of cryptography, because reqwest would panic.
#[cfg(all(feature = "rustls-no-provider", not(target_arch = "wasm32")))]
fn check_crypto_provider(is_installed: bool) -> Result<(), Error> {
    const PROBLEM: &str = "rustls has no provider of cryptography: call `CryptoProvider::install_default` before the \
                           client is built, or enable the feature `rustls`";
    if is_installed { Ok(()) } else { Err(Error::settings(PROBLEM)) }
}

#[cfg(target_arch = "wasm32")]
fn http_client(_: bool) -> Result<reqwest::Client, Error> {
    reqwest::Client::builder()
        .build()
        .map_err(|source| Error::settings_from("the HTTP client cannot be created", source))
}

/// The address of a service.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServiceAddress {
    /// Scheme, host and port.
    pub(super) origin: String,
    /// The path before the paths of the API, without a slash at its end.
    pub(super) base_path: Arc<str>,
    /// True if the address is on this machine.
    pub(super) is_local: bool,
    pub(super) is_encrypted: bool,
}

// === impl ServiceAddress ===

impl ServiceAddress {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let url = parse_web_address(text)?;
        let is_encrypted = url.scheme() == "https";
        let is_local = url.host_str().is_some_and(is_loopback);
        let path = url.path().trim_end_matches('/');
        if let Some((path, operation)) = split_operation(path) {
            let origin = url.origin().ascii_serialization();
            return Err(Error::settings(format!(
                "the base URL must end before `{operation}`, which is added to it: write {origin}{path}"
            )));
        }
        let base_path = if path.is_empty() { DEFAULT_BASE_PATH } else { path }.into();
        Ok(Self { origin: url.origin().ascii_serialization(), base_path, is_local, is_encrypted })
    }

    /// Returns the base URL.
    pub(super) fn url(&self) -> String {
        format!("{}{}", self.origin, self.base_path)
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

pub(super) fn unencrypted_error(address: &str, key: &str) -> Error {
    Error::settings(format!(
        "{address} is plain http to another machine, so others on the network could read {key}: use https, or allow plain http if you trust the network"
    ))
}

fn parse_web_address(text: &str) -> Result<reqwest::Url, Error> {
    let error = |problem: &str| Error::settings(format!("the base URL {problem}"));
    // The error does not show the text, because it may contain a password.
    let url = reqwest::Url::parse(text.trim()).map_err(|_| error("is not a URL such as https://host/v1"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(error("must begin with http:// or https:// and name a host"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(error("must not contain a user or password: give the API key separately"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(error("must not have a query or a fragment"));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(ServiceAddress::parse(text).ok().map(|address| address.url()).as_deref(), expected, "{text}");
    }

    #[test]
    fn a_key_goes_over_plain_http_only_to_this_machine_or_if_allowed() {
        let build = |base_url: &str, allow| {
            Client::builder().base_url(base_url).api_key("sk-img-secret").allow_http(allow).build().err()
        };
        for local in ["http://localhost:8080", "http://127.0.0.1/v1", "http://127.8.9.1:1", "http://[::1]:8080/v1"] {
            assert!(build(local, false).is_none(), "{local}");
        }
        for remote in
            ["http://host/v1", "http://10.0.0.1:8080", "http://0.0.0.0:80", "http://[::2]", "http://localhost.example"]
        {
            let error = build(remote, false).expect(remote).to_string();
            assert!(error.contains("https") && !error.contains("secret"), "{error}");
            assert!(
                build(remote, true).is_none() && build(&remote.replace("http:", "https:"), false).is_none(),
                "{remote}"
            );
        }
    }

    #[test]
    fn a_base_url_is_used_as_given_unless_it_has_no_path() {
        for text in ["https://host/v1", "https://host/v1/", "https://host", "https://host/", " HTTPS://Host:443/v1 "] {
            check(text, Some("https://host/v1"));
        }
        check("http://127.0.0.1:8080", Some("http://127.0.0.1:8080/v1"));
        for text in
            ["https://host/openai", "https://host/v1beta/openai", "https://host/api/v3", "https://host/a%20b/v1"]
        {
            check(text, Some(text));
            check(&format!("{text}/"), Some(text));
        }
    }

    #[test]
    fn a_base_url_with_an_operation_and_a_key_that_is_not_alone_are_refused_with_what_to_write() {
        let error = |base_url: &str, key: &str| {
            let built = Client::builder().base_url(base_url).api_key(key).build();
            built.err().unwrap().to_string()
        };
        let text = error("https://host/openai/v1/images/generations/", "sk-k");
        assert!(text.contains("`/images/generations`") && text.ends_with("write https://host/openai/v1"), "{text}");
        for key in ["Bearer sk-hidden", "\"sk-hidden\"", "'Bearer sk-hidden'"] {
            let text = error("https://host/v1", key);
            assert!(text.starts_with("the API key ") && text.contains("write") && !text.contains("hidden"), "{text}");
        }
        assert!(Client::builder().base_url("https://host").api_key("\u{feff}sk-k\n").build().is_ok());
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_an_error_without_its_value() {
        let build =
            |name, value| Client::builder().base_url("https://host").api_key("sk-k").header(name, value).build().err();
        assert!(build("OpenAI-Project", "p-1").is_none());
        for (name, value) in [("a b", "hidden"), ("", "hidden"), ("x-a", "hidden\n")] {
            let error = build(name, value).expect(name).to_string();
            assert!(error.contains(&format!("{name:?}")) && !error.contains("hidden"), "{error}");
        }
        let builder = Client::builder().header("api-key", "hidden");
        assert!(format!("{builder:?}").contains("api-key") && !format!("{builder:?}").contains("hidden"));
    }

    #[test]
    fn an_address_that_is_no_plain_web_address_is_refused() {
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
        let error = ServiceAddress::parse("https://user:hunter2@host").err().unwrap();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}
