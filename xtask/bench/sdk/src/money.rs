//! The cost of a hundred images if attempts fail.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::child::SMALL_FILE_BYTES;
use crate::faults::{LedgerSummary, PaymentLedger};
use crate::libraries::{ComparedLibrary, Fallible};
use crate::picture::{json_answer, picture};
use crate::process::run_child;
use crate::server::{ImageServer, ServerRoute};

/// A hundred actions with up to three retries each take two to three minutes.
const CHILD_LIMIT: Duration = Duration::from_secs(600);
pub const LIBRARIES: [ComparedLibrary; 3] =
    [ComparedLibrary::Imagate, ComparedLibrary::AsyncOpenai, ComparedLibrary::GptImage];

/// The images that one library got, and the completions that were paid for them.
pub struct MoneyOutcome {
    pub images: u64,
    pub ledger: LedgerSummary,
}

/// The way in which the program calls a library, and the treatment of keys by the service.
#[derive(Clone, Copy)]
pub struct MoneySetting {
    pub work: &'static str,
    pub honors_keys: bool,
}

pub const SETTINGS: [MoneySetting; 4] = [
    MoneySetting { work: "single-calls", honors_keys: true },
    MoneySetting { work: "single-calls", honors_keys: false },
    MoneySetting { work: "repeated-calls", honors_keys: true },
    MoneySetting { work: "repeated-calls", honors_keys: false },
];

/// The outcomes of all libraries in one setting.
pub type MoneyOutcomes = Vec<MoneyOutcome>;

// === impl MoneySetting ===

impl MoneySetting {
    fn route_name(self, library: ComparedLibrary) -> String {
        let keys = if self.honors_keys { "keys" } else { "no-keys" };
        format!("{}-{keys}-{}", self.work, library.name())
    }

    fn measure(self, server: &ImageServer, library: ComparedLibrary) -> Fallible<MoneyOutcome> {
        let route = self.route_name(library);
        let result = run_child(library, self.work, &server.url(&route), &route, CHILD_LIMIT)?;
        let images = result["images"].as_u64().ok_or("no count of images")?;
        Ok(MoneyOutcome { images, ledger: server.summary(&route).ok_or("no ledger")? })
    }
}

/// A route with a ledger of its own for each library and setting.
pub fn routes(seed: u64) -> Vec<(String, ServerRoute)> {
    let body = json_answer(&picture(SMALL_FILE_BYTES));
    let route = |setting: MoneySetting, library| {
        let ledger = Mutex::new(PaymentLedger::new(seed, setting.honors_keys));
        (setting.route_name(library), ServerRoute::Faulty { ledger, body: body.clone() })
    };
    SETTINGS.into_iter().flat_map(|setting| LIBRARIES.map(|library| route(setting, library))).collect()
}

/// Runs everything at the same time, because nothing here depends on the speed of the machine. The outcomes are in the
/// order of [`SETTINGS`].
pub fn measure(server: &ImageServer) -> Fallible<Vec<MoneyOutcomes>> {
    thread::scope(|scope| {
        let start =
            |setting: MoneySetting| LIBRARIES.map(|library| scope.spawn(move || setting.measure(server, library)));
        let running = SETTINGS.map(start);
        let finish = |threads: [thread::ScopedJoinHandle<'_, _>; 3]| {
            threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).collect()
        };
        running.into_iter().map(finish).collect()
    })
}
