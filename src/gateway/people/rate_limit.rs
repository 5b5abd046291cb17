//! Limits password attempts.
//!
//! Each limit is a leaky bucket (the generic cell rate algorithm): for a sign-in name from one address, for an address, for
//! a sign-in name from all addresses, for the codes of a second factor and for the recovery codes from one address, and for
//! the codes from all addresses. The limits for a user from all addresses do not apply to a network from which the user has
//! signed in before, so that attempts of others cannot lock out this user. An address of IPv6 counts as its network everywhere. In this module, `account` is the
//! sign-in name. It has no clock: the current time is an argument.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::gateway::keys::Pepper;
use crate::gateway::store::AttemptBucket;

/// The number of attempts that are allowed at once, and the time in which the bucket loses one attempt (our choice).
#[derive(Clone, Copy)]
struct RateLimit {
    burst: u32,
    interval: Duration,
}

/// The limit for a sign-in name from one address.
const PAIR_LIMIT: RateLimit = RateLimit { burst: 5, interval: Duration::from_secs(30) };
/// The limit for an address.
const ADDRESS_LIMIT: RateLimit = RateLimit { burst: 30, interval: Duration::from_secs(2) };
/// The limit for a sign-in name from all addresses.
const ACCOUNT_LIMIT: RateLimit = RateLimit { burst: 20, interval: Duration::from_secs(10) };

/// The limit for the codes of the second factor of a user from one address. It is strict, because a code has only six
/// digits, and because only somebody with the password reaches it: about three of a million codes are right at a time, so
/// a guess succeeds within a year with a probability of less than a third.
const CODE_LIMIT: RateLimit = RateLimit { burst: 10, interval: Duration::from_secs(300) };
/// The limit for these codes from all addresses: that of one address in the long run, and several addresses at once, so
/// that somebody with the password and one address does not use it up.
const CODE_ACCOUNT_LIMIT: RateLimit = RateLimit { burst: 50, interval: Duration::from_secs(300) };
/// The limit for the recovery codes of a user from one address. They have 50 bits, so nobody guesses them.
const RECOVERY_CODE_LIMIT: RateLimit = CODE_LIMIT;

/// The number of buckets at which empty buckets are removed (our choice).
const BUCKETS_PRUNE_AT: usize = 10_000;

/// The key of a bucket.
#[derive(Clone, PartialEq, Eq, Hash)]
enum RateLimitKey {
    Pair(String, IpAddr),
    Address(IpAddr),
    Account(String),
    Code(String, IpAddr),
    CodeAccount(String),
    RecoveryCode(String, IpAddr),
}

/// The kind of a code of the second factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeKind {
    /// A code of an authenticator app.
    App,
    /// A recovery code.
    Recovery,
}

/// The buckets, each with the time at which it is empty.
#[derive(Default)]
pub(super) struct PasswordRateLimiter(Mutex<HashMap<RateLimitKey, Instant>>);

/// An allowed attempt. It is removed from its buckets if the password was right.
pub(crate) struct RateLimitPermit {
    buckets: Vec<(RateLimitKey, RateLimit)>,
}

// === impl PasswordRateLimiter ===

impl PasswordRateLimiter {
    /// Counts an attempt with a sign-in name from an address. The error is the time to wait; a refused attempt is not
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

    /// Counts an attempt from an address, whatever the name is.
    pub(super) fn count_for_address(&self, address: IpAddr, now: Instant) -> Result<RateLimitPermit, Duration> {
        self.fill_buckets(vec![(RateLimitKey::Address(network(address)), ADDRESS_LIMIT)], now)
    }

    /// Counts an attempt for a sign-in name from all addresses.
    pub(super) fn count_for_account(&self, account: &str, now: Instant) -> Result<RateLimitPermit, Duration> {
        self.fill_buckets(vec![(RateLimitKey::Account(account.to_owned()), ACCOUNT_LIMIT)], now)
    }

