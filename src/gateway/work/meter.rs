//! The work of the last minute of each subject, and whether it may begin a further request.
//!
//! Each subject has a leaky bucket (the generic cell rate algorithm, like the attempts of `people`) that holds the work of
//! one minute. Charging takes no lock: a request holds its buckets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::cost::Work;
use crate::gateway::store::ReservationSubjectKind;

/// The name of the limit in settings.
pub(crate) const WORK_PER_MINUTE: &str = "work_per_minute";
/// The time in which a full bucket empties.
pub(crate) const WORK_WINDOW: Duration = Duration::from_secs(60);
const WINDOW_NANOS: u64 = 60_000_000_000;
/// The most by which work may exceed the limit (our choice): ten minutes of it. A single request costs less.
const FILLED_MAX_NANOS: u64 = 11 * WINDOW_NANOS;
/// The time between two removals of empty buckets (our choice).
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// A limit of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkLimit<'a> {
    /// The kind of the subject.
    pub(crate) kind: ReservationSubjectKind,
    /// The id of the key or the user, or the name of the group.
    pub(crate) id: &'a str,
    /// The most units within any minute.
    pub(crate) units: u32,
}

/// The refusal of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkRefusal {
    /// The kind of the subject whose limit is reached.
    pub(crate) kind: ReservationSubjectKind,
    /// Its limit.
    pub(crate) units: u32,
    /// The time after which a request may begin.
    pub(crate) wait: Duration,
}

/// The work of all subjects.
#[derive(Debug)]
pub(crate) struct WorkMeter {
    started_at: Instant,
    buckets: Mutex<WorkBuckets>,
}

#[derive(Debug)]
struct WorkBuckets {
    groups: HashMap<String, Arc<WorkBucket>>,
    users: HashMap<String, Arc<WorkBucket>>,
    keys: HashMap<String, Arc<WorkBucket>>,
    swept_at: Instant,
}

#[derive(Debug, Default)]
struct WorkBucket {
    /// The time at which the bucket is empty, in nanoseconds since the start of the meter.
    empty_at: AtomicU64,
    /// The requests that were refused since the start.
    refused: AtomicU64,
}

/// The work of one request. A clone charges the same subjects.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestWork {
    /// The buckets, each with the time that a unit fills; empty if nothing limits the request.
    buckets: Arc<[(Arc<WorkBucket>, u64)]>,
    started_at: Option<Instant>,
}

// === impl WorkMeter ===

impl WorkMeter {
    /// Creates a meter without any work.
    pub(crate) fn new(now: Instant) -> Self {
        let (groups, users, keys) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { started_at: now, buckets: Mutex::new(WorkBuckets { groups, users, keys, swept_at: now }) }
    }

    /// Begins a request whose subjects have these limits, and charges its head.
    ///
    /// # Errors
    ///
    /// Returns the first limit that is reached; nothing is charged then.
    pub(crate) fn begin(&self, limits: &[WorkLimit<'_>], now: Instant) -> Result<RequestWork, WorkRefusal> {
        let mut buckets = self.lock();
        buckets.sweep(self.started_at, now);
        let nanos = nanos_since(self.started_at, now);
        let mut held = Vec::with_capacity(limits.len());
        for limit in limits {
            let bucket = buckets.of(limit.kind, limit.id);
            let wait = bucket.filled(nanos).saturating_sub(WINDOW_NANOS);
            if wait > 0 {
                return Err(WorkRefusal { kind: limit.kind, units: limit.units, wait: Duration::from_nanos(wait) });
            }
            held.push((Arc::clone(bucket), WINDOW_NANOS / u64::from(limit.units.max(1))));
        }
        drop(buckets);
        let work = RequestWork { buckets: held.into(), started_at: Some(self.started_at) };
        work.charge_at(Work::Request, now);
        Ok(work)
    }

    /// Counts a refused request for one of its subjects, which may have no limit.
    pub(crate) fn count_refused(&self, kind: ReservationSubjectKind, id: &str) {
        self.lock().of(kind, id).refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of requests of a subject that were refused since the start of this process.
    pub(crate) fn refused(&self, kind: ReservationSubjectKind, id: &str) -> u64 {
        self.lock().get(kind, id).map_or(0, |bucket| bucket.refused.load(Ordering::Relaxed))
    }

    /// Returns the time after which no work of a subject is left, if it begins no further request.
    pub(crate) fn filled(&self, kind: ReservationSubjectKind, id: &str, now: Instant) -> Duration {
        let nanos = nanos_since(self.started_at, now);
        Duration::from_nanos(self.lock().get(kind, id).map_or(0, |bucket| bucket.filled(nanos)))
    }

    fn lock(&self) -> MutexGuard<'_, WorkBuckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn subject_count(&self) -> usize {
        let buckets = self.lock();
        buckets.groups.len() + buckets.users.len() + buckets.keys.len()
    }
}

// === impl WorkBuckets ===

impl WorkBuckets {
    fn of_kind(&mut self, kind: ReservationSubjectKind) -> &mut HashMap<String, Arc<WorkBucket>> {
        match kind {
            ReservationSubjectKind::Group => &mut self.groups,
            ReservationSubjectKind::User => &mut self.users,
            ReservationSubjectKind::Key => &mut self.keys,
        }
    }

    fn get(&mut self, kind: ReservationSubjectKind, id: &str) -> Option<&Arc<WorkBucket>> {
        self.of_kind(kind).get(id)
    }

