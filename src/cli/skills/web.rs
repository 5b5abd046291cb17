//! Addresses that a manifest names, asked over the network: by https, within limits, and not inside of private networks unless
//! that is wanted.
//!
//! Every name is looked up here, so that one that leads into a private network is seen before a connection is made, whenever
//! its answer changes; for the same reason no proxy is asked then: nobody could say where it connects to.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, ensure};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, Response, Url};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::rustls;

use crate::manifest::package::Summing;
use crate::manifest::{Body, Question, Reply, Want, Web, WebError, can_be_asked, is_public};

/// How long an answer may take, as a whole.
const ANSWER: Duration = Duration::from_secs(60);
/// How long it may take to be connected.
const CONNECT: Duration = Duration::from_secs(10);
/// How often a question may be sent elsewhere.
const REDIRECTS: usize = 5;
/// How many questions are asked at a time, and how many of them of one host.
const AT_ONCE: usize = 8;
const AT_ONE_HOST: usize = 2;

/// Which hosts may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hosts {
    /// Those that everybody can reach.
    Public,
    /// All.
    Any,
}

/// Why an address is not asked.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Forbidden(&'static str);

const PRIVATE: Forbidden = Forbidden("the host is of a private network; --allow-private-hosts lets it be asked");

// === impl Hosts ===

impl Hosts {
    pub(super) fn allowed(allow_private: bool) -> Self {
        if allow_private { Self::Any } else { Self::Public }
    }

    fn may_ask(self, url: &Url) -> Result<(), Forbidden> {
        if can_be_asked(url, self == Self::Any) {
            Ok(())
        } else if url.scheme() != "https" {
            Err(Forbidden("only https is asked"))
        } else if can_be_asked(url, true) {
            Err(PRIVATE)
        } else {
            Err(Forbidden("an address with credentials is not asked"))
        }
    }

    fn redirect(self, attempt: Attempt<'_>) -> Action {
        if attempt.previous().len() > REDIRECTS {
            return attempt.error(Forbidden("it is sent from one address to the next without an end"));
        }
        match self.may_ask(attempt.url()) {
            Ok(()) => attempt.follow(),
            Err(forbidden) => attempt.error(forbidden),
        }
    }

    fn client(self) -> reqwest::Result<Client> {
        let client = Client::builder()
            .user_agent(concat!("imagate/", env!("CARGO_PKG_VERSION")))
            .https_only(true)
            .redirect(Policy::custom(move |attempt| self.redirect(attempt)))
            .connect_timeout(CONNECT)
            .timeout(ANSWER);
        match self {
            Self::Public => client.no_proxy().dns_resolver(Arc::new(PublicNames)).build(),
            Self::Any => client.build(),
        }
    }
}

/// Looks names up, and forgets addresses of private networks.
struct PublicNames;

impl Resolve for PublicNames {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let public: Vec<SocketAddr> = found.iter().copied().filter(|address| is_public(address.ip())).collect();
            if public.is_empty() && !found.is_empty() {
                return Err(PRIVATE.into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

/// Downloads a file, and no more of it than the limit.
pub(super) fn download(url: &Url, limit: u64, hosts: Hosts) -> anyhow::Result<Vec<u8>> {
    hosts.may_ask(url)?;
    let response = async {
        let response = hosts.client()?.get(url.clone()).send().await.map_err(|error| fault(&error))?;
        ensure!(response.status().is_success(), "the server answered {}", response.status());
        match read(response, Want::Bytes { limit }).await? {
            Body::Bytes(bytes) => Ok(bytes),
            Body::Unread | Body::Sum { .. } => bail!("the server answered nothing"),
        }
    };
    runtime()?.block_on(response)
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// The network, for the checks.
pub(super) struct Online {
    client: Client,
    hosts: Hosts,
    runtime: tokio::runtime::Runtime,
}

// === impl Online ===

impl Online {
    pub(super) fn new(hosts: Hosts) -> anyhow::Result<Self> {
        Ok(Self { client: hosts.client()?, hosts, runtime: runtime()? })
    }
}

type Asked = (usize, Result<Reply, WebError>);

impl Web for Online {
    fn ask(&self, questions: &[Question]) -> Vec<Result<Reply, WebError>> {
        let mut asked = self.runtime.block_on(async { self.begin(questions).join_all().await });
        asked.sort_unstable_by_key(|(number, _)| *number);
        asked.into_iter().map(|(_, reply)| reply).collect()
    }
}

impl Online {
    /// Asks everything, a few at a time; each answer comes with the number of its question.
    fn begin(&self, questions: &[Question]) -> JoinSet<Asked> {
        let mut places = Places::default();
        let mut running = JoinSet::new();
        for (number, question) in questions.iter().enumerate() {
            let url = Url::parse(&question.address).ok();
            let turn = places.turn(url.as_ref().and_then(Url::host_str).unwrap_or_default());
            let (client, hosts, want) = (self.client.clone(), self.hosts, question.want);
            running.spawn(async move {
                let _places = turn.await;
                (number, ask(&client, url, want, hosts).await)
            });
        }
        running
    }
}

/// Who may ask at the moment.
struct Places {
    all: Arc<Semaphore>,
    hosts: HashMap<String, Arc<Semaphore>>,
}

impl Default for Places {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(AT_ONCE)), hosts: HashMap::new() }
    }
}

// === impl Places ===

impl Places {
    /// Waits for a place at a host and among all, which are given back when the answer is dropped.
    fn turn(&mut self, host: &str) -> impl Future<Output = impl Send + use<>> + Send + use<> {
        let one = self.hosts.entry(host.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(AT_ONE_HOST)));
        let (one, all) = (Arc::clone(one), Arc::clone(&self.all));
        // First the place at the host: who waits there takes no place from others.
        async move { (one.acquire_owned().await, all.acquire_owned().await) }
    }
}

