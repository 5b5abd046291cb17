//! What every test stands on: a fake upstream that can break every rule, a gateway that is the real program, and a
//! client that speaks bytes.
//!
//! Everything here is blocking and runs on plain threads: a test then reads from top to bottom, and nothing in it can be
//! mistaken for the runtime under test.

mod config;
mod contract;
mod desk;
mod disk;
mod events;
mod form;
mod gateway;
mod hay;
mod heavy;
mod http;
mod image;
mod moderator;
mod process;
mod random;
mod site;
mod tap;
mod tokens;
mod upstream;
mod verbatim;
mod watch;
mod zoo;

pub(crate) use config::Account;
pub(crate) use disk::SmallDisk;
pub(crate) use events::{ERROR_FRAME, Event, Events, before_error_frame};
pub(crate) use form::{Form, Pieces, alpha_png, concat, stretched_png};
pub(crate) use gateway::{Gateway, request};
pub(crate) use hay::{Canary, Hay, Place, hex};
pub(crate) use heavy::{PEAK_BYTES, heavy};
pub(crate) use http::{Answer, Call, Reply};
pub(crate) use image::{facts, filler, picture};
pub(crate) use moderator::{FLAGGED, FakeModerator};
pub(crate) use process::{Done, Program, Server, ends_within, signal};
pub(crate) use random::Random;
pub(crate) use site::Site;
pub(crate) use tap::Tap;
pub(crate) use tokens::{Exchange, FakeTokens};
pub(crate) use upstream::{Attempt, Deaf, FakeUpstream, Shut, Turn, sha256};
pub(crate) use verbatim::VerbatimUpstream;
pub(crate) use zoo::specimen;

use std::ffi::OsString;
use std::time::{Duration, Instant};

/// How long a test waits for something that must happen; only a hang ever takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `probe` says something, looking often; panics with `what` when it never does.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        pause(Duration::from_millis(20));
    }
}

/// Between two looks, or where a script or a seed says so; never in the hope that something will have happened.
#[expect(clippy::disallowed_methods, reason = "a thread of a test blocks nobody else")]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// What the caller of the tests has set in the environment.
#[expect(clippy::disallowed_methods, reason = "how often to kill and which interpreter to use come from the caller")]
pub(crate) fn setting(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}
