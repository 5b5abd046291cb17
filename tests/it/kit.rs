//! The parts that all end-to-end tests share: a fake upstream that can break every rule of HTTP and of the API, the
//! real program as a gateway, and an HTTP client that controls every byte it sends.
//!
//! Everything here is blocking and runs on plain threads: a test then reads from top to bottom, and nothing in it can
//! be mistaken for the runtime under test.

mod ciphertext_upstream;
mod config;
mod contract;
mod data_template;
mod database_proxy;
mod disk;
mod events;
mod fake_oidc;
mod foreign_site;
mod form;
mod gateway;
mod heavy_tests;
mod http;
mod image;
mod image_specimens;
mod leak_search;
mod leak_watch;
mod loopback_port;
mod moderator;
mod postgres;
mod process;
mod pseudo_terminal;
mod random;
mod recording_proxy;
mod stub_server;
mod tokens;
mod totp;
mod upstream;
mod verbatim;

pub(crate) use ciphertext_upstream::{AccountFault, CiphertextUpstream};
pub(crate) use config::Account;
pub(crate) use database_proxy::DatabaseProxy;
pub(crate) use disk::SmallDisk;
pub(crate) use events::{ERROR_FRAME, Event, Events, before_error_frame};
pub(crate) use fake_oidc::{
    ALL_ANSWER_FLAWS, ALL_DISCOVERY_FLAWS, ALL_TOKEN_FLAWS, AnswerFlaw, CLIENT_ID, CLIENT_SECRET, FakeProvider,
    KeyKind, TokenFlaw,
};
pub(crate) use foreign_site::ForeignSite;
pub(crate) use form::{Form, Pieces, alpha_png, concat, stretched_png};
pub(crate) use gateway::{Gateway, request};
pub(crate) use heavy_tests::{PEAK_BYTES, heavy_test_lock};
pub(crate) use http::{Answer, Call, Reply};
pub(crate) use image::{base64_filler, format_and_size, image_file};
pub(crate) use image_specimens::image_specimen;
pub(crate) use leak_search::{Canary, CapturedOutput, OutputChannel, hex};
pub(crate) use loopback_port::LoopbackPort;
pub(crate) use moderator::{FLAGGED, FakeModerator};
pub(crate) use postgres::PostgresDatabase;
pub(crate) use process::{CommandOutput, Program, Server, ends_within, signal};
pub(crate) use pseudo_terminal::{
    TerminalSession, answer_in_pseudo_terminal, piped_text, run_in_pseudo_terminal, run_in_terminal,
};
pub(crate) use random::Random;
pub(crate) use recording_proxy::RecordingProxy;
pub(crate) use stub_server::StubServer;
pub(crate) use tokens::{Exchange, FakeTokens, decoded_fields};
pub(crate) use totp::totp_code;
pub(crate) use upstream::{Attempt, FakeUpstream, ModelStep, RefusingPort, UnresponsivePort, sha256};
pub(crate) use verbatim::VerbatimUpstream;

use std::ffi::OsString;
use std::time::{Duration, Instant};

/// How long a test waits for something that must happen; only a hang ever takes this long.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Calls `probe` every 20 milliseconds until it returns `Some`; panics with `expectation` after [`TEST_TIMEOUT`].
#[track_caller]
pub(crate) fn eventually<T>(expectation: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(start.elapsed() < TEST_TIMEOUT, "waited in vain: {expectation}");
        pause(Duration::from_millis(20));
    }
}

/// Sleeps: between two polls, or for a time that a script, a seed or the test itself prescribes. To wait for an effect,
/// use [`eventually`].
#[expect(clippy::disallowed_methods, reason = "a thread of a test blocks nobody else")]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// A variable of the environment in which the tests were started.
#[expect(clippy::disallowed_methods, reason = "how often to kill and which interpreter to use come from the caller")]
pub(crate) fn env_setting(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}
