//! Sends requests to the addresses that a manifest names: by https, within limits, and to private networks only if that
//! is allowed.
//!
//! If private networks are not allowed, this module resolves all host names itself. It therefore detects an address in
//! a private network before it connects, even if the DNS answer for a name changes. For the same reason it uses no
//! proxy then, because a proxy resolves names itself.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, ensure};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, ClientBuilder, RequestBuilder, Response, Url};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::rustls;

use crate::manifest::package::Sha256Hasher;
use crate::manifest::{
    FetchBody, FetchError, FetchRequest, FetchResponse, FetchScope, WebFetcher, is_public, may_be_requested,
};

/// The time limit for connecting (our choice).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limits of requests (our choice): a package of the maximum size may take 12 minutes, if bytes arrive.
const TIME_LIMITS: TimeLimits =
    TimeLimits { silence: Duration::from_secs(30), request: Duration::from_secs(60), bytes_per_second: 16 * 1024 };
/// The maximum number of redirects of one request (our choice).
const MAX_REDIRECTS: usize = 5;
/// The maximum number of concurrent requests in all (our choice).
const MAX_CONCURRENT: usize = 8;
/// The maximum number of concurrent requests to one host (our choice).
const MAX_CONCURRENT_PER_HOST: usize = 2;

/// The time limits of requests.
#[derive(Clone, Copy)]
struct TimeLimits {
    /// The maximum time in which nothing arrives.
    silence: Duration,
    /// The time limit for a request, from connecting to the end of the answer, without the time for its body.
    request: Duration,
    /// The rate at which the maximum length of a body must arrive at least, on average.
    bytes_per_second: u32,
}

// === impl TimeLimits ===

impl TimeLimits {
    /// Returns the time limit for a request from connecting to the end of the answer.
    fn of_request(&self, scope: FetchScope) -> Duration {
        let limit = match scope {
            FetchScope::Status => 0,
            FetchScope::Checksum { limit } | FetchScope::Bytes { limit } => limit,
        };
        self.request.saturating_add(Duration::from_secs(limit / u64::from(self.bytes_per_second)))
    }
}

/// The hosts that requests may be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostPolicy {
    /// Hosts that are publicly reachable.
    Public,
    /// All hosts.
    Any,
}

/// The reason why no request is sent to an address.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct AddressRefusal(&'static str);

const PRIVATE_HOST: AddressRefusal =
    AddressRefusal("the host is in a private network; pass --allow-private-hosts to allow it");

// === impl HostPolicy ===

impl HostPolicy {
    pub(super) fn from_allow_private(allow_private: bool) -> Self {
        if allow_private { Self::Any } else { Self::Public }
    }

    fn check_address(self, url: &Url) -> Result<(), AddressRefusal> {
        if may_be_requested(url, self == Self::Any) {
            Ok(())
        } else if url.scheme() != "https" {
            Err(AddressRefusal("only https is asked"))
        } else if may_be_requested(url, true) {
            Err(PRIVATE_HOST)
        } else if !url.username().is_empty() || url.password().is_some() {
            Err(AddressRefusal("a URL with credentials is not requested"))
        } else {
            Err(AddressRefusal("a link-local address is never requested"))
        }
    }

    fn redirect(self, attempt: Attempt<'_>) -> Action {
        if attempt.previous().len() > MAX_REDIRECTS {
            return attempt.error(AddressRefusal("there are too many redirects"));
        }
        match self.check_address(attempt.url()) {
            Ok(()) => attempt.follow(),
            Err(refusal) => attempt.error(refusal),
        }
    }

    fn client(self) -> reqwest::Result<Client> {
        self.client_builder(&TIME_LIMITS).build()
    }

    fn client_builder(self, limits: &TimeLimits) -> ClientBuilder {
        let client = Client::builder()
            .user_agent(concat!("imagate/", env!("CARGO_PKG_VERSION")))
            .https_only(true)
            .redirect(Policy::custom(move |attempt| self.redirect(attempt)))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(limits.silence);
        match self {
            Self::Public => client.no_proxy().dns_resolver(Arc::new(PublicHostResolver)),
            Self::Any => client,
        }
    }
}

