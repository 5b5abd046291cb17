//! Limits that several nodes share: the counters are in the database, and are read for each job of a subject with
//! limits.
//!
//! The decision is the same as with counters in memory. The usage of all nodes is read into counters, while no other node
//! can reserve for the same subjects; so the limits hold exactly, however many nodes there are. The database also knows
//! which node's job waits first for room in a budget.

use chrono::{NaiveDate, Utc};
use tokio::time::Instant;

use super::counters::{LimitTime, SubjectCounters, check_all, period_begin};
use super::limit_usage::{LimitUsage, limit_usage};
use super::reservation::{JobDemand, LimitError, LimitSubject, SubjectLimits};
use super::status::LimitStatus;
use crate::gateway::money::Usd;
use crate::gateway::store::{
    HeldMoney, NewReservation, RequestId, ReservationDecision, ReservationSubject, ReservationSubjectKind,
    SharedReservations, StoreError, SubjectUsage, Timestamp, UtcDay,
};

/// The job of a reservation.
#[derive(Clone, Copy)]
pub(super) struct ReservedJob<'a> {
    pub(super) request_id: &'a RequestId,
    pub(super) demand: &'a JobDemand,
    pub(super) begun_at: Timestamp,
    /// True if the job has waited for room.
    pub(super) is_waiting: bool,
}

/// Reserves what a job asks for in the limits of all its subjects, or in none, and returns what it holds in the budget of
/// each. With `is_check`, nothing is reserved.
pub(super) async fn reserve(
    reservations: &dyn SharedReservations,
    subjects: &[SubjectLimits],
    job: ReservedJob<'_>,
    is_check: bool,
) -> Result<(Vec<HeldMoney>, LimitStatus), LimitError> {
    let day = UtcDay::from(job.begun_at);
    let today = NaiveDate::from(day);
    let new = NewReservation {
        request_id: job.request_id,
        subjects: subjects.iter().map(|subject| reservation_subject(subject, today)).collect(),
        today: day,
        images: job.demand.images,
        is_waiting: job.is_waiting,
        is_open: true,
    };
    let mut outcome = Ok(Default::default());
    let mut decide = |usages: Vec<SubjectUsage>| {
        outcome = check_and_count(subjects, &usages, job.demand, today);
        let decision = match &outcome {
            Ok((held, _)) => ReservationDecision::Reserve(held.clone()),
            Err(LimitError::FullyReserved(refusal)) => subjects
                .iter()
                .position(|of| of.subject.scope() == refusal.scope)
                .map_or(ReservationDecision::Refuse, ReservationDecision::Wait),
            Err(_) => ReservationDecision::Refuse,
        };
        if is_check { ReservationDecision::Refuse } else { decision }
    };
    reservations.reserve(&new, &mut decide).await?;
    outcome
}

/// Counts a request that gets a stored answer: its reservation has ended when it is made.
pub(super) async fn count_repeat(
    reservations: &dyn SharedReservations,
    request_id: &RequestId,
    subjects: &[SubjectLimits],
) -> Result<(), LimitError> {
    let (now, day) = (Instant::now(), Utc::now().date_naive());
    let rows = subjects.iter().map(|subject| reservation_subject(subject, day)).collect();
    let today = UtcDay::from(day);
    let new = NewReservation { request_id, subjects: rows, today, images: 0, is_waiting: false, is_open: false };
    let nothing = HeldMoney { amount: Some(Usd::ZERO), is_ceiling: false };
    let mut outcome = Ok(());
    let mut decide = |usages: Vec<SubjectUsage>| {
        outcome = subjects.iter().zip(&usages).try_for_each(|(SubjectLimits { subject, limits }, usage)| {
            let checked = SubjectCounters::of_usage(usage, limits, now, day).check_request(limits, now);
            checked.map_err(|error| error.with_scope(subject.scope()))
        });
        match &outcome {
            Ok(()) => ReservationDecision::Reserve(vec![nothing; subjects.len()]),
            Err(_) => ReservationDecision::Refuse,
        }
    };
    reservations.reserve(&new, &mut decide).await?;
    outcome
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
        let mut counters = SubjectCounters::of_usage(usage, limits, now, today);
        limit_usage(limits, &mut counters, now, today)
    });
    Ok(limit_usages.collect())
}

fn check_and_count(
    subjects: &[SubjectLimits],
    usages: &[SubjectUsage],
    demand: &JobDemand,
    today: NaiveDate,
) -> Result<(Vec<HeldMoney>, LimitStatus), LimitError> {
    let at = LimitTime { now: Instant::now(), today };
    let count = |(of, usage): (&SubjectLimits, _)| SubjectCounters::of_usage(usage, &of.limits, at.now, today);
    let mut counted: Vec<_> = subjects.iter().zip(usages).map(count).collect();
    let held = check_all(subjects, |index, of| match (counted.get_mut(index), usages.get(index)) {
        (Some(counters), Some(usage)) => counters.check(&of.limits, demand, usage.is_queued, at),
        _ => Err(StoreError::Busy.into()),
    })?;
    let mut status = LimitStatus::default();
    for ((SubjectLimits { limits, .. }, counters), held) in subjects.iter().zip(&mut counted).zip(&held) {
        counters.begin(limits, demand, *held, at);
        status.add(limits, counters, at);
    }
    Ok((held, status))
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
