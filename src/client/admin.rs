//! The client of the admin API: keys, users, admin tokens, groups, records, usage, the audit trail and the upstream
//! accounts.
//!
//! Members can use the API for the objects that belong to them.
//!
//! ```no_run
//! use imagate::admin::{connect, types};
//! use imagate::client::Error;
//!
//! # fn save(_: &str) {}
//! async fn create_key(token: &str) -> Result<(), Error> {
//!     let admin = connect("https://images.example", token)?;
//!     let new = types::NewKey::builder().name(types::KeyName::try_from("laptop")?);
//!     let created = admin.create_key().body(new).send().await?;
//!     println!("{} belongs to the group {}", created.key.public_id, created.key.group);
//!     // No later answer contains the secret.
//!     save(created.secret.expose());
//!
//!     for key in &admin.list_keys().state(types::KeyState::Active).send().await?.data {
//!         println!("{}: {} images", key.name, key.images);
//!     }
//!     let usage = admin.retrieve_usage().send().await?;
//!     println!("{} images in 30 days", usage.totals.images);
//!     Ok(())
//! }
//! ```
//!
//! # Errors
//!
//! Every call fails with the [`Error`] of the SDK: [`Error::status`] and [`Error::code`] say how the gateway answered,
//! and [`Error::param`] names the field or the parameter at fault. No error contains the token. A call that only reads
//! is sent again, like other calls that make no image; a change is sent again only if it never reached the gateway.
//!
//! # Newer gateways
//!
//! A word of an answer is an [`OpenWord`](crate::OpenWord), and a struct of an answer keeps members that this version
//! does not know in `extra`: a gateway that is newer than this crate can be managed with it.

pub use super::Error;
pub use crate::wire::admin::client::Client;
pub use crate::wire::admin::open::types;

use std::fmt;
#[cfg(feature = "cli")]
use std::pin::Pin;
#[cfg(feature = "cli")]
use std::sync::Arc;
use std::time::Duration;

use progenitor_client::{ClientHooks, ClientInfo as _, Error as WireError, OperationInfo, ResponseValue};
use reqwest::header::{AUTHORIZATION, USER_AGENT};
use reqwest::{Method, Request, Response};

use super::builder::{DEFAULT_BASE_PATH, ServiceAddress, build_http_client, http_builder, unencrypted_error};
use super::retry::{self, Retry, SendOutcome};
use super::session::{AGENT, BearerCredentials};

/// The time limit of a request (our choice): generous, because the store answers in milliseconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The address and the token of requests that do not leave the process. Nothing reads them.
#[cfg(feature = "cli")]
const LOCAL_ADDRESS: &str = "http://localhost";
#[cfg(feature = "cli")]
const LOCAL_TOKEN: &str = "local";

/// The settings of a client of the admin API; from [`builder`].
#[must_use = "it does nothing until `build` is called"]
pub struct Builder {
    address: String,
    token: String,
    allows_http: bool,
    retry: Retry,
}

/// The inner value of the generated client: the token, and how often a call is sent again.
#[doc(hidden)]
#[derive(Clone)]
pub struct AdminSession {
    credentials: BearerCredentials,
    retry: Retry,
    /// Answers the requests in place of a gateway at an address.
    #[cfg(feature = "cli")]
    handler: Option<LocalHandler>,
}

/// The admin API of an installation that is open in this process: answers a request without a connection.
#[cfg(feature = "cli")]
pub(crate) type LocalHandler = Arc<dyn Fn(Request) -> LocalAnswer + Send + Sync>;

/// The answer of a [`LocalHandler`].
#[cfg(feature = "cli")]
pub(crate) type LocalAnswer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Creates a client for the gateway at this address, with the admin token of a user or of the settings. A `/v1` at the
/// end of the address is left out.
///
/// A token is not sent over plain http to another machine; if you trust the network, see [`Builder::allow_http`].
///
/// # Errors
///
/// Returns an error if the address is not a web address or is plain http to another machine, if the token cannot be
/// sent in a header, or if no HTTP client can be built on this machine.
pub fn connect(address: &str, token: &str) -> Result<Client, Error> {
    builder(address, token).build()
}