async fn ask(client: &Client, url: Option<Url>, want: Want, hosts: Hosts) -> Result<Reply, WebError> {
    let url = url.ok_or_else(|| WebError::Forbidden("this is no address".to_owned()))?;
    hosts.may_ask(&url).map_err(|forbidden| WebError::Forbidden(forbidden.to_string()))?;
    if want == Want::Status {
        let head = client.head(url.clone()).send().await.map_err(|error| fault(&error))?;
        if head.status().is_success() {
            return Ok(Reply { status: head.status().as_u16(), body: Body::Unread });
        }
        // Many hosts know GET only.
    }
    let response = client.get(url).send().await.map_err(|error| fault(&error))?;
    let status = response.status().as_u16();
    let body = if status == 200 { read(response, want).await? } else { Body::Unread };
    Ok(Reply { status, body })
}

async fn read(mut response: Response, want: Want) -> Result<Body, WebError> {
    let (Want::Sum { limit } | Want::Bytes { limit }) = want else { return Ok(Body::Unread) };
    let (mut size, mut summing, mut bytes) = (0, Summing::default(), Vec::new());
    while let Some(chunk) = response.chunk().await.map_err(|error| fault(&error))? {
        size += chunk.len() as u64;
        if size > limit {
            return Err(WebError::TooLarge { limit });
        }
        match want {
            Want::Bytes { .. } => bytes.extend_from_slice(&chunk),
            Want::Status | Want::Sum { .. } => summing.update(&chunk),
        }
    }
    Ok(match want {
        Want::Bytes { .. } => Body::Bytes(bytes),
        Want::Status | Want::Sum { .. } => Body::Sum { size, sum: summing.finish() },
    })
}

/// What went wrong, by what is at the bottom of it.
fn fault(error: &reqwest::Error) -> WebError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    let mut last = String::new();
    while let Some(error) = cause {
        if let Some(Forbidden(why)) = error.downcast_ref() {
            return WebError::Forbidden((*why).to_owned());
        }
        if let Some(tls) = tls(error) {
            return WebError::Tls(tls.to_string());
        }
        last = error.to_string();
        cause = error.source();
    }
    WebError::Unreachable(last)
}

/// What reads and writes wraps the errors of TLS, more than once, and does not name them as its source.
fn tls<'a>(mut error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    while let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        error = inner;
    }
    error.downcast_ref()
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn refused(hosts: Hosts, address: &str) -> Option<&'static str> {
        hosts.may_ask(&Url::parse(address).unwrap()).err().map(|Forbidden(why)| why)
    }

    #[test]
    fn private_hosts_are_asked_only_where_that_is_wanted() {
        for address in ["https://localhost/", "https://10.0.0.1/", "https://[::1]/", "https://router/"] {
            assert_eq!(refused(Hosts::Public, address), Some(PRIVATE.0), "{address}");
            assert_eq!(refused(Hosts::Any, address), None, "{address}");
        }
        for hosts in [Hosts::Public, Hosts::Any] {
            assert_eq!(refused(hosts, "https://example.com/"), None);
            assert!(refused(hosts, "http://example.com/").is_some_and(|why| why.contains("https")));
            assert!(refused(hosts, "https://user@example.com/").is_some_and(|why| why.contains("credentials")));
        }
    }

    #[test]
    fn few_are_asked_at_a_time_and_fewer_of_one_host() {
        let mut places = Places::default();
        let mut begin = |host: &str| {
            let mut turn = Box::pin(places.turn(host));
            let mut poll = move || turn.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            match poll() {
                Poll::Ready(place) => Ok(place),
                Poll::Pending => Err(poll),
            }
        };
        let mut first = vec![begin("a").ok().unwrap(), begin("a").ok().unwrap()];
        let mut third = begin("a").err().unwrap();
        let others: Vec<_> = (AT_ONE_HOST..AT_ONCE).map(|host| begin(&host.to_string()).ok().unwrap()).collect();
        let mut ninth = begin("b").err().unwrap();
        drop(others);
        assert!(ninth().is_ready() && third().is_pending());
        first.pop();
        assert!(third().is_ready());
    }

    #[test]
    fn a_name_that_leads_into_a_private_network_is_not_connected_to() {
        let looked_up = runtime().unwrap().block_on(PublicNames.resolve("localhost".parse().unwrap()));
        assert!(looked_up.err().is_some_and(|error| error.downcast_ref::<Forbidden>().is_some()));
        let sent = async { Hosts::Public.client().unwrap().get("https://localhost:9/").send().await };
        let error = runtime().unwrap().block_on(sent).unwrap_err();
        assert_eq!(fault(&error), WebError::Forbidden(PRIVATE.0.to_owned()));
    }

    #[test]
    fn whoever_asks_learns_what_is_not_asked() {
        let online = Online::new(Hosts::Public).unwrap();
        let of = |address: &str| Question { address: address.to_owned(), want: Want::Status };
        let replies = online.ask(&[of("https://127.0.0.1:9/"), of("http://example.com/"), of("nothing")]);
        assert!(replies.iter().all(|reply| matches!(reply, Err(WebError::Forbidden(_)))), "{replies:?}");
    }
}
