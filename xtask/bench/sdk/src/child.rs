//! The child process: one library, one measurement.

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::faults::ACTIONS;
use crate::libraries::{ComparedLibrary, Fallible};
use crate::picture::picture;
use crate::process::end_with_parent;

/// The length of the file of the large JSON answer.
pub const FILE_BYTES: usize = 28_000_000;
/// The length of the files of the faulty server.
pub const SMALL_FILE_BYTES: usize = 30_000;
/// More calls than an action has faults, so a program that calls this often gets every image.
const CALLS_MAX: usize = 5;

/// Runs `child LIBRARY WORK URL FOLDER`, and returns the measurement.
pub fn run(arguments: &[String]) -> Fallible<Value> {
    let [library, work, url, folder] = arguments else {
        return Err("usage: child LIBRARY WORK URL FOLDER".into());
    };
    let library = ComparedLibrary::ALL.into_iter().find(|known| known.name() == library).ok_or("an unknown library")?;
    let folder = Path::new(folder);
    end_with_parent();
    match work.as_str() {
        "event" => receive_event(library, url),
        "file" => save_file(library, url, folder),
        "single-calls" => make_all(library, url, folder, 1),
        "repeated-calls" => make_all(library, url, folder, CALLS_MAX),
        _ => Err("an unknown work".into()),
    }
}

fn receive_event(library: ComparedLibrary, url: &str) -> Fallible<Value> {
    let caller = library.caller(url)?;
    let started = Instant::now();
    let characters = caller.receive_event()?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(json!({ "seconds": seconds, "peak_kib": peak_kib()?, "characters": characters }))
}

fn save_file(library: ComparedLibrary, url: &str, folder: &Path) -> Fallible<Value> {
    let images = folder.join("images");
    let caller = library.caller(url)?;
    let started = Instant::now();
    caller.save_image("an image", None, &images)?;
    let seconds = started.elapsed().as_secs_f64();
    // Before the check, which needs memory of its own.
    let peak_kib = peak_kib()?;
    if !holds_picture(&images, FILE_BYTES) {
        return Err("the saved file differs from the image that was sent".into());
    }
    Ok(json!({ "seconds": seconds, "peak_kib": peak_kib }))
}

/// Makes an image for every action. With one call for each, what the library does on its own is measured; with more, a
/// program that calls again after a failure, and names the action with a key.
fn make_all(library: ComparedLibrary, url: &str, folder: &Path, calls_max: usize) -> Fallible<Value> {
    let caller = library.caller(url)?;
    let mut images = 0;
    for action in 0..ACTIONS {
        let key = format!("action-{action}");
        let key = (calls_max > 1).then_some(key.as_str());
        let is_made = (0..calls_max).any(|call| {
            let target = folder.join(format!("{action}-{call}"));
            let result = caller.save_image(&format!("action {action}"), key, &target);
            result.is_ok() && holds_picture(&target, SMALL_FILE_BYTES)
        });
        images += usize::from(is_made);
    }
    Ok(json!({ "images": images }))
}

/// Returns whether the folder has one file, and this picture is in it.
fn holds_picture(folder: &Path, length: usize) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return false };
    let files: Vec<_> = entries.flatten().map(|entry| fs::read(entry.path()).unwrap_or_default()).collect();
    files == [picture(length)]
}

/// The peak of the resident memory of this process.
fn peak_kib() -> Fallible<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