/// Returns the settings of a client for the gateway at this address, with an admin token.
pub fn builder(address: impl Into<String>, token: impl Into<String>) -> Builder {
    Builder { address: address.into(), token: token.into(), allows_http: false, retry: Retry::new() }
}

/// Creates a client whose requests this handler answers. It needs no token, because nothing leaves the process.
#[cfg(feature = "cli")]
pub(crate) fn connect_locally(handler: LocalHandler) -> Result<Client, Error> {
    let credentials = BearerCredentials::new("admin token", LOCAL_TOKEN)?;
    let session = AdminSession { credentials, retry: Retry::new(), handler: Some(handler) };
    // A machine without certificates has local commands too.
    let http = build_http_client(http_builder(true).tls_certs_only([]))?;
    Ok(Client::new_with_client(LOCAL_ADDRESS, http, session))
}

// === impl Builder ===

impl Builder {
    /// Allows sending the token over plain http to another machine. Others on the network can read it there, and use it.
    pub const fn allow_http(mut self, allow: bool) -> Self {
        self.allows_http = allow;
        self
    }

    /// Sets how often a call is sent again.
    pub const fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Builds the client.
    ///
    /// # Errors
    ///
    /// Fails like [`connect`], except that plain http may be allowed.
    pub fn build(self) -> Result<Client, Error> {
        let ServiceAddress { origin, base_path, is_local, is_encrypted } = ServiceAddress::parse(&self.address)?;
        if !is_encrypted && !is_local && !self.allows_http {
            return Err(unencrypted_error("the address", "the token"));
        }
        let session = AdminSession {
            credentials: BearerCredentials::new("admin token", &self.token)?,
            retry: self.retry,
            #[cfg(feature = "cli")]
            handler: None,
        };
        let http = build_http_client(http_builder(is_local).timeout(REQUEST_TIMEOUT))?;
        // The paths of the admin API do not begin with that of the public one.
        let prefix = base_path.strip_suffix(DEFAULT_BASE_PATH).unwrap_or(&base_path);
        Ok(Client::new_with_client(&format!("{origin}{prefix}"), http, session))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, allows_http, retry, .. } = self;
        let mut debug = f.debug_struct("Builder");
        debug.field("address", address).field("allows_http", allows_http).field("retry", retry);
        debug.finish_non_exhaustive()
    }
}

// === impl AdminSession ===

impl AdminSession {
    /// Returns the answer of a call, or the reason of its failure.
    pub(crate) async fn finish<T>(&self, result: Result<ResponseValue<T>, WireError<()>>) -> Result<T, Error> {
        match result {
            Ok(answer) => Ok(answer.into_inner()),
            Err(error) => Err(Error::from_admin_call(error, &self.credentials, REQUEST_TIMEOUT).await),
        }
    }
}

impl fmt::Debug for AdminSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminSession").field("retry", &self.retry).finish_non_exhaustive()
    }
}

impl ClientHooks<AdminSession> for Client {
    async fn pre<E>(&self, request: &mut Request, _: &OperationInfo) -> Result<(), WireError<E>> {
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, self.inner().credentials.authorization());
        headers.insert(USER_AGENT, AGENT);
        Ok(())
    }

    async fn exec(&self, mut request: Request, _: &OperationInfo) -> reqwest::Result<Response> {
        #[cfg(feature = "cli")]
        if let Some(handler) = &self.inner().handler {
            return Ok(handler(request).await);
        }
        let policy = self.inner().retry;
        let only_reads = request.method() == Method::GET;
        let mut retries = 0;
        loop {
            let next_request = if policy.allows_another(retries) { request.try_clone() } else { None };
            let result = self.client().execute(request).await;
            let outcome = SendOutcome::from_result(&result, retry::was_never_sent);
            let outcome = if only_reads { outcome } else { outcome.without_implicit_retry() };
            let pause = retry::retry_pause(&outcome, policy, retries, retry::jitter());
            let (Some(next), Some(pause)) = (next_request, pause) else { return result };
            retry::sleep(pause).await;
            retries += 1;
            request = next;
        }
    }
}