    /// Counts an attempt with a code of the second factor of a user from an address. `is_known` is true if the user has
    /// signed in from its network before.
    pub(super) fn count_code_attempt(
        &self,
        user: &str,
        (address, is_known): (IpAddr, bool),
        kind: CodeKind,
        now: Instant,
    ) -> Result<RateLimitPermit, Duration> {
        let (user, address) = (user.to_owned(), network(address));
        let mut buckets = vec![(RateLimitKey::Address(address), ADDRESS_LIMIT)];
        match kind {
            CodeKind::Recovery => buckets.push((RateLimitKey::RecoveryCode(user, address), RECOVERY_CODE_LIMIT)),
            CodeKind::App => {
                buckets.push((RateLimitKey::Code(user.clone(), address), CODE_LIMIT));
                if !is_known {
                    buckets.push((RateLimitKey::CodeAccount(user), CODE_ACCOUNT_LIMIT));
                }
            }
        }
        self.fill_buckets(buckets, now)
    }

    fn fill_buckets(&self, buckets: Vec<(RateLimitKey, RateLimit)>, now: Instant) -> Result<RateLimitPermit, Duration> {
        let mut empty_at = self.lock();
        if empty_at.len() >= BUCKETS_PRUNE_AT {
            empty_at.retain(|_, empty_time| *empty_time > now);
        }
        let wait_times = buckets.iter().map(|(bucket, rate)| rate.wait(empty_at.get(bucket).copied(), now));
        let wait = wait_times.max().unwrap_or_default();
        if !wait.is_zero() {
            return Err(wait);
        }
        for (bucket, rate) in &buckets {
            let empty_time = empty_at.entry(bucket.clone()).or_insert(now);
            *empty_time = (*empty_time).max(now) + rate.interval;
        }
        Ok(RateLimitPermit { buckets })
    }

    /// Removes an attempt from its buckets, because the password was right, and empties the bucket of the name and
    /// address.
    pub(super) fn undo_attempt(&self, permit: RateLimitPermit) {
        for (pair, _) in permit.buckets.iter().filter(|(bucket, _)| bucket.is_emptied_by_success()) {
            self.lock().remove(pair);
        }
        self.take_back(permit);
    }

    /// Removes an attempt from its buckets, because it was refused by the counts of all nodes.
    pub(super) fn take_back(&self, permit: RateLimitPermit) {
        let mut empty_at = self.lock();
        for (bucket, rate) in permit.buckets {
            if let Some(empty_time) = empty_at.get_mut(&bucket) {
                *empty_time = empty_time.checked_sub(rate.interval).unwrap_or(*empty_time);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RateLimitKey, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl RateLimitKey ===

impl RateLimitKey {
    const fn is_emptied_by_success(&self) -> bool {
        matches!(self, Self::Pair(..))
    }

    /// Returns a text that differs from those of all other keys.
    fn to_text(&self) -> String {
        match self {
            Self::Pair(account, address) => format!("pair {address} {account}"),
            Self::Address(address) => format!("address {address}"),
            Self::Account(account) => format!("account {account}"),
            Self::Code(user, address) => format!("code {address} {user}"),
            Self::CodeAccount(user) => format!("code account {user}"),
            Self::RecoveryCode(user, address) => format!("recovery code {address} {user}"),
        }
    }
}

// === impl RateLimitPermit ===

impl RateLimitPermit {
    /// Adds the buckets of another permit for the same attempt.
    pub(super) fn join(self, other: Self) -> Self {
        Self { buckets: self.buckets.into_iter().chain(other.buckets).collect() }
    }

    /// Returns the buckets as all nodes know them.
    pub(super) fn shared_buckets(&self, pepper: &Pepper) -> Vec<AttemptBucket> {
        let to_shared = |(bucket, rate): &(RateLimitKey, RateLimit)| AttemptBucket {
            hash: pepper.hash_for_purpose("password attempts", bucket.to_text().as_bytes()),
            interval: rate.interval,
            burst: rate.burst,
            is_emptied: bucket.is_emptied_by_success(),
        };
        self.buckets.iter().map(to_shared).collect()
    }
}

// === impl RateLimit ===

impl RateLimit {
    /// Returns the time until a bucket accepts one more attempt; `empty_at` is the time at which it is empty.
    fn wait(self, empty_at: Option<Instant>, now: Instant) -> Duration {
        let filled = empty_at.map_or(Duration::ZERO, |empty_time| empty_time.saturating_duration_since(now));
        (filled + self.interval).saturating_sub(self.interval * self.burst)
    }
}

/// Returns the address for which attempts are counted: for IPv6 the /64 network, because a client usually has a whole
/// network.
pub(super) fn network(address: IpAddr) -> IpAddr {
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
