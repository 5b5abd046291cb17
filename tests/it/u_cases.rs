//! Every upstream case of the catalogue, U01 to U33, against generations and edits, whole and streamed.
//!
//! Each line of the table is one stimulus on a place of its own (a group, its key, its accounts, their upstream), all of
//! them in one gateway, side by side. Whatever the case, five things are asserted:
//!
//! - ONE: the ledger shows at most one attempt for each request with which an image can have been made.
//! - USE: each request has exactly one record, in a state that fits, with the tokens and the attempts of the ledger.
//! - LEAK: no credential, prompt, account or address of an upstream comes out, in no answer, log line or stored byte.
//! - LIVE: afterwards an ordinary request is served, every place of every account is free, and memory is back.
//! - ERR: every error is of the shape that clients read, has a request id, and says whether to try again.
//!
//! The table is written to `target/u_cases.txt`, the gateway's log to `target/u_cases.log`; what does not hold is printed. `IMAGATE_U_CASES=U12` runs what begins so.

mod bench;
mod door;
mod operation;
mod plays;
mod report;
mod row;
mod rows;
mod scene;
mod words;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::kit::{env_setting, heavy_test_lock};
use bench::{Bench, PROMPT, Place, WARM_UP};
use report::{Line, Report};
use row::Row;
use scene::Scene;

/// So many quick cases at once: most of them wait for something. A slow one has a thread of its own.
const LANES: usize = 16;
/// Memory must come back to within this of where it began.
const SLACK: u64 = 32 << 20;
/// And may never have grown by more, endless answers and bombs included.
const PEAK: u64 = 192 << 20;

#[test]
fn every_upstream_case_holds_for_every_operation() {
    let _turn = heavy_test_lock();
    let rows: &'static [Row] = Box::leak(chosen().into_boxed_slice());
    let bench = Bench::set_up(rows);
    warm_up(&bench);
    let resident = |bench: &Bench| {
        bench.gateway().server().reset_peak();
        bench.gateway().server().peak_bytes()
    };
    let baseline = resident(&bench);
    let mut report = Report::new(rows);
    let (slow, quick): (Vec<&Place>, Vec<&Place>) = bench.places.iter().partition(|place| place.row.slow);
    let (queue, lines) = (Mutex::new(VecDeque::from(quick)), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for place in slow {
            let (bench, lines) = (&bench, &lines);
            scope.spawn(move || {
                let line = play(bench, place);
                lock(lines).push(line);
            });
        }
        for _ in 0..LANES {
            scope.spawn(|| lane(&bench, &queue, &lines));
        }
    });
    let peak = bench.gateway().server().peak_bytes();
    report.take(lock(&lines).drain(..));
    report.fact(
        "LIVE: memory never grew by more than 192 MiB",
        peak < baseline + PEAK,
        &format!("{} MiB", (peak.saturating_sub(baseline)) >> 20),
    );
    let back = (0..100).find(|_| {
        crate::kit::pause(Duration::from_millis(100));
        resident(&bench) < baseline + SLACK
    });
    report.fact(
        "LIVE: memory is back to within 32 MiB",
        back.is_some(),
        &format!("{} MiB more", resident(&bench).saturating_sub(baseline) >> 20),
    );
    let leaks = leaks(&bench);
    report.fact("LEAK: nothing in the log or on disk", leaks.is_empty(), &leaks.join(", "));
    report.fact("U27: nobody was redirected", bench.target.accepted() == 0, &bench.target.accepted().to_string());
    let said = bench.gateway().output();
    let trouble: Vec<&str> = said.lines().filter(|line| line.contains(" ERROR ")).collect();
    report.fact(
        "no error in the log",
        trouble.is_empty(),
        &format!("{}: {:?}", trouble.len(), trouble.iter().take(5).collect::<Vec<_>>()),
    );
    report.finish(&said);
}

/// The rows that the caller wants.
fn chosen() -> Vec<Row> {
    let only = env_setting("IMAGATE_U_CASES").map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    let fast = env_setting("IMAGATE_TEST_FAST").is_some();
    let wanted = |row: &Row| row.case.starts_with(&only) && !(fast && row.slow);
    rows::all().into_iter().filter(wanted).collect()
}

/// Everything that is made once in a process is made now.
fn warm_up(bench: &Bench) {
    for place in bench.places.iter().filter(|place| place.row.door == door::Kind::Open).take(8) {
        place.operation.call(&place.secret, serde_json::json!({"prompt": PROMPT, "user": WARM_UP})).send(place.address);
        let attempts = place.upstream.attempts();
        assert_eq!(attempts, 1, "the bench does not work");
    }
}

fn play(bench: &Bench, place: &Place) -> Line {
    let mut scene = Scene::new(bench, place);
    let begun = Instant::now();
    let verdict = catch_unwind(AssertUnwindSafe(|| scene.run())).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        text.unwrap_or("a panic without words").to_owned()
    });
    Line::new(place, scene.seen(), begun.elapsed(), verdict)
}

/// Where a secret or a prompt stands that should stand nowhere.
fn leaks(bench: &Bench) -> Vec<String> {
    let gateway = bench.gateway();
    let mut found = Vec::new();
    // Every token has the last of these in it; of the keys some stand for all.
    let keys = bench.places.iter().take(8).map(|place| place.secret.as_str());
    let canaries: Vec<&str> = keys.chain([PROMPT, "prompt-canary", "c4n4ry"]).collect();
    let mut search = |name: &str, text: &str| {
        found.extend(
            canaries.iter().filter(|canary| text.contains(**canary)).map(|canary| format!("{canary} in {name}")),
        );
    };
    search("the log", &gateway.output());
    let files = files_under(&gateway.home().join("data"));
    assert!(!files.is_empty(), "nothing is stored where it should be");
    for file in files {
        // A spool file may go at any moment.
        let bytes = std::fs::read(&file).unwrap_or_default();
        search(&file.display().to_string(), &String::from_utf8_lossy(&bytes));
    }
    found.truncate(5);
    found
}

fn files_under(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { files_under(&path) } else { vec![path] }).collect()
}

/// Plays what is next until nothing is.
fn lane(bench: &Bench, queue: &Mutex<VecDeque<&Place>>, lines: &Mutex<Vec<Line>>) {
    // Not `lock` itself: its guard would live as long as the loop's body.
    while let Some(place) = next(queue) {
        let line = play(bench, place);
        lock(lines).push(line);
    }
}

fn next<T>(queue: &Mutex<VecDeque<T>>) -> Option<T> {
    lock(queue).pop_front()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
