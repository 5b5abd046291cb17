//! Resolves host names.
//!
//! The module decides how long an answer is valid, and has at most one lookup of each name at a time. Rule (U02): a
//! lookup that hangs occupies one blocking thread, and delays no other name.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time for which an answer is valid (our choice): a burst of connections resolves a name once, and an upstream with
/// a new address is found again soon.
const ANSWER_VALIDITY: Duration = Duration::from_secs(1);

/// Calls the system's resolver, and keeps the last answer for each name.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    names: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Option<ResolvedAddresses>>>>>,
}

#[derive(Debug)]
struct ResolvedAddresses {
    addresses: Vec<IpAddr>,
    resolved_at: Instant,
}

// === impl Resolver ===

impl Resolver {
    /// Returns the addresses of a host, which is a name or an address without brackets.
    pub(super) async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let addresses = match host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => self.look_up(host).await?,
        };
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    async fn look_up(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let slot = {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(names.entry(name.to_owned()).or_default())
        };
        let mut answer = slot.lock_owned().await;
        if let Some(answer) = answer.as_ref().filter(|answer| answer.resolved_at.elapsed() < ANSWER_VALIDITY) {
            return Ok(answer.addresses.clone());
        }
        let name = name.to_owned();
        // The lock moves into the thread: if the caller stops waiting, no second thread can hang on the same name.
        let lookup = tokio::task::spawn_blocking(move || {
            let addresses: Vec<_> = (name.as_str(), 0).to_socket_addrs()?.map(|found| found.ip()).collect();
            *answer = Some(ResolvedAddresses { addresses: addresses.clone(), resolved_at: Instant::now() });
            Ok(addresses)
        });
        lookup.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_needs_no_lookup_and_a_name_is_resolved() {
        let resolver = Resolver::default();
        assert_eq!(resolver.resolve("::1", 7).await.unwrap(), ["[::1]:7".parse().unwrap()]);
        assert!(resolver.resolve("localhost", 7).await.unwrap().iter().all(|found| found.ip().is_loopback()));
        assert!(resolver.resolve("not a name", 7).await.is_err());
    }

    #[tokio::test]
    async fn a_lookup_that_hangs_delays_no_other_name() {
        let resolver = Resolver::default();
        let slot = Arc::clone(resolver.names.lock().unwrap().entry("hangs.invalid".to_owned()).or_default());
        let _hanging = slot.lock_owned().await;
        let waiter = resolver.resolve("hangs.invalid", 1);
        tokio::pin!(waiter);
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(waiter.as_mut().poll(cx).is_pending())).await);
        assert!(resolver.resolve("localhost", 1).await.is_ok());
    }
}
