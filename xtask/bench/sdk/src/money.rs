//! What a hundred images cost if attempts fail.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::child::SMALL_FILE_BYTES;
use crate::faults::{Ledger, LedgerSummary};
use crate::libraries::{Fallible, Library};
use crate::picture::{json_answer, picture};
use crate::process::run_child;
use crate::server::{Route, Server};

/// A hundred actions with up to three retries each take two to three minutes.
const CHILD_LIMIT: Duration = Duration::from_secs(600);
pub const LIBRARIES: [Library; 3] = [Library::Imagate, Library::AsyncOpenai, Library::GptImage];

/// What one library got, and what was paid for it.
pub struct Outcome {
    pub images: u64,
    pub ledger: LedgerSummary,
}

/// How the program calls a library, and what the service does with keys.
#[derive(Clone, Copy)]
pub struct Setting {
    pub work: &'static str,
    pub honors_keys: bool,
}

pub const SETTINGS: [Setting; 4] = [
    Setting { work: "single-calls", honors_keys: true },
    Setting { work: "single-calls", honors_keys: false },
    Setting { work: "repeated-calls", honors_keys: true },
    Setting { work: "repeated-calls", honors_keys: false },
];

/// The outcomes of all libraries in one setting.
pub type Outcomes = Vec<Outcome>;

// === impl Setting ===

impl Setting {
    fn route_name(self, library: Library) -> String {
        let keys = if self.honors_keys { "keys" } else { "no-keys" };
        format!("{}-{keys}-{}", self.work, library.name())
    }

    fn measure(self, server: &Server, library: Library) -> Fallible<Outcome> {
        let route = self.route_name(library);
        let result = run_child(library, self.work, &server.url(&route), &route, CHILD_LIMIT)?;
        let images = result["images"].as_u64().ok_or("no count of images")?;
        Ok(Outcome { images, ledger: server.summary(&route).ok_or("no ledger")? })
    }
}

/// A route with a ledger of its own for each library and setting.
pub fn routes(seed: u64) -> Vec<(String, Route)> {
    let body = json_answer(&picture(SMALL_FILE_BYTES));
    let route = |setting: Setting, library| {
        let ledger = Mutex::new(Ledger::new(seed, setting.honors_keys));
        (setting.route_name(library), Route::Faulty { ledger, body: body.clone() })
    };
    SETTINGS.into_iter().flat_map(|setting| LIBRARIES.map(|library| route(setting, library))).collect()
}

/// Runs everything at the same time, because nothing here depends on the speed of the machine. The outcomes are in the
/// order of [`SETTINGS`].
pub fn measure(server: &Server) -> Fallible<Vec<Outcomes>> {
    thread::scope(|scope| {
        let start = |setting: Setting| LIBRARIES.map(|library| scope.spawn(move || setting.measure(server, library)));
        let running = SETTINGS.map(start);
        let finish = |threads: [thread::ScopedJoinHandle<'_, _>; 3]| {
            threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect()
        };
        running.into_iter().map(finish).collect()
    })
}
