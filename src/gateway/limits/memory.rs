//! The counters of all subjects in the memory of the only node.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::counters::{LimitTime, SubjectCounters, check_all};
use super::reservation::{BoundKind, JobDemand, JobEnd, LimitError, LimitReservation, LimitSubject, SubjectLimits};
use crate::gateway::config::RequestLimits;
use crate::gateway::store::{HeldMoney, RunningJob, Timestamp, UtcDay};

/// The time between two removals of idle counters (our choice).
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The counters of the subjects that have running jobs, or that have had limits since the start of the process.
#[derive(Default)]
pub(super) struct LimitCounters {
    subjects: HashMap<LimitSubject, SubjectCounters>,
    /// The time of the last removal of idle counters.
    swept_at: Option<Instant>,
}

// === impl LimitCounters ===

impl LimitCounters {
    pub(super) fn of(&mut self, subject: &LimitSubject) -> &mut SubjectCounters {
        self.subjects.entry(subject.clone()).or_default()
    }

    /// Checks that a job keeps the limits of all its subjects, and returns what it would hold in the budget of each.
    pub(super) fn check(
        &mut self,
        subjects: &[SubjectLimits],
        demand: &JobDemand,
        at: LimitTime,
    ) -> Result<Vec<HeldMoney>, LimitError> {
        self.sweep(at);
        check_all(subjects, |_, of| self.of(&of.subject).check(&of.limits, demand, false, at))
    }

    /// Counts the end of a job.
    pub(super) fn end(&mut self, reservation: &LimitReservation, end: JobEnd) {
        for (of, held) in &reservation.shares {
            if let Some(counters) = self.subjects.get_mut(&of.subject) {
                counters.end(&reservation.demand, *held, reservation.day(), end);
            }
        }
    }

    /// Counts a job that another process runs.
    pub(super) fn begin_running(&mut self, job: &RunningJob, now: Instant) {
        let record = &job.document;
        let bound = if record.n.is_some() { BoundKind::Images } else { BoundKind::Ceiling };
        let images = record.n.unwrap_or_else(|| u64::from(record.size.is_some()));
        let demand = JobDemand { images: u32::try_from(images).unwrap_or(u32::MAX), cost: job.max_cost, bound };
        let subjects = [
            LimitSubject::Key(record.key.as_str().into()),
            LimitSubject::User(record.user.as_str().into()),
            LimitSubject::Group(record.group.clone()),
        ];
        let at = LimitTime { now, today: UtcDay::from(Timestamp::from(record.created_at)).into() };
        for subject in &subjects {
            self.of(subject).begin(&RequestLimits::default(), &demand, demand.held(), at);
        }
    }

    /// Removes what is past from the counters of all subjects, once in a minute, so that a subject without requests
    /// takes no memory.
    fn sweep(&mut self, LimitTime { now, today }: LimitTime) {
        if self.swept_at.is_some_and(|swept_at| now.duration_since(swept_at) < SWEEP_INTERVAL) {
            return;
        }
        self.swept_at = Some(now);
        self.subjects.retain(|_, counters| !counters.prune(now, today));
    }

    /// Returns the number of subjects that have counters.
    #[cfg(test)]
    pub(super) fn subject_count(&self) -> usize {
        self.subjects.len()
    }
}
