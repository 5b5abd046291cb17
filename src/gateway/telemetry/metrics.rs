//! What is counted, for Prometheus and whoever reads its format.
//!
//! Decides the names, and that every label has few values: no key, no user, no prompt and no model of a caller is one.
//! An account is: operators have as many as they choose, and an account that fails must have a name.
//! Counts of jobs are taken from their records, so the two cannot tell different stories.

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
use crate::gateway::store::{Class, Record, State};
use crate::image::Size;

/// Upper bounds of the time that a job takes (ours): up to the deadline of a large image, and twice that.
const SECONDS: [f64; 10] = [0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// Everything that is counted in this process.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    answers: Family<AnswerLabels, Counter>,
    jobs: Family<JobLabels, Counter>,
    seconds: Family<SizeLabels, Histogram, fn() -> Histogram>,
    images: Family<ImageLabels, Counter>,
    attempts: Family<AttemptLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    accounts: AccountGauges,
    connections: ConnectionMetrics,
    waiting: Gauge,
    unsettled: Gauge,
    body_bytes: Gauge,
    spool_bytes: Gauge,
    refused_for_space: Counter,
    /// Held from what stands now until it is written: two who ask at once would clear each other's lines.
    telling: Mutex<()>,
}

/// How things stand at this moment.
#[derive(Debug, Default)]
pub(crate) struct Now {
    /// Each account in use.
    pub(crate) accounts: Vec<AccountNow>,
    /// Requests that wait for a place.
    pub(crate) waiting: usize,
    /// Records that have no durable outcome yet.
    pub(crate) unsettled: usize,
    /// Bytes of request bodies in memory that are still arriving.
    pub(crate) body_bytes: u64,
    /// Bytes of uploads on disk.
    pub(crate) spool_bytes: u64,
    /// The number of bodies that a budget has refused since the start.
    pub(crate) refused_for_space: u64,
}

/// How an account stands at this moment.
#[derive(Debug)]
pub(crate) struct AccountNow {
    /// Its name.
    pub(crate) name: String,
    /// Calls that are under way.
    pub(crate) taken: usize,
    /// Calls at once.
    pub(crate) places: usize,
    /// Whether it rests.
    pub(crate) resting: bool,
    /// Whether it is out until an operator brings it back.
    pub(crate) disabled: bool,
}

