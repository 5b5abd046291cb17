//! Limits that several nodes share: the counters are in the database, and are read for each job of a subject with
//! limits.
//!
//! The decision is the same as with counters in memory. The usage of all nodes is read into counters, while no other node
//! can reserve for the same subjects; so the limits hold exactly, however many nodes there are.

use chrono::{NaiveDate, Utc};
use tokio::time::Instant;

use super::counters::{StoredUsage, SubjectCounters, period_begin};
use super::limit_usage::{LimitUsage, limit_usage};
use super::reservation::{JobDemand, LimitError, LimitSubject, SubjectLimits};
use super::status::LimitStatus;
use crate::gateway::money::Usd;
use crate::gateway::store::{
    NewReservation, RequestId, ReservationSubject, ReservationSubjectKind, SharedReservations, StoreError,
    SubjectUsage, UtcDay,
};

/// Reserves what a job asks for in the limits of all its subjects, or in none. With `is_check`, nothing is reserved.
pub(super) async fn reserve(
    reservations: &dyn SharedReservations,
    request_id: &RequestId,
    subjects: &[SubjectLimits],
    demand: &JobDemand,
    is_check: bool,
) -> Result<LimitStatus, LimitError> {
    let today = Utc::now().date_naive();
    let new = NewReservation {
        request_id,
        subjects: subjects.iter().map(|subject| reservation_subject(subject, today)).collect(),
        today: UtcDay::from(today),
        images: demand.images,
        cost: demand.cost.unwrap_or_default(),
        is_open: true,
    };
    let mut decision = Ok(Default::default());
    let mut decide = |usages: Vec<SubjectUsage>| {
        decision = check_and_count(subjects, usages, demand, today);
        decision.is_ok() && !is_check
    };
    reservations.reserve(&new, &mut decide).await?;
    decision
}

/// Counts a request that gets a stored answer: its reservation has ended when it is made.
pub(super) async fn count_repeat(
    reservations: &dyn SharedReservations,
    request_id: &RequestId,
    subjects: &[SubjectLimits],
) -> Result<(), LimitError> {
    let (now, today) = (Instant::now(), Utc::now().date_naive());
    let rows = subjects.iter().map(|subject| reservation_subject(subject, today)).collect();
    let today = UtcDay::from(today);
    let new = NewReservation { request_id, subjects: rows, today, images: 0, cost: Usd::ZERO, is_open: false };
    let mut decision = Ok(());
    let mut decide = |usages: Vec<SubjectUsage>| {
        decision = subjects.iter().zip(&usages).try_for_each(|(SubjectLimits { subject, limits }, usage)| {
            let checked = SubjectCounters::of_usage(usage, now).check_request(limits, now);
            checked.map_err(|error| error.with_scope(subject.scope()))
        });
        decision.is_ok()
    };
    reservations.reserve(&new, &mut decide).await?;
    decision
}

/// Returns the use of each limit of the subjects, in their order.
pub(super) async fn usage(
    reservations: &dyn SharedReservations,
    subjects: &[SubjectLimits],
) -> Result<Vec<Vec<LimitUsage>>, StoreError> {
    let (now, today) = (Instant::now(), Utc::now().date_naive());
    let rows: Vec<_> = subjects.iter().map(|subject| reservation_subject(subject, today)).collect();
    let usages = reservations.read_usage(&rows, UtcDay::from(today)).await?;
    let limit_usages = subjects.iter().zip(&usages).map(|(SubjectLimits { limits, .. }, usage)| {
        let mut counters = SubjectCounters::of_usage(usage, now);
        counters.begin_periods(limits, today, stored_usage(usage));
        limit_usage(limits, &mut counters, now, today)
    });
    Ok(limit_usages.collect())
}

const fn stored_usage(usage: &SubjectUsage) -> StoredUsage {
    StoredUsage { images_today: usage.images_today, spent: usage.spent, reserved: usage.reserved }
}

fn check_and_count(
    subjects: &[SubjectLimits],
    usages: Vec<SubjectUsage>,
    demand: &JobDemand,
    today: NaiveDate,
) -> Result<LimitStatus, LimitError> {
    let now = Instant::now();
    let mut counted: Vec<_> = usages.iter().map(|usage| SubjectCounters::of_usage(usage, now)).collect();
    for (SubjectLimits { subject, limits }, (counters, usage)) in subjects.iter().zip(counted.iter_mut().zip(&usages)) {
        counters.begin_periods(limits, today, stored_usage(usage));
        counters.check(limits, demand, now, today).map_err(|error| error.with_scope(subject.scope()))?;
    }
    let mut status = LimitStatus::default();
    for (SubjectLimits { limits, .. }, counters) in subjects.iter().zip(&mut counted) {
        counters.reserve(limits, demand, now);
        status.add(limits, counters, now);
    }
    Ok(status)
}

fn reservation_subject(subject: &SubjectLimits, today: NaiveDate) -> ReservationSubject {
    let (kind, id) = match &subject.subject {
        LimitSubject::Key(key) => (ReservationSubjectKind::Key, key.to_string()),
        LimitSubject::User(user) => (ReservationSubjectKind::User, user.to_string()),
        LimitSubject::Group(name) => (ReservationSubjectKind::Group, name.clone()),
    };
    let limits = &subject.limits;
    let begin = limits.budget.map_or(today, |budget| period_begin(budget.period, today));
    let needs_last_minute = limits.requests_per_minute.is_some() || limits.images_per_minute.is_some();
    ReservationSubject { kind, id, budget_since: UtcDay::from(begin), needs_last_minute }
}
