//! Alerts: events that operators want to hear of, and their delivery by webhook and e-mail.
//!
//! This module decides which events there are, when one is raised, and how it is delivered. It must not know how limits
//! are counted or how rows are stored. An image request never waits for it: the limiter notes the budgets that have
//! changed, and a task looks at them a second later.
//!
//! Rules: the same event of the same period is raised once, also with several nodes and after a restart, because its
//! row is unique; a sweep over all budgets, at the start and every few minutes, finds those that no look has seen, for
//! example because the process was killed; a delivery is repeated for about a day and then given up; no message
//! contains a prompt or a secret.

mod delivery;
mod detection;
mod email;
mod webhook;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, interval};

use super::config::{AlertConfig, Config, RequestLimits, limits_from_json};
use super::limits::{ChangedBudget, LimitSubject, RequestLimiter, SubjectLimits};
use super::store::{AlertStore, LimitedSubject, NewAlert, ReservationSubjectKind, Store, StoreError, Timestamp};
use crate::wire::admin::types;

pub(crate) use delivery::send_test;

use delivery::CHANNELS;

/// The interval in which changed budgets are looked at (our choice).
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The interval in which all budgets are looked at (our choice).
const SWEEP_INTERVAL: Duration = Duration::from_secs(300);
/// The number of budgets that are looked at together (our choice).
const SWEEP_BATCH: usize = 200;
/// The time for which alerts are kept (our choice). It is longer than the longest period of a budget.
const KEPT_FOR: Duration = Duration::from_secs(90 * 86_400);
/// The most identities of raised alerts that are remembered (our choice). A forgotten one costs a statement.
const REMEMBERED_MAX: usize = 10_000;

/// The tasks that raise and deliver alerts. They end when this value is dropped.
pub(crate) struct AlertService {
    state: Arc<AlertState>,
    tasks: Vec<AbortHandle>,
}

struct AlertState {
    store: Arc<dyn AlertStore>,
    limiter: Arc<RequestLimiter>,
    settings: Mutex<Arc<AlertSettings>>,
    /// Wakes the deliveries when an alert was raised.
    raised: Notify,
}

/// The settings in force.
#[derive(Default)]
struct AlertSettings {
    channels: AlertConfig,
    /// The groups that have a budget.
    groups: Vec<SubjectLimits>,
}

/// Returns the facts of an event, which the store keeps as JSON.
pub(crate) fn alert_data(details: &str) -> types::AlertData {
    let empty = || types::AlertData {
        subject: None,
        limit: None,
        budget_usd: None,
        alert_usd: None,
        spent_usd: None,
        period_ends: None,
    };
    serde_json::from_str(details).unwrap_or_else(|error| {
        tracing::error!(%error, "the facts of an alert cannot be read");
        empty()
    })
}

// === impl AlertService ===

impl AlertService {
    /// Starts the tasks.
    pub(crate) fn start(store: &Arc<dyn Store>, limiter: &Arc<RequestLimiter>, config: &Config) -> Self {
        let (store, limiter) = (Arc::clone(store) as Arc<dyn AlertStore>, Arc::clone(limiter));
        let settings = Mutex::new(Arc::new(AlertSettings::of(config)));
        let state = Arc::new(AlertState { store, limiter, settings, raised: Notify::new() });
        let mut tasks = vec![Handle::current().spawn(watch_budgets(Arc::clone(&state))).abort_handle()];
        for channel in CHANNELS {
            tasks.push(Handle::current().spawn(delivery::deliver_all(Arc::clone(&state), channel)).abort_handle());
        }
        Self { state, tasks }
    }

    /// Replaces the settings.
    pub(crate) fn set_config(&self, config: &Config) {
        *self.state.settings.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(AlertSettings::of(config));
    }

