//! Every upstream case of the failure catalogue, U01 to U33, with generations and edits, plain and streamed.
//!
//! Each line of the table is one case with one operation. Each line has its own fixture (a group, its key, its accounts
//! and their upstream) in one shared gateway, and the lines run in parallel. The test asserts five properties:
//!
//! - ONE: the ledger shows at most one attempt for each request with which an image can have been made.
//! - USE: each request has exactly one record, in a state that fits, with the tokens and the attempts of the ledger.
//! - LEAK: no credential, prompt, account or address of an upstream is in an answer, in the log or in a file.
//! - LIVE: afterwards an ordinary request is served, every slot of every account is free, and the memory is released.
//! - ERR: every error has the documented shape, a request id, and advice about a retry.
//!
//! The test writes the table to `target/u_cases.txt` and the gateway's log to `target/u_cases.log`, and prints the
//! lines that fail. `IMAGATE_U_CASES=U12` runs only the cases whose number starts with U12.

mod first_endpoint;
mod fixtures;
mod multi_step_cases;
mod operation;
mod report;
mod row;
mod rows;
mod scene;
mod words;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::kit::env_setting;
use fixtures::{CaseFixture, PROMPT, SharedGateway, WARM_UP};
use report::{Line, Report};
use row::Row;
use scene::CaseRun;

/// The number of threads for quick cases, which mostly wait (our choice). Each slow case has its own thread.
const QUICK_CASE_THREADS: usize = 16;
/// The most bytes by which the resident memory may be larger after the cases than before.
const MAX_REMAINING_GROWTH: u64 = 32 << 20;
/// The most bytes by which the resident memory may grow meanwhile, also with endless answers and decompression bombs.
const MAX_PEAK_GROWTH: u64 = 192 << 20;

#[test]
fn every_upstream_case_holds_for_every_operation() {
    let rows: &'static [Row] = Box::leak(selected_rows().into_boxed_slice());
    let shared = SharedGateway::set_up(rows);
    warm_up(&shared);
    let resident = |shared: &SharedGateway| {
        shared.gateway().server().reset_peak();
        shared.gateway().server().peak_bytes()
    };
    let baseline = resident(&shared);
    let mut report = Report::new(rows);
    let (slow, quick): (Vec<&CaseFixture>, Vec<&CaseFixture>) =
        shared.fixtures.iter().partition(|fixture| fixture.row.slow);
    let (queue, lines) = (Mutex::new(VecDeque::from(quick)), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for fixture in slow {
            let (shared, lines) = (&shared, &lines);
            scope.spawn(move || {
                let line = run_case(shared, fixture);
                lock(lines).push(line);
            });
        }
        for _ in 0..QUICK_CASE_THREADS {
            scope.spawn(|| run_queued_cases(&shared, &queue, &lines));
        }
    });
    let peak = shared.gateway().server().peak_bytes();
    report.add_lines(lock(&lines).drain(..));
    report.add_run_check(
        "LIVE: memory never grew by more than 192 MiB",
        peak < baseline + MAX_PEAK_GROWTH,
        &format!("{} MiB", (peak.saturating_sub(baseline)) >> 20),
    );
    let released = (0..100).find(|_| {
        crate::kit::pause(Duration::from_millis(100));
        resident(&shared) < baseline + MAX_REMAINING_GROWTH
    });
    report.add_run_check(
        "LIVE: memory is back to within 32 MiB",
        released.is_some(),
        &format!("{} MiB more", resident(&shared).saturating_sub(baseline) >> 20),
    );
    let leaks = leaks(&shared);
    report.add_run_check("LEAK: nothing in the log or on disk", leaks.is_empty(), &leaks.join(", "));
    report.add_run_check(
        "U27: no redirect was followed",
        shared.target.accepted() == 0,
        &shared.target.accepted().to_string(),
    );
    let log = shared.gateway().output();
    let errors: Vec<&str> = log.lines().filter(|line| line.contains(" ERROR ")).collect();
    report.add_run_check(
        "no error in the log",
        errors.is_empty(),
        &format!("{}: {:?}", errors.len(), errors.iter().take(5).collect::<Vec<_>>()),
    );
    report.finish(&log);
}

/// The rows that the environment variables select.
fn selected_rows() -> Vec<Row> {
    let only = env_setting("IMAGATE_U_CASES").map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    let fast = env_setting("IMAGATE_TEST_FAST").is_some();
    let is_selected = |row: &Row| row.case.starts_with(&only) && !(fast && row.slow);
    rows::all().into_iter().filter(is_selected).collect()
}

/// Sends requests before the measurement, so that one-time allocations of the gateway are part of the baseline.
fn warm_up(shared: &SharedGateway) {
    for fixture in
        shared.fixtures.iter().filter(|fixture| fixture.row.endpoint == first_endpoint::EndpointKind::Upstream).take(8)
    {
        fixture
            .operation
            .call(&fixture.secret, serde_json::json!({"prompt": PROMPT, "user": WARM_UP}))
            .send(fixture.address);
        let attempts = fixture.upstream.attempt_count();
        assert_eq!(attempts, 1, "the fixture must call its upstream once");
    }
}

fn run_case(shared: &SharedGateway, fixture: &CaseFixture) -> Line {
    let mut scene = CaseRun::new(shared, fixture);
    let start = Instant::now();
    let verdict = catch_unwind(AssertUnwindSafe(|| scene.run())).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        text.unwrap_or("a panic without a message").to_owned()
    });
    Line::new(fixture, scene.observations(), start.elapsed(), verdict)
}

/// The places in the log and the data folder that contain a secret or a prompt.
fn leaks(shared: &SharedGateway) -> Vec<String> {
    let gateway = shared.gateway();
    let mut found = Vec::new();
    // Every upstream token contains `c4n4ry`. Only the first keys are searched for, as a sample.
    let keys = shared.fixtures.iter().take(8).map(|fixture| fixture.secret.as_str());
    let canaries: Vec<&str> = keys.chain([PROMPT, "prompt-canary", "c4n4ry"]).collect();
    let mut search = |name: &str, text: &str| {
        found.extend(
            canaries.iter().filter(|canary| text.contains(**canary)).map(|canary| format!("{canary} in {name}")),
        );
    };
    search("the log", &gateway.output());
    let files = files_under(&gateway.home().join("data"));
    assert!(!files.is_empty(), "the data folder has no files");
    for file in files {
        // A spool file may be deleted at any moment.
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

/// Runs cases of the queue until the queue is empty.
fn run_queued_cases(shared: &SharedGateway, queue: &Mutex<VecDeque<&CaseFixture>>, lines: &Mutex<Vec<Line>>) {
    // `next` releases the lock before the loop body; a guard in the loop condition would live as long as the body.
    while let Some(fixture) = next(queue) {
        let line = run_case(shared, fixture);
        lock(lines).push(line);
    }
}

fn next<T>(queue: &Mutex<VecDeque<T>>) -> Option<T> {
    lock(queue).pop_front()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