#[derive(Debug, Default)]
struct AccountGauges {
    taken: Family<AccountLabels, Gauge>,
    places: Family<AccountLabels, Gauge>,
    resting: Family<AccountLabels, Gauge>,
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
    state: Word,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SizeLabels {
    operation: String,
    size: Word,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ImageLabels {
    operation: String,
    size: Word,
    quality: Word,
    output_format: Word,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    account: String,
    class: Word,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    operation: String,
    direction: Word,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AccountLabels {
    account: String,
}

/// A label of a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Word(pub(super) &'static str);

// === impl Metrics ===

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("imagate"),
            answers: Family::default(),
            jobs: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            images: Family::default(),
            attempts: Family::default(),
            tokens: Family::default(),
            accounts: AccountGauges::default(),
            connections: ConnectionMetrics::default(),
            waiting: Gauge::default(),
            unsettled: Gauge::default(),
            body_bytes: Gauge::default(),
            spool_bytes: Gauge::default(),
            refused_for_space: Counter::default(),
            telling: Mutex::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("answers", "Answers by operation and status, refusals too", metrics.answers.clone());
        registry.register("jobs", "Jobs that are over, as their records say", metrics.jobs.clone());
        let about = "Time from the start of a job to its end, where it succeeded";
        registry.register_with_unit("job_duration", about, Unit::Seconds, metrics.seconds.clone());
        registry.register("images", "Images that went to callers", metrics.images.clone());
        registry.register("attempts", "Upstream calls by account and class of failure", metrics.attempts.clone());
        registry.register("tokens", "Tokens as the upstream counted them", metrics.tokens.clone());
        registry.register("waiting_requests", "Requests that wait for a place", metrics.waiting.clone());
        registry.register("unsettled_records", "Records without a durable outcome", metrics.unsettled.clone());
        registry.register("log_lines_dropped", "Lines of the log that could not be written", dropped_lines());
        registry.register("body_bytes", "Request bodies in memory that are still arriving", metrics.body_bytes.clone());
        registry.register("spool_bytes", "Uploads on disk", metrics.spool_bytes.clone());
        let about = "Request bodies that a budget of memory or disk has refused";
        registry.register("bodies_refused_for_space", about, metrics.refused_for_space.clone());
        metrics.accounts.register(registry);
        metrics.connections.register(registry);
        metrics
    }

    /// The metrics of the callers' connections.
    pub(crate) const fn connections(&self) -> &ConnectionMetrics {
        &self.connections
    }

    /// An answer has begun.
    pub(crate) fn answered(&self, operation: &str, status: u16) {
        self.answers.get_or_create(&AnswerLabels { operation: operation.to_owned(), status }).inc();
    }

    /// A job is over.
    pub(crate) fn job_ended(&self, record: &Record) {
        let operation = || record.operation.clone();
        let size = size_class(record.size.as_deref());
        self.jobs.get_or_create(&JobLabels { operation: operation(), state: Word(record.state.as_str()) }).inc();
        if let (Some(milliseconds), State::Succeeded) = (record.latency_ms, record.state) {
            let seconds = std::time::Duration::from_millis(milliseconds).as_secs_f64();
            self.seconds.get_or_create(&SizeLabels { operation: operation(), size }).observe(seconds);
        }
        for image in &record.delivered {
            let labels = ImageLabels {
                operation: operation(),
                size: size_class(image.size.as_deref()),
                quality: one_of(&["low", "medium", "high", "auto"], record.quality.as_deref()),
                output_format: one_of(&["png", "jpeg", "webp"], image.output_format.as_deref()),
            };
            self.images.get_or_create(&labels).inc();
        }
        for attempt in &record.attempts {
            let labels = AttemptLabels { account: attempt.account.clone(), class: class(attempt.class) };
            self.attempts.get_or_create(&labels).inc();
        }
        let [input, output, _] = record.tokens();
        for (direction, tokens) in [("input", input), ("output", output)] {
            if let Some(tokens) = tokens {
                let labels = TokenLabels { operation: operation(), direction: Word(direction) };
                self.tokens.get_or_create(&labels).inc_by(tokens);
            }
        }
    }

    /// Everything as text in the `OpenMetrics` format.
    ///
    /// # Errors
    ///
    /// Where it cannot be written, which is a fault of ours.
    pub(crate) fn render(&self, now: &Now) -> Result<String, std::fmt::Error> {
        let _alone = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        self.accounts.set(&now.accounts);
        self.waiting.set(whole(now.waiting));
        self.unsettled.set(whole(now.unsettled));
        self.body_bytes.set(i64::try_from(now.body_bytes).unwrap_or(i64::MAX));
        self.spool_bytes.set(i64::try_from(now.spool_bytes).unwrap_or(i64::MAX));
        // The lock is held, so no refusal is counted twice.
        self.refused_for_space.inc_by(now.refused_for_space.saturating_sub(self.refused_for_space.get()));
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

// === impl AccountGauges ===

impl AccountGauges {
    fn register(&self, registry: &mut Registry) {
        registry.register("account_calls", "Calls under way", self.taken.clone());
        registry.register("account_places", "Calls at once", self.places.clone());
        registry.register("account_resting", "1 while the account rests", self.resting.clone());
        registry.register("account_disabled", "1 while the account is out", self.disabled.clone());
    }

    /// Accounts that are gone are shown no more.
    fn set(&self, accounts: &[AccountNow]) {
        for family in [&self.taken, &self.places, &self.resting, &self.disabled] {
            family.clear();
        }
        for account in accounts {
            let labels = AccountLabels { account: account.name.clone() };
            self.taken.get_or_create(&labels).set(whole(account.taken));
            self.places.get_or_create(&labels).set(whole(account.places));
            self.resting.get_or_create(&labels).set(account.resting.into());
            self.disabled.get_or_create(&labels).set(account.disabled.into());
        }
    }
}

// === impl Word ===

impl EncodeLabelValue for Word {
    fn encode(&self, encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.encode(encoder)
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Sizes are many; what matters for time and cost is which of the two classes of the operating rules one is in.
fn size_class(size: Option<&str>) -> Word {
    match size.map(str::parse::<Size>) {
        Some(Ok(size)) if size.is_large() => Word("large"),
        Some(Ok(_)) => Word("standard"),
        Some(Err(_)) | None => Word("other"),
    }
}

fn one_of(words: &'static [&'static str], word: Option<&str>) -> Word {
    Word(words.iter().find(|known| Some(**known) == word).copied().unwrap_or("other"))
}

fn class(class: Option<Class>) -> Word {
    Word(match class {
        None => "none",
        Some(Class::N) => "N",
        Some(Class::F) => "F",
        Some(Class::X) => "X",
        Some(Class::R) => "R",
        Some(Class::O) => "O",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_at_the_same_time_is_told_of_every_account() {
        let metrics = Metrics::new();
        let account = |number: usize| AccountNow {
            name: format!("account-{number}"),
            taken: 0,
            places: 1,
            resting: false,
            disabled: false,
        };
        let now = Now { accounts: (0..20).map(account).collect(), ..Now::default() };
        let ask = || {
            for _ in 0..100 {
                let text = metrics.render(&now).expect("text");
                let told = text.lines().filter(|line| line.contains("{account=\"account-")).count();
                assert_eq!(told, 4 * now.accounts.len());
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(ask);
            }
        });
    }
}