    /// Ends the tasks, because the store is about to be closed. Alerts that were not delivered are delivered after the
    /// next start.
    pub(crate) fn stop(&self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Drop for AlertService {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Looks at the budgets that have changed, and from time to time at all of them.
async fn watch_budgets(state: Arc<AlertState>) {
    let (mut ticks, mut swept_at, mut known) = (interval(LOOK_INTERVAL), None::<Instant>, HashSet::new());
    let mut last = Vec::new();
    loop {
        ticks.tick().await;
        let changed = state.limiter.take_changed_budgets();
        // Each one is looked at twice: the spending may have been noted just before it was stored.
        let looked_at = [std::mem::take(&mut last), changed.clone()].concat();
        last = changed;
        if let Err(error) = state.look(&looked_at, &mut known).await {
            log_failure(&error);
            for budget in &looked_at {
                state.limiter.note_budget(&budget.of, budget.has_refused);
            }
        }
        if swept_at.is_none_or(|at| at.elapsed() >= SWEEP_INTERVAL) {
            swept_at = Some(Instant::now());
            state.sweep(&mut known).await.unwrap_or_else(|error| log_failure(&error));
        }
    }
}

fn log_failure(error: &StoreError) {
    let error = error as &dyn std::error::Error;
    tracing::warn!(error, "alerts could not be checked; the next look will try again");
}

// === impl AlertSettings ===

impl AlertSettings {
    fn of(config: &Config) -> Self {
        let with_budget = config.groups.iter().filter(|group| group.limits.budget.is_some());
        let groups = with_budget.map(|group| SubjectLimits {
            subject: LimitSubject::Group(group.name.clone()),
            limits: Arc::clone(&group.limits),
        });
        Self { channels: config.alerts.clone(), groups: groups.collect() }
    }
}

// === impl AlertState ===

impl AlertState {
    fn settings(&self) -> Arc<AlertSettings> {
        Arc::clone(&self.settings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at all budgets, and removes alerts that are old.
    async fn sweep(&self, known: &mut HashSet<String>) -> Result<(), StoreError> {
        if known.len() > REMEMBERED_MAX {
            known.clear();
        }
        self.store.remove_old_alerts(Timestamp::now() - KEPT_FOR).await?;
        let stored = self.store.limited_subjects().await?;
        let stored = stored.into_iter().filter_map(with_budget);
        let all: Vec<_> = self.settings().groups.iter().cloned().chain(stored).collect();
        for batch in all.chunks(SWEEP_BATCH) {
            let changed = batch.iter().map(|of| ChangedBudget { of: of.clone(), has_refused: false });
            self.look(&changed.collect::<Vec<_>>(), known).await?;
        }
        Ok(())
    }

    /// Raises the alerts of these budgets that were not raised before.
    async fn look(&self, changed: &[ChangedBudget], known: &mut HashSet<String>) -> Result<(), StoreError> {
        if changed.is_empty() {
            return Ok(());
        }
        let subjects: Vec<_> = changed.iter().map(|budget| budget.of.clone()).collect();
        let usages = self.limiter.usage(&subjects).await?;
        for (budget, usage) in changed.iter().zip(&usages) {
            let mut events = detection::budget_events(&budget.of.subject, usage, budget.has_refused);
            events.retain(|event| !known.contains(&event.identity));
            for event in events {
                known.insert(self.raise(event, &budget.of.subject).await?);
            }
        }
        Ok(())
    }

    /// Stores an event, and returns its identity.
    async fn raise(&self, event: detection::BudgetEvent, subject: &LimitSubject) -> Result<String, StoreError> {
        let (kind, id) = subject.kind_and_id();
        let name = self.store.subject_name(kind, id).await?;
        let alert = event.into_alert(subject, name.as_deref())?;
        let channels = delivery::configured(&self.settings().channels);
        if self.store.raise_alert(&alert, &channels).await? {
            let NewAlert { event, details, .. } = &alert;
            tracing::warn!(event, details, "an alert was raised");
            self.raised.notify_waiters();
        }
        Ok(alert.identity)
    }
}

/// Returns a key or a user, if it has a budget.
fn with_budget(row: LimitedSubject) -> Option<SubjectLimits> {
    let limits: Map<String, Value> = serde_json::from_str(&row.limits).ok()?;
    let limits: RequestLimits = limits_from_json(&limits).ok().filter(|limits| limits.budget.is_some())?;
    let subject = match row.kind {
        ReservationSubjectKind::Key => LimitSubject::Key(row.id.into()),
        ReservationSubjectKind::User => LimitSubject::User(row.id.into()),
        ReservationSubjectKind::Group => LimitSubject::Group(row.id),
    };
    Some(SubjectLimits { subject, limits: Arc::new(limits) })
}