/// Resolves names, and drops addresses of private networks. A name that has no other addresses is an error.
struct PublicHostResolver;

impl Resolve for PublicHostResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let resolved: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let public: Vec<SocketAddr> = resolved.iter().copied().filter(|address| is_public(address.ip())).collect();
            if public.is_empty() && !resolved.is_empty() {
                return Err(PRIVATE_HOST.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// Downloads a file, up to the limit.
pub(super) fn download(url: &Url, limit: u64, hosts: HostPolicy) -> anyhow::Result<Vec<u8>> {
    hosts.check_address(url)?;
    let scope = FetchScope::Bytes { limit };
    let response = async {
        let response = send(hosts.client()?.get(url.clone()), scope, &TIME_LIMITS).await?;
        ensure!(response.status().is_success(), "the server answered {}", response.status());
        match read_body(response, scope).await? {
            FetchBody::Bytes(bytes) => Ok(bytes),
            FetchBody::Unread | FetchBody::Checksum { .. } => bail!("the server sent an empty answer"),
        }
    };
    runtime()?.block_on(response)
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// The HTTP client for the online checks.
pub(super) struct WebClient {
    client: Client,
    hosts: HostPolicy,
    runtime: tokio::runtime::Runtime,
}

// === impl WebClient ===

impl WebClient {
    pub(super) fn new(hosts: HostPolicy) -> anyhow::Result<Self> {
        Ok(Self { client: hosts.client()?, hosts, runtime: runtime()? })
    }
}

type IndexedReply = (usize, Result<FetchResponse, FetchError>);

impl WebFetcher for WebClient {
    fn fetch(&self, requests: &[FetchRequest]) -> Vec<Result<FetchResponse, FetchError>> {
        let mut replies = self.runtime.block_on(async { self.send_all(requests).join_all().await });
        replies.sort_unstable_by_key(|(index, _)| *index);
        replies.into_iter().map(|(_, reply)| reply).collect()
    }
}

impl WebClient {
    /// Sends all requests, a few at a time; each reply carries the index of its request.
    fn send_all(&self, requests: &[FetchRequest]) -> JoinSet<IndexedReply> {
        let mut limits = ConcurrencyLimits::default();
        let mut running = JoinSet::new();
        for (index, request) in requests.iter().enumerate() {
            let url = Url::parse(&request.address).ok();
            let permits = limits.acquire(url.as_ref().and_then(Url::host_str).unwrap_or_default());
            let (client, hosts, scope) = (self.client.clone(), self.hosts, request.scope);
            running.spawn(async move {
                let _permits = permits.await;
                (index, fetch(&client, url, scope, hosts).await)
            });
        }
        running
    }
}

/// The limits on concurrent requests, in all and for each host.
struct ConcurrencyLimits {
    all: Arc<Semaphore>,
    hosts: HashMap<String, Arc<Semaphore>>,
}

impl Default for ConcurrencyLimits {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(MAX_CONCURRENT)), hosts: HashMap::new() }
    }
}

// === impl ConcurrencyLimits ===

impl ConcurrencyLimits {
    /// Waits for a permit of the host and a global permit. Both are released when they are dropped.
    fn acquire(&mut self, host: &str) -> impl Future<Output = impl Send + use<>> + Send + use<> {
        let host_permits =
            self.hosts.entry(host.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(MAX_CONCURRENT_PER_HOST)));
        let (host_permits, all_permits) = (Arc::clone(host_permits), Arc::clone(&self.all));
        // The permit of the host comes first, so that a request that waits for it holds no global permit.
        async move { (host_permits.acquire_owned().await, all_permits.acquire_owned().await) }
    }
}

async fn fetch(
    client: &Client,
    url: Option<Url>,
    scope: FetchScope,
    hosts: HostPolicy,
) -> Result<FetchResponse, FetchError> {
    let url = url.ok_or_else(|| FetchError::Forbidden("this is not a URL".to_owned()))?;
    hosts.check_address(&url).map_err(|refusal| FetchError::Forbidden(refusal.to_string()))?;
    if scope == FetchScope::Status {
        let head = send(client.head(url.clone()), scope, &TIME_LIMITS).await?;
        if head.status().is_success() {
            return Ok(FetchResponse { status: head.status().as_u16(), body: FetchBody::Unread });
        }
        // Many hosts refuse HEAD and support only GET, so GET is tried next.
    }
    let response = send(client.get(url), scope, &TIME_LIMITS).await?;
    let status = response.status().as_u16();
    let body = if status == 200 { read_body(response, scope).await? } else { FetchBody::Unread };
    Ok(FetchResponse { status, body })
}

