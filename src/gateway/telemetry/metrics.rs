//! The metrics of the process, in the format of Prometheus.
//!
//! This module decides the names of the metrics, and keeps the number of label values small: no key, user, prompt or
//! caller's model may be a label. The name of an account is a label, because not callers but admins and operators
//! decide how many accounts there are, and because they must see which account fails. The counts of jobs are taken from their records, so metrics and records
//! cannot contradict each other.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::ConnectionMetrics;
use super::log::dropped_lines;
use crate::gateway::store::{AttemptClass, JobRecord, JobState, all_tokens};
use crate::image::Size;

/// The upper bounds of the histogram of job times, in seconds (our choice): up to the deadline of a large image, and
/// twice that.
const JOB_SECONDS_BUCKETS: [f64; 10] = [0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// All metrics of this process.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    answers: Family<AnswerLabels, Counter>,
    jobs: Family<JobLabels, Counter>,
    job_seconds: Family<SizeLabels, Histogram, fn() -> Histogram>,
    images: Family<ImageLabels, Counter>,
    attempts: Family<AttemptLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    cost: Family<CostLabels, Counter<f64, AtomicU64>>,
    unpriced_jobs: Family<OperationLabels, Counter>,
    accounts: AccountGauges,
    connections: ConnectionMetrics,
    waiting: Gauge,
    unsettled: Gauge,
    body_bytes: Gauge,
    spool_bytes: Gauge,
    refused_for_space: Counter,
    refused_work: Family<LimitLabels, Counter>,
    /// Locked while the current values are set and rendered. Otherwise two concurrent calls of `render` would clear
    /// each other's values.
    render_lock: Mutex<()>,
}

/// The current values, which are read when the metrics are requested.
#[derive(Debug, Default)]
pub(crate) struct MetricsSnapshot {
    /// Each account in use.
    pub(crate) accounts: Vec<AccountSnapshot>,
    /// The number of requests that wait for a slot.
    pub(crate) waiting: usize,
    /// The number of records that have no durable outcome yet.
    pub(crate) unsettled: usize,
    /// The bytes of request bodies in memory that are still arriving.
    pub(crate) body_bytes: u64,
    /// The bytes of uploads and answers on disk.
    pub(crate) spool_bytes: u64,
    /// The number of refusals since the start because of a budget or of the disk space reserved for the database.
    pub(crate) refused_for_space: u64,
}

/// The current state of an account.
#[derive(Debug)]
pub(crate) struct AccountSnapshot {
    /// The name of the account.
    pub(crate) name: String,
    /// The number of running calls.
    pub(crate) used_slots: usize,
    /// The most concurrent calls.
    pub(crate) slots: usize,
    /// True during a cooldown.
    pub(crate) is_cooling_down: bool,
    /// True if the account is disabled until an admin or a command enables it.
    pub(crate) is_disabled: bool,
}

