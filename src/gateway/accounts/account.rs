//! One account: where its calls go, whom it serves, and how many calls it takes at once.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, HeaderValue, Uri};
use tokio::sync::Semaphore;

use crate::gateway::config;

/// An upstream account as usable.
#[derive(Debug)]
pub(crate) struct Account {
    name: String,
    endpoint: Endpoint,
    paid: bool,
    priority: i32,
    groups: Vec<String>,
    places: Arc<Semaphore>,
    large_places: Arc<Semaphore>,
    size: Places,
    waiting: Arc<AtomicUsize>,
}

/// Where the calls of an account go.
#[derive(Debug)]
pub(crate) enum Endpoint {
    /// Nowhere: the pictures are drawn here.
    Simulator,
    /// To an upstream that speaks the image endpoints.
    Images(Address),
}

/// An upstream's address with what it takes to be let in.
#[derive(Debug)]
pub(crate) struct Address {
    base: String,
    authorization: HeaderValue,
    headers: HeaderMap,
}

#[derive(Clone, Copy, Debug)]
struct Places {
    standard: usize,
    large: usize,
}

/// Counts one more that waits, as long as it lives.
#[derive(Debug)]
pub(super) struct Waiting(Arc<AtomicUsize>);

// === impl Account ===

impl Account {
    pub(super) fn new(written: &config::Account) -> Self {
        let size = Places { standard: places(written.concurrency), large: places(written.large_concurrency) };
        Self {
            name: written.name.clone(),
            endpoint: Endpoint::new(&written.upstream),
            paid: written.tier == config::Tier::Paid,
            priority: written.priority,
            groups: written.groups.clone(),
            places: Arc::new(Semaphore::new(size.standard)),
            large_places: Arc::new(Semaphore::new(size.large)),
            size,
            waiting: Arc::new(AtomicUsize::new(0)),
        }
    }

    /// What logs and records call it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where its calls go.
    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) fn serves(&self, group: &str) -> bool {
        self.groups.iter().any(|name| name == group)
    }

    pub(super) const fn paid(&self) -> bool {
        self.paid
    }

    pub(super) const fn priority(&self) -> i32 {
        self.priority
    }

    /// Places taken and waited for, in thousandths of all places of that class.
    pub(super) fn load(&self, large: bool) -> u32 {
        let (places, size) =
            if large { (&self.large_places, self.size.large) } else { (&self.places, self.size.standard) };
        let taken = size.saturating_sub(places.available_permits()) + self.waiting();
        u32::try_from(taken.saturating_mul(1000) / size.max(1)).unwrap_or(u32::MAX)
    }

    /// Whether a place is free right now.
    pub(super) fn has_room(&self, large: bool) -> bool {
        self.places.available_permits() > 0 && (!large || self.large_places.available_permits() > 0)
    }

    pub(super) fn close(&self) {
        self.places.close();
        self.large_places.close();
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(super) fn wait(&self) -> Waiting {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(Arc::clone(&self.waiting))
    }

    pub(super) const fn places(&self) -> &Arc<Semaphore> {
        &self.places
    }

    pub(super) const fn large_places(&self) -> &Arc<Semaphore> {
        &self.large_places
    }
}

fn places(count: NonZeroU32) -> usize {
    usize::try_from(count.get()).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS)
}

// === impl Endpoint ===

impl Endpoint {
    pub(super) fn is_https(&self) -> bool {
        match self {
            Self::Simulator => false,
            Self::Images(address) => address.base.starts_with("https:"),
        }
    }

    fn new(written: &config::Upstream) -> Self {
        match written {
            config::Upstream::Simulator => Self::Simulator,
            config::Upstream::Images(endpoint) => Self::Images(Address {
                base: base(&endpoint.base_url),
                authorization: bearer(&endpoint.api_key),
                headers: endpoint.headers.clone(),
            }),
        }
    }
}

/// The configuration has checked that the key fits into a header.
fn bearer(key: &config::Secret) -> HeaderValue {
    let mut value =
        HeaderValue::try_from(format!("Bearer {}", key.expose())).unwrap_or(HeaderValue::from_static("Bearer"));
    value.set_sensitive(true);
    value
}

/// Without the slash at the end, so that paths can be put behind it.
fn base(url: &Uri) -> String {
    url.to_string().trim_end_matches('/').to_owned()
}

// === impl Address ===

impl Address {
    /// The address of one operation.
    pub(crate) fn join(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// The account's credentials; marked as sensitive, so that no `Debug` shows them.
    pub(crate) const fn authorization(&self) -> &HeaderValue {
        &self.authorization
    }

    /// Further headers that the operator wants sent.
    pub(crate) const fn headers(&self) -> &HeaderMap {
        &self.headers
    }
}

// === impl Waiting ===

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