/// Sends a request, and waits for the head of its answer.
async fn send(request: RequestBuilder, scope: FetchScope, limits: &TimeLimits) -> Result<Response, FetchError> {
    request.timeout(limits.of_request(scope)).send().await.map_err(|error| classify_error(&error))
}

async fn read_body(mut response: Response, scope: FetchScope) -> Result<FetchBody, FetchError> {
    let (FetchScope::Checksum { limit } | FetchScope::Bytes { limit }) = scope else { return Ok(FetchBody::Unread) };
    let (mut size, mut hasher, mut bytes) = (0, Sha256Hasher::default(), Vec::new());
    while let Some(chunk) = response.chunk().await.map_err(|error| interruption(&error, size))? {
        size += chunk.len() as u64;
        if size > limit {
            return Err(FetchError::TooLarge { limit });
        }
        match scope {
            FetchScope::Bytes { .. } => bytes.extend_from_slice(&chunk),
            FetchScope::Status | FetchScope::Checksum { .. } => hasher.update(&chunk),
        }
    }
    Ok(match scope {
        FetchScope::Bytes { .. } => FetchBody::Bytes(bytes),
        FetchScope::Status | FetchScope::Checksum { .. } => FetchBody::Checksum { size, sum: hasher.finish() },
    })
}

/// Classifies an error by the first of its causes that is a refused address or a TLS error. If there is none, the error
/// is [`FetchError::Unreachable`] with the message of the innermost cause.
fn classify_error(error: &reqwest::Error) -> FetchError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    let mut message = String::new();
    while let Some(error) = cause {
        if let Some(AddressRefusal(reason)) = error.downcast_ref() {
            return FetchError::Forbidden((*reason).to_owned());
        }
        if let Some(tls) = find_tls_error(error) {
            return FetchError::Tls(tls.to_string());
        }
        message = error.to_string();
        cause = error.source();
    }
    FetchError::Unreachable(message)
}

/// Classifies an error after this number of bytes of a body.
fn interruption(error: &reqwest::Error, bytes: u64) -> FetchError {
    match classify_error(error) {
        FetchError::Unreachable(reason) => FetchError::Interrupted { bytes, reason },
        other => other,
    }
}

