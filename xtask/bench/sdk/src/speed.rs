//! Time and memory of large answers.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::child::FILE_BYTES;
use crate::libraries::{ComparedLibrary, Fallible};
use crate::picture::{completed_event, json_answer, picture};
use crate::process::run_child;
use crate::server::{ImageServer, ServerRoute};

const CHILD_LIMIT: Duration = Duration::from_secs(180);
const EVENT_LIBRARIES: &[ComparedLibrary] = &[ComparedLibrary::Imagate, ComparedLibrary::AsyncOpenai];

/// A large answer.
pub struct SpeedCase {
    pub name: &'static str,
    route: &'static str,
    work: &'static str,
    /// The number of characters of the image in an event; zero for a JSON answer.
    characters: usize,
    libraries: &'static [ComparedLibrary],
}

pub const CASES: [SpeedCase; 3] = [
    SpeedCase {
        name: "streamed event, 12 MB",
        route: "event-12",
        work: "event",
        characters: 12_000_000,
        libraries: EVENT_LIBRARIES,
    },
    SpeedCase {
        name: "streamed event, 30 MB",
        route: "event-30",
        work: "event",
        characters: 30_000_000,
        libraries: EVENT_LIBRARIES,
    },
    SpeedCase {
        name: "JSON answer, file of 28 MB, saved",
        route: "file-28",
        work: "file",
        characters: 0,
        libraries: &ComparedLibrary::ALL,
    },
];

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct SpeedSample {
    pub seconds: f64,
    pub peak_mb: f64,
}

/// The medians of a case by library.
pub type SpeedMedians = BTreeMap<ComparedLibrary, SpeedSample>;

// === impl SpeedCase ===

impl SpeedCase {
    pub fn route(&self) -> (String, ServerRoute) {
        let route = if self.characters > 0 {
            ServerRoute::Events(completed_event(self.characters))
        } else {
            ServerRoute::Json(json_answer(&picture(FILE_BYTES)))
        };
        (self.route.to_owned(), route)
    }

    /// The libraries take turns, so that a change of the machine during the run affects all of them. The time of
    /// async-openai grows with the square of the length of an event, so it has fewer rounds there.
    pub fn measure(&self, server: &ImageServer, rounds: usize, slow_rounds: usize) -> Fallible<SpeedMedians> {
        let mut samples: BTreeMap<ComparedLibrary, Vec<SpeedSample>> = BTreeMap::new();
        for round in 0..rounds {
            let is_measured = |library: &ComparedLibrary| {
                let is_slow = *library == ComparedLibrary::AsyncOpenai && self.characters > 0;
                !is_slow || round < slow_rounds
            };
            for library in self.libraries.iter().copied().filter(is_measured) {
                let sample = self.measure_once(server, library)?;
                eprintln!("{}, {}, round {}: {sample:?}", self.name, library.name(), round + 1);
                samples.entry(library).or_default().push(sample);
            }
        }
        Ok(samples.into_iter().map(|(library, samples)| (library, median_sample(&samples))).collect())
    }

    fn measure_once(&self, server: &ImageServer, library: ComparedLibrary) -> Fallible<SpeedSample> {
        let result = run_child(library, self.work, &server.url(self.route), self.route, CHILD_LIMIT)?;
        if self.characters > 0 && result["characters"] != self.characters {
            return Err(format!("{} received {} characters", library.name(), result["characters"]).into());
        }
        let seconds = result["seconds"].as_f64().ok_or("no time")?;
        let peak_mb = result["peak_kib"].as_f64().ok_or("no memory")? * 1024.0 / 1e6;
        Ok(SpeedSample { seconds, peak_mb })
    }
}

fn median_sample(samples: &[SpeedSample]) -> SpeedSample {
    SpeedSample {
        seconds: median(samples.iter().map(|sample| sample.seconds).collect()),
        peak_mb: median(samples.iter().map(|sample| sample.peak_mb).collect()),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] }
}
