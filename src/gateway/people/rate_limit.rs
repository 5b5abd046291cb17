//! Limits password attempts.
//!
//! There are three limits, each a bucket that empties with time (the generic cell rate algorithm): for an account from
//! an address, for an address, and for an account from all addresses. The last limit does not apply to an address from
//! which that account has signed in before, so that repeated attempts with a name cannot lock out its user. Pure: time
//! is an argument.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The number of attempts that may come at once, and the time after which one is forgotten (all ours).
#[derive(Clone, Copy)]
struct RateLimit {
    burst: u32,
    interval: Duration,
}

const PAIR_LIMIT: RateLimit = RateLimit { burst: 5, interval: Duration::from_secs(30) };
const ADDRESS_LIMIT: RateLimit = RateLimit { burst: 30, interval: Duration::from_secs(2) };
const ACCOUNT_LIMIT: RateLimit = RateLimit { burst: 20, interval: Duration::from_secs(10) };

/// The number of buckets above which empty ones are removed.
const BUCKETS_PRUNE_AT: usize = 10_000;

#[derive(Clone, PartialEq, Eq, Hash)]
enum RateLimitKey {
    Pair(String, IpAddr),
    Address(IpAddr),
    Account(String),
}

/// The buckets that are not empty, each with the moment at which it will be.
#[derive(Default)]
pub(super) struct PasswordRateLimiter(Mutex<HashMap<RateLimitKey, Instant>>);

/// An attempt that was allowed; it is taken back if the password was right.
pub(super) struct RateLimitPermit {
    buckets: Vec<(RateLimitKey, RateLimit)>,
}

// === impl PasswordRateLimiter ===

impl PasswordRateLimiter {
    /// Counts an attempt from an address on an account; the error is the time to wait. A refused attempt is not
    /// counted.
    pub(super) fn count_attempt(
        &self,
        account: &str,
        address: IpAddr,
        now: Instant,
    ) -> Result<RateLimitPermit, Duration> {
        let address = network(address);
        self.fill_buckets(
            vec![
                (RateLimitKey::Pair(account.to_owned(), address), PAIR_LIMIT),
                (RateLimitKey::Address(address), ADDRESS_LIMIT),
            ],
            now,
        )
    }

    /// Counts the same attempt on the account, independent of its address.
    pub(super) fn count_for_account(
        &self,
        permit: RateLimitPermit,
        account: &str,
        now: Instant,
    ) -> Result<RateLimitPermit, Duration> {
        let more = self.fill_buckets(vec![(RateLimitKey::Account(account.to_owned()), ACCOUNT_LIMIT)], now)?;
        Ok(RateLimitPermit { buckets: permit.buckets.into_iter().chain(more.buckets).collect() })
    }

    fn fill_buckets(&self, buckets: Vec<(RateLimitKey, RateLimit)>, now: Instant) -> Result<RateLimitPermit, Duration> {
        let mut empty_at = self.lock();
        if empty_at.len() >= BUCKETS_PRUNE_AT {
            empty_at.retain(|_, moment| *moment > now);
        }
        let waits = buckets.iter().map(|(bucket, rate)| rate.wait(empty_at.get(bucket).copied(), now));
        let wait = waits.max().unwrap_or_default();
        if !wait.is_zero() {
            return Err(wait);
        }
        for (bucket, rate) in &buckets {
            let moment = empty_at.entry(bucket.clone()).or_insert(now);
            *moment = (*moment).max(now) + rate.interval;
        }
        Ok(RateLimitPermit { buckets })
    }

    /// Takes back the attempt, because the password was right, and forgets the earlier ones on that account from that
    /// address.
    pub(super) fn take_back_attempt(&self, permit: RateLimitPermit) {
        let mut empty_at = self.lock();
        for (bucket, rate) in permit.buckets {
            match (&bucket, empty_at.get_mut(&bucket)) {
                (RateLimitKey::Pair(..), _) => drop(empty_at.remove(&bucket)),
                (_, Some(moment)) => *moment = moment.checked_sub(rate.interval).unwrap_or(*moment),
                (_, None) => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RateLimitKey, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl RateLimit ===

impl RateLimit {
    /// Returns the time until a bucket that is empty at that moment accepts one more attempt.
    fn wait(self, empty_at: Option<Instant>, now: Instant) -> Duration {
        let filled = empty_at.map_or(Duration::ZERO, |moment| moment.saturating_duration_since(now));
        (filled + self.interval).saturating_sub(self.interval * self.burst)
    }
}

/// Returns the address to count; for IPv6 its network, because a client with one address usually has the whole network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
impl PasswordRateLimiter {
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }
}
