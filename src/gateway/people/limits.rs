//! How often somebody may try a password.
//!
//! Three limits, each a bucket that empties with time (the generic cell rate algorithm): for an account from an address,
//! for an address, and for an account from everywhere. The last does not hold where that account has signed in before,
//! so that nobody can keep others out by trying their names. Pure: time is an argument.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many tries come at once, and how long one takes to be forgotten (all ours).
#[derive(Clone, Copy)]
struct Rate {
    at_once: u32,
    each: Duration,
}

const PAIR: Rate = Rate { at_once: 5, each: Duration::from_secs(30) };
const ADDRESS: Rate = Rate { at_once: 30, each: Duration::from_secs(2) };
const ACCOUNT: Rate = Rate { at_once: 20, each: Duration::from_secs(10) };

/// With so many buckets it is time to look for empty ones.
const MANY: usize = 10_000;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Bucket {
    Pair(String, IpAddr),
    Address(IpAddr),
    Account(String),
}

/// The buckets that are not empty, each with the moment when it will be.
#[derive(Default)]
pub(super) struct Limits(Mutex<HashMap<Bucket, Instant>>);

/// A try that was let through, to be taken back if the password was right.
pub(super) struct Try {
    buckets: Vec<(Bucket, Rate)>,
}

// === impl Limits ===

impl Limits {
    /// Counts a try from an address on an account; the error says how long to wait. One that is refused is not counted.
    pub(super) fn begin(&self, account: &str, address: IpAddr, now: Instant) -> Result<Try, Duration> {
        let address = network(address);
        self.take(vec![(Bucket::Pair(account.to_owned(), address), PAIR), (Bucket::Address(address), ADDRESS)], now)
    }

    /// Counts the same try on the account wherever it comes from.
    pub(super) fn widen(&self, tried: Try, account: &str, now: Instant) -> Result<Try, Duration> {
        let more = self.take(vec![(Bucket::Account(account.to_owned()), ACCOUNT)], now)?;
        Ok(Try { buckets: tried.buckets.into_iter().chain(more.buckets).collect() })
    }

    fn take(&self, buckets: Vec<(Bucket, Rate)>, now: Instant) -> Result<Try, Duration> {
        let mut empty_at = self.lock();
        if empty_at.len() >= MANY {
            empty_at.retain(|_, moment| *moment > now);
        }
        let waits = buckets.iter().map(|(bucket, rate)| rate.wait(empty_at.get(bucket).copied(), now));
        let wait = waits.max().unwrap_or_default();
        if !wait.is_zero() {
            return Err(wait);
        }
        for (bucket, rate) in &buckets {
            let moment = empty_at.entry(bucket.clone()).or_insert(now);
            *moment = (*moment).max(now) + rate.each;
        }
        Ok(Try { buckets })
    }

    /// The password was right: the try was none, and neither were those before it from the same address.
    pub(super) fn forgive(&self, tried: Try) {
        let mut empty_at = self.lock();
        for (bucket, rate) in tried.buckets {
            match (&bucket, empty_at.get_mut(&bucket)) {
                (Bucket::Pair(..), _) => drop(empty_at.remove(&bucket)),
                (_, Some(moment)) => *moment = moment.checked_sub(rate.each).unwrap_or(*moment),
                (_, None) => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Bucket, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Rate ===

impl Rate {
    /// How long until a bucket that is empty at that moment takes one more.
    fn wait(self, empty_at: Option<Instant>, now: Instant) -> Duration {
        let filled = empty_at.map_or(Duration::ZERO, |moment| moment.saturating_duration_since(now));
        (filled + self.each).saturating_sub(self.each * self.at_once)
    }
}

/// Whoever has one address of IPv6 has a whole network of them.
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
impl Limits {
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }
}
