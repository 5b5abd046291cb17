//! Black-box tests of the program as it is shipped: the real binary, a fake upstream, clients that speak bytes.
//!
//! Every module opens with what belongs there. Heavy tests take turns ([`kit::heavy`]); the rest runs side by side.
#![cfg(feature = "cli")]
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says by a panic what is wrong; the kit is part of the tests"
)]

mod admission;
mod attempts;
mod cli;
mod clients;
mod delivery;
mod edits;
mod first_run;
mod generations;
mod kit;
mod kit_itself;
mod matrix;
mod models;
mod records;
mod refusals;
mod relay;
mod streaming;