    /// Returns the bucket of a subject, which is made if it does not exist.
    fn of(&mut self, kind: ReservationSubjectKind, id: &str) -> &Arc<WorkBucket> {
        self.of_kind(kind).entry(id.to_owned()).or_default()
    }

    /// Removes the buckets that hold nothing, if the last removal is long ago. A subject that was refused is kept: its
    /// count is shown.
    fn sweep(&mut self, started_at: Instant, now: Instant) {
        if now.duration_since(self.swept_at) < SWEEP_INTERVAL {
            return;
        }
        self.swept_at = now;
        let nanos = nanos_since(started_at, now);
        for buckets in [&mut self.groups, &mut self.users, &mut self.keys] {
            buckets.retain(|_, bucket| {
                Arc::strong_count(bucket) > 1 || bucket.filled(nanos) > 0 || bucket.refused.load(Ordering::Relaxed) > 0
            });
        }
    }
}

// === impl WorkBucket ===

impl WorkBucket {
    /// Returns the time after which the bucket is empty.
    fn filled(&self, nanos: u64) -> u64 {
        self.empty_at.load(Ordering::Relaxed).saturating_sub(nanos)
    }

    fn fill(&self, added: u64, nanos: u64) {
        let fill = |empty_at: u64| Some(empty_at.max(nanos).saturating_add(added).min(nanos + FILLED_MAX_NANOS));
        // The function always returns a value.
        let _ = self.empty_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fill);
    }
}

// === impl RequestWork ===

impl RequestWork {
    /// Charges work, also beyond the limit.
    pub(crate) fn charge(&self, work: Work) {
        self.charge_at(work, Instant::now());
    }

    fn charge_at(&self, work: Work, now: Instant) {
        let Some(started_at) = self.started_at else { return };
        let nanos = nanos_since(started_at, now);
        for (bucket, unit_nanos) in self.buckets.iter() {
            bucket.fill(work.units().saturating_mul(*unit_nanos), nanos);
        }
    }
}

fn nanos_since(start: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX - FILLED_MAX_NANOS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: ReservationSubjectKind = ReservationSubjectKind::User;

    const fn limit(id: &str, units: u32) -> WorkLimit<'_> {
        WorkLimit { kind: USER, id, units }
    }

    #[test]
    fn a_request_passes_until_the_minute_is_used_and_again_when_it_has_drained() {
        let start = Instant::now();
        let meter = WorkMeter::new(start);
        let (kim, cost) = (limit("kim", 60), Work::Request.units());
        let first = meter.begin(&[kim], start).unwrap();
        assert_eq!(meter.filled(USER, "kim", start), Duration::from_secs(cost));
        // A cost that is known later may exceed the limit, and delays the next request.
        first.charge_at(Work::FetchedImage, start);
        let refusal = meter.begin(&[kim], start).unwrap_err();
        let debt = u32::try_from(cost + Work::FetchedImage.units()).unwrap() - 60;
        assert_eq!((refusal.kind, refusal.units, refusal.wait), (USER, 60, Duration::from_secs(debt.into())));
        assert!(meter.begin(&[kim], start + refusal.wait - Duration::from_millis(1)).is_err());
        assert!(meter.begin(&[kim], start + refusal.wait).is_ok());
        assert!(meter.begin(&[limit("lee", 60)], start).is_ok(), "another user");
    }

    #[test]
    fn a_refused_request_costs_nothing_and_debt_is_bounded() {
        let start = Instant::now();
        let meter = WorkMeter::new(start);
        let kim = limit("kim", 10);
        let work = meter.begin(&[kim], start).unwrap();
        (0..50).for_each(|_| work.charge_at(Work::Preview, start));
        let before = meter.filled(USER, "kim", start);
        assert_eq!(meter.begin(&[kim], start).unwrap_err().wait, Duration::from_secs(600));
        assert_eq!(meter.filled(USER, "kim", start), before);
    }

    #[test]
    fn a_request_is_charged_to_all_of_its_subjects_and_refused_by_each() {
        let start = Instant::now();
        let meter = WorkMeter::new(start);
        let of_group = WorkLimit { kind: ReservationSubjectKind::Group, id: "team", units: 7 };
        for user in ["kim", "lee"] {
            meter.begin(&[limit(user, 1_000), of_group], start).unwrap();
        }
        let refusal = meter.begin(&[limit("max", 1_000), of_group], start).unwrap_err();
        assert_eq!((refusal.kind, refusal.units), (ReservationSubjectKind::Group, 7));
        assert!(meter.filled(USER, "max", start).is_zero());
    }

    #[test]
    fn empty_buckets_are_removed_and_counts_of_refusals_are_kept() {
        let start = Instant::now();
        let meter = WorkMeter::new(start);
        for user in ["kim", "lee", "max"] {
            meter.begin(&[limit(user, 1_000)], start).unwrap();
        }
        meter.count_refused(USER, "lee");
        let held = meter.begin(&[limit("sue", 1_000)], start).unwrap();
        drop(meter.begin(&[limit("new", 1_000)], start + Duration::from_secs(120)).unwrap());
        assert_eq!(meter.subject_count(), 3, "the refused one, the one that a request holds, and the new one");
        assert_eq!((meter.refused(USER, "lee"), meter.refused(USER, "kim")), (1, 0));
        held.charge(Work::Request);
        assert!(!meter.filled(USER, "sue", start).is_zero());
    }
}