/// Returns the TLS error that an I/O error wraps, if there is one. Several I/O errors may be nested in each other, and
/// `Error::source` skips the error that an I/O error wraps.
fn find_tls_error<'a>(mut error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    while let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        error = inner;
    }
    error.downcast_ref()
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn refusal(hosts: HostPolicy, address: &str) -> Option<&'static str> {
        hosts.check_address(&Url::parse(address).unwrap()).err().map(|AddressRefusal(reason)| reason)
    }

    #[test]
    fn private_hosts_are_requested_only_if_allowed() {
        for address in ["https://localhost/", "https://10.0.0.1/", "https://[::1]/", "https://router/"] {
            assert_eq!(refusal(HostPolicy::Public, address), Some(PRIVATE_HOST.0), "{address}");
            assert_eq!(refusal(HostPolicy::Any, address), None, "{address}");
        }
        for hosts in [HostPolicy::Public, HostPolicy::Any] {
            assert_eq!(refusal(hosts, "https://example.com/"), None);
            assert!(refusal(hosts, "http://example.com/").is_some_and(|reason| reason.contains("https")));
            assert!(refusal(hosts, "https://user@example.com/").is_some_and(|reason| reason.contains("credentials")));
        }
    }

    #[test]
    fn concurrency_is_limited_in_all_and_for_each_host() {
        let mut limits = ConcurrencyLimits::default();
        let mut begin = |host: &str| {
            let mut permit = Box::pin(limits.acquire(host));
            let mut poll = move || permit.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            match poll() {
                Poll::Ready(permits) => Ok(permits),
                Poll::Pending => Err(poll),
            }
        };
        let mut first = vec![begin("a").ok().unwrap(), begin("a").ok().unwrap()];
        let mut third = begin("a").err().unwrap();
        let other_hosts: Vec<_> =
            (MAX_CONCURRENT_PER_HOST..MAX_CONCURRENT).map(|host| begin(&host.to_string()).ok().unwrap()).collect();
        let mut ninth = begin("b").err().unwrap();
        drop(other_hosts);
        assert!(ninth().is_ready() && third().is_pending());
        first.pop();
        assert!(third().is_ready());
    }

    #[test]
    fn a_name_that_resolves_to_a_private_address_is_not_connected_to() {
        let resolved = runtime().unwrap().block_on(PublicHostResolver.resolve("localhost".parse().unwrap()));
        assert!(resolved.err().is_some_and(|error| error.downcast_ref::<AddressRefusal>().is_some()));
        let sent = async { HostPolicy::Public.client().unwrap().get("https://localhost:9/").send().await };
        let error = runtime().unwrap().block_on(sent).unwrap_err();
        assert_eq!(classify_error(&error), FetchError::Forbidden(PRIVATE_HOST.0.to_owned()));
    }

    /// Downloads from a server that sends the head of an answer and then two bytes at a time with a pause before each,
    /// ten in all.
    fn download_in_parts(pause: Duration, limits: &TimeLimits) -> Result<FetchBody, FetchError> {
        use std::io::{Read as _, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            let _ = stream.read(&mut [0; 1024])?;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n")?;
            for _ in 0..5 {
                std::thread::park_timeout(pause);
                stream.write_all(b"ab")?;
            }
            io::Result::Ok(())
        });
        let scope = FetchScope::Bytes { limit: 1000 };
        let body = runtime().unwrap().block_on(async {
            let client = HostPolicy::Any.client_builder(limits).no_proxy().https_only(false).build().unwrap();
            read_body(send(client.get(url), scope, limits).await?, scope).await
        });
        // A write fails if the client has given up.
        let _ = server.join().unwrap();
        body
    }

    #[test]
    fn a_download_ends_after_silence_or_if_it_is_too_slow_in_all() {
        let pause = Duration::from_millis(200);
        let limits = |silence: u32, request: u32, bytes_per_second| TimeLimits {
            silence: pause * silence,
            request: pause * request,
            bytes_per_second,
        };
        let slow = download_in_parts(pause, &limits(10, 2, 100));
        assert_eq!(slow, Ok(FetchBody::Bytes(b"ababababab".to_vec())));
        let interrupted_after = |result| match result {
            Err(FetchError::Interrupted { bytes, .. }) => bytes,
            result => panic!("{result:?}"),
        };
        assert_eq!(interrupted_after(download_in_parts(pause * 6, &limits(2, 2, 100))), 0);
        let bytes = interrupted_after(download_in_parts(pause, &limits(10, 3, 10_000)));
        assert!((1..10).contains(&bytes), "{bytes}");
        let error = FetchError::Interrupted { bytes, reason: "why".to_owned() };
        assert_eq!(error.to_string(), format!("the download stopped after {bytes} bytes: why"));
    }

    #[test]
    fn the_time_limit_of_a_request_depends_on_the_length_of_its_body() {
        assert_eq!(TIME_LIMITS.of_request(FetchScope::Status), Duration::from_secs(60));
        assert_eq!(TIME_LIMITS.of_request(FetchScope::Checksum { limit: 10 << 20 }), Duration::from_secs(60 + 640));
    }

    #[test]
    fn a_request_that_is_not_allowed_returns_an_error() {
        let client = WebClient::new(HostPolicy::Public).unwrap();
        let status_request = |address: &str| FetchRequest { address: address.to_owned(), scope: FetchScope::Status };
        let replies = client.fetch(&[
            status_request("https://127.0.0.1:9/"),
            status_request("http://example.com/"),
            status_request("nothing"),
        ]);
        assert!(replies.iter().all(|reply| matches!(reply, Err(FetchError::Forbidden(_)))), "{replies:?}");
    }
}
