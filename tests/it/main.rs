//! Black-box tests of the program as it is shipped: the real binary, a fake upstream, and clients that control every
//! byte.
//!
//! The comment at the top of each module says which tests belong there. Heavy tests run one at a time
//! ([`kit::heavy_test_lock`]), all others in parallel.
#![cfg(feature = "cli")]
#![expect(clippy::incompatible_msrv, reason = "the program needs a newer Rust than the SDK")]
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says by a panic what is wrong; the kit is part of the tests"
)]

mod abuse;
mod accounts_cli;
mod added_models;
mod admin;
mod admin_people;
mod admin_table;
mod admission;
mod agents;
mod alerts;
mod attempts;
mod backup;
mod batch_cli;
mod canary;
mod cli;
mod clients;
mod connections;
mod costs;
mod delivery;
mod dialects;
mod disk;
mod doctor;
mod dropshot;
mod echoed_secrets;
mod edits;
mod failure_classes;
mod fallback;
mod filters;
mod first_run;
mod generate_cli;
mod generations;
mod group_policies;
mod guides;
mod idempotency;
mod image_links;
mod key_locks;
mod kit;
mod kit_itself;
mod limits;
mod logs;
mod matrix;
mod mcp;
mod metrics_and_health;
mod models;
mod models_probe;
mod money;
mod mutated;
mod nodes;
mod oauth;
mod odd_answers;
mod odd_failures;
mod odd_requests;
mod pages;
mod people_cli;
mod prompt_cli;
mod readme;
mod reasons;
mod records;
mod refusals;
mod relay;
mod reload;
mod remote_cli;
mod remote_images;
mod responses;
mod responses_accounts;
mod sdk;
mod skills;
mod slow;
mod slow_readers;
mod soak;
mod stopping;
mod streaming;
mod terminal_sessions;
mod u_cases;
mod usage_counts;
