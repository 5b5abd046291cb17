//! The money rules end to end: through the official clients as users run them, under random faults, and over time.
//!
//! The ledger of the fake upstream shows what was really paid, the records what the gateway says was paid.

mod chaos;
mod cooldowns;
mod orphans;
mod repeated_requests;
mod sdks;

use serde_json::Value;

use crate::kit::{Account, FakeUpstream, Gateway};

/// Three accounts at one upstream; `first` is always chosen first while it has a free slot.
fn pool(upstream: &FakeUpstream) -> Gateway {
    pool_with("", upstream)
}

/// As [`pool`], with these top-level lines of the configuration.
fn pool_with(top: &str, upstream: &FakeUpstream) -> Gateway {
    let accounts = [
        Account::for_upstream("first", upstream),
        Account::for_upstream("second", upstream).with_free_tier(),
        Account::for_upstream("third", upstream).with_free_tier(),
    ];
    Gateway::with(top, &accounts)
}

/// How many attempts were answered completely, with an image.
fn paid(upstream: &FakeUpstream) -> usize {
    upstream.received_attempts().iter().filter(|attempt| attempt.completed && !attempt.images.is_empty()).count()
}

/// How many attempts the records list.
fn recorded_attempts(records: &[Value]) -> usize {
    records.iter().map(|record| record["attempts"].as_array().map_or(0, Vec::len)).sum()
}