#[derive(Debug, Default)]
struct AccountGauges {
    used_slots: Family<AccountLabels, Gauge>,
    slots: Family<AccountLabels, Gauge>,
    cooling_down: Family<AccountLabels, Gauge>,
    disabled: Family<AccountLabels, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    operation: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    operation: String,
    state: StaticLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SizeLabels {
    operation: String,
    size: StaticLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ImageLabels {
    operation: String,
    size: StaticLabel,
    quality: StaticLabel,
    output_format: StaticLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    account: String,
    class: StaticLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    operation: String,
    direction: StaticLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CostLabels {
    operation: String,
    group: String,
    basis: StaticLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    limit: StaticLabel,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AccountLabels {
    account: String,
}

/// A label from a closed set of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct StaticLabel(pub(super) &'static str);

// === impl Metrics ===

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("imagate"),
            answers: Family::default(),
            jobs: Family::default(),
            job_seconds: Family::new_with_constructor(|| Histogram::new(JOB_SECONDS_BUCKETS)),
            images: Family::default(),
            attempts: Family::default(),
            tokens: Family::default(),
            cost: Family::default(),
            unpriced_jobs: Family::default(),
            accounts: AccountGauges::default(),
            connections: ConnectionMetrics::default(),
            waiting: Gauge::default(),
            unsettled: Gauge::default(),
            body_bytes: Gauge::default(),
            spool_bytes: Gauge::default(),
            refused_for_space: Counter::default(),
            refused_work: Family::default(),
            render_lock: Mutex::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("answers", "Answers by operation and status, including refusals", metrics.answers.clone());
        registry.register("jobs", "Finished jobs by outcome", metrics.jobs.clone());
        let help = "Duration of successful jobs";
        registry.register_with_unit("job_duration", help, Unit::Seconds, metrics.job_seconds.clone());
        registry.register("images", "Images sent to callers", metrics.images.clone());
        registry.register("attempts", "Upstream calls by account and class of failure", metrics.attempts.clone());
        registry.register("tokens", "Tokens as the upstream counted them", metrics.tokens.clone());
        registry.register("cost_usd", "Cost of finished jobs in US dollars, where it is known", metrics.cost.clone());
        registry.register("unpriced_jobs", "Finished jobs whose cost is unknown", metrics.unpriced_jobs.clone());
        registry.register("waiting_requests", "Requests that wait for a slot", metrics.waiting.clone());
        registry.register("unsettled_records", "Records without a durable outcome", metrics.unsettled.clone());
        registry.register("log_lines_dropped", "Lines of the log that could not be written", dropped_lines());
        registry.register(
            "body_bytes",
            "Memory of requests: bodies, decoders and JSON values",
            metrics.body_bytes.clone(),
        );
        registry.register("spool_bytes", "Uploads on disk", metrics.spool_bytes.clone());
        let help = "Request bodies that a budget of memory or disk has refused";
        registry.register("bodies_refused_for_space", help, metrics.refused_for_space.clone());
        let help = "Requests that a limit has refused before their work was done";
        registry.register("refused_work", help, metrics.refused_work.clone());
        metrics.accounts.register(registry);
        metrics.connections.register(registry);
        metrics
    }

    /// Returns the metrics of the callers' connections.
    pub(crate) const fn connections(&self) -> &ConnectionMetrics {
        &self.connections
    }

    /// Counts an answer that has begun.
    pub(crate) fn count_response(&self, operation: &str, status: u16) {
        self.answers.get_or_create(&AnswerLabels { operation: operation.to_owned(), status }).inc();
    }

    /// Counts a request that this limit has refused before its body was read or its stored answer was sent.
    pub(crate) fn count_refused_work(&self, limit: &'static str) {
        self.refused_work.get_or_create(&LimitLabels { limit: StaticLabel(limit) }).inc();
    }

    /// Counts a job that has ended.
    pub(crate) fn count_job(&self, job: &JobRecord) {
        let record = &job.document;
        let operation = || record.operation.clone();
        let size = size_class(record.size.as_deref());
        self.jobs.get_or_create(&JobLabels { operation: operation(), state: StaticLabel(record.state.as_str()) }).inc();
        if let (Some(milliseconds), JobState::Succeeded) = (record.latency_ms, record.state) {
            let seconds = std::time::Duration::from_millis(milliseconds).as_secs_f64();
            self.job_seconds.get_or_create(&SizeLabels { operation: operation(), size }).observe(seconds);
        }
        for image in &record.delivered {
            let labels = ImageLabels {
                operation: operation(),
                size: size_class(image.size.as_deref()),
                quality: known_or_other(&["low", "medium", "high", "auto"], record.quality.as_deref()),
                output_format: known_or_other(&["png", "jpeg", "webp"], image.output_format.as_deref()),
            };
            self.images.get_or_create(&labels).inc();
        }
        for attempt in &record.attempts {
            let labels = AttemptLabels {
                account: attempt.account.clone().unwrap_or_default(),
                class: class_label(attempt.class),
            };
            self.attempts.get_or_create(&labels).inc();
        }
        self.count_cost(job);
        let [input, output, _] = all_tokens(record);
        for (direction, tokens) in [("input", input), ("output", output)] {
            if let Some(tokens) = tokens {
                let labels = TokenLabels { operation: operation(), direction: StaticLabel(direction) };
                self.tokens.get_or_create(&labels).inc_by(tokens);
            }
        }
    }

    fn count_cost(&self, job: &JobRecord) {
        let record = &job.document;
        let operation = record.operation.clone();
        match (job.cost, record.cost_basis) {
            (Some(usd), Some(basis)) => {
                let labels = CostLabels { operation, group: record.group.clone(), basis: StaticLabel(basis.as_str()) };
                self.cost.get_or_create(&labels).inc_by(usd.dollars());
            }
            _ => drop(self.unpriced_jobs.get_or_create(&OperationLabels { operation }).inc()),
        }
    }

    /// Returns all metrics as text in the `OpenMetrics` format.
    ///
    /// # Errors
    ///
    /// Returns an error if the text cannot be written, which is a bug of this program.
    pub(crate) fn render(&self, snapshot: &MetricsSnapshot) -> Result<String, std::fmt::Error> {
        let _guard = self.render_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.accounts.set(&snapshot.accounts);
        self.waiting.set(to_gauge_value(snapshot.waiting));
        self.unsettled.set(to_gauge_value(snapshot.unsettled));
        self.body_bytes.set(i64::try_from(snapshot.body_bytes).unwrap_or(i64::MAX));
        self.spool_bytes.set(i64::try_from(snapshot.spool_bytes).unwrap_or(i64::MAX));
        // `render_lock` is held, so no refusal is counted twice.
        self.refused_for_space.inc_by(snapshot.refused_for_space.saturating_sub(self.refused_for_space.get()));
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

// === impl AccountGauges ===

impl AccountGauges {
    fn register(&self, registry: &mut Registry) {
        registry.register("account_calls", "Running calls of an account", self.used_slots.clone());
        registry.register("account_slots", "Maximum number of concurrent calls of an account", self.slots.clone());
        registry.register("account_cooling_down", "1 while the account is in cooldown", self.cooling_down.clone());
        registry.register("account_disabled", "1 while the account is disabled", self.disabled.clone());
    }

    /// Sets the values of these accounts. Accounts that no longer exist are removed.
    fn set(&self, accounts: &[AccountSnapshot]) {
        for family in [&self.used_slots, &self.slots, &self.cooling_down, &self.disabled] {
            family.clear();
        }
        for account in accounts {
            let labels = AccountLabels { account: account.name.clone() };
            self.used_slots.get_or_create(&labels).set(to_gauge_value(account.used_slots));
            self.slots.get_or_create(&labels).set(to_gauge_value(account.slots));
            self.cooling_down.get_or_create(&labels).set(account.is_cooling_down.into());
            self.disabled.get_or_create(&labels).set(account.is_disabled.into());
        }
    }
}

// === impl StaticLabel ===

impl EncodeLabelValue for StaticLabel {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.encode(encoder)
    }
}

fn to_gauge_value(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns the class of a size. There are many sizes, but for time and cost only two classes matter: large sizes and
/// all others.
fn size_class(size: Option<&str>) -> StaticLabel {
    match size.map(str::parse::<Size>) {
        Some(Ok(size)) if size.is_large() => StaticLabel("large"),
        Some(Ok(_)) => StaticLabel("standard"),
        Some(Err(_)) | None => StaticLabel("other"),
    }
}

/// Returns the value if it is a known one, otherwise `other`: callers must not create new label values.
fn known_or_other(known_values: &'static [&'static str], value: Option<&str>) -> StaticLabel {
    StaticLabel(known_values.iter().find(|known| Some(**known) == value).copied().unwrap_or("other"))
}

fn class_label(class: Option<AttemptClass>) -> StaticLabel {
    StaticLabel(class.map_or("none", AttemptClass::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_renders_contain_every_account() {
        let metrics = Metrics::new();
        let account = |number: usize| AccountSnapshot {
            name: format!("account-{number}"),
            used_slots: 0,
            slots: 1,
            is_cooling_down: false,
            is_disabled: false,
        };
        let snapshot = MetricsSnapshot { accounts: (0..20).map(account).collect(), ..MetricsSnapshot::default() };
        let render_repeatedly = || {
            for _ in 0..100 {
                let text = metrics.render(&snapshot).expect("the metrics can be rendered");
                let line_count = text.lines().filter(|line| line.contains("{account=\"account-")).count();
                assert_eq!(line_count, 4 * snapshot.accounts.len());
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(render_repeatedly);
            }
        });
    }
}
