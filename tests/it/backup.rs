//! Backups as an operator makes and restores them: beside a server under load, into a new folder, and from a file that
//! is not as it was.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::kit::{Account, Call, CommandOutput, FakeUpstream, Gateway, Server, eventually, request};

/// The exit code of a failure.
const FAILED: Option<i32> = Some(1);
/// The number of callers in the test under load.
const CALLERS: usize = 8;
/// The number of backups in that test.
const BACKUPS: usize = 4;

/// Makes a backup with this name in the gateway's home.
#[track_caller]
fn back_up(gateway: &Gateway, name: &str, arguments: &[&str]) -> (PathBuf, Value) {
    let file = gateway.home().join(name);
    let path = file.display().to_string();
    let words = [&["backup", "--json", "--output", &path], arguments].concat();
    let report = gateway.run_command(&words).json();
    (file, report)
}

fn restore(gateway: &Gateway, file: &Path, folder: &Path) -> CommandOutput {
    let (file, folder) = (file.display().to_string(), folder.display().to_string());
    gateway.run_command(&["restore", &file, "--data-dir", &folder])
}

/// The closed records in a data folder, by request id.
#[track_caller]
fn records_in(gateway: &Gateway, folder: &Path) -> HashMap<String, Value> {
    let output = gateway.run_command(&["usage", "--json", "--data-dir", &folder.display().to_string()]);
    let records = output.ok_stdout().lines().map(|line| serde_json::from_str::<Value>(line).expect("a record"));
    records.map(|record| (record["request_id"].as_str().expect("an id").to_owned(), record)).collect()
}

fn generate_until(gateway: &Gateway, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        assert_eq!(gateway.generate(json!({})).status, 200);
    }
}

/// Starts a server on another data folder, with the settings of this gateway.
fn serve_from(gateway: &Gateway, folder: &Path) -> Server {
    let program = gateway.program().args(["serve", "--config"]).args([gateway.config()]);
    program.args(["--data-dir"]).args([folder]).serve()
}

fn generate_at(server: &Server, secret: &str) -> u16 {
    Call::generation().key(secret).json(&request(json!({}))).send(server.address()).status
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_backup_under_load_holds_whole_records_only() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]).with_quiet_log();
    let is_over = AtomicBool::new(false);
    let backups: Vec<(PathBuf, Value, usize)> = thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| generate_until(&gateway, &is_over));
        }
        let made = (0..BACKUPS).map(|number| {
            let more = number * 20;
            let before = eventually("the callers go on", || {
                let final_records = gateway.records().iter().filter(|record| record["state"] == "succeeded").count();
                (final_records > more).then_some(final_records)
            });
            let (file, report) = back_up(&gateway, &format!("{number}.tar"), &[]);
            (file, report, before)
        });
        let made = made.collect();
        is_over.store(true, Ordering::Relaxed);
        made
    });
    gateway.final_records(1);
    let live = records_in(&gateway, &gateway.home().join("data"));
    let mut had_open = 0;
    for (number, (file, report, before)) in backups.iter().enumerate() {
        let folder = gateway.home().join(format!("restored-{number}"));
        restore(&gateway, file, &folder).ok_stdout();
        let restored = records_in(&gateway, &folder);
        let all: usize = report["counts"]["records"].to_string().parse().expect("a number");
        let open = all.checked_sub(restored.len()).expect("the manifest counts open records too");
        assert!(restored.len() >= *before && all <= live.len() && open <= CALLERS, "{before} {all} {open}");
        had_open += open;
        for (id, record) in &restored {
            assert_eq!(Some(record), live.get(id), "the record is torn");
        }
    }
    assert!(had_open > 0, "no backup was made while a request ran");
    assert_eq!(live.values().filter(|record| record["state"] == "succeeded").count(), live.len());
}

#[test]
fn a_restored_installation_serves_the_former_keys_and_closes_open_records() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with_upstream(&upstream);
    gateway.generate(json!({})).ok_json();
    gateway.final_records(1);
    let (file, report) = thread::scope(|scope| {
        let running = scope.spawn(|| gateway.scripted("gate=backup").status);
        upstream.wait_until("a job runs", |attempts| attempts.len() == 2);
        let made = back_up(&gateway, "backup.tar", &[]);
        upstream.open_gate("backup");
        assert_eq!(running.join().expect("an answer"), 200);
        made
    });
    assert_eq!((&report["counts"]["records"], &report["master_key"]), (&json!(2), &json!("included")));
    // A key of a later time is not part of the backup, and a key that was deleted later is valid again.
    let later = gateway.make_key("later")["secret"].as_str().expect("a secret").to_owned();
    gateway.run_command(&["key", "delete", gateway.key_id()]).ok_stdout();
    gateway.kill();

    let folder = gateway.home().join("restored");
    let output = restore(&gateway, &file, &folder);
    assert!(output.ok_stdout().contains("records 2, keys 1, accounts 1"), "{output:#?}");
    assert!(output.stderr.contains("with 1 valid API keys"), "{output:#?}");
    let server = serve_from(&gateway, &folder);
    assert_eq!((generate_at(&server, gateway.secret()), generate_at(&server, &later)), (200, 401));
    drop(server);
    let records = records_in(&gateway, &folder);
    let states: Vec<&str> = records.values().map(|record| record["state"].as_str().expect("a state")).collect();
    let count = |state: &str| states.iter().filter(|found| **found == state).count();
    assert_eq!((count("succeeded"), count("interrupted"), states.len()), (2, 1, 3), "{states:?}");
}

#[test]
fn a_backup_is_private_complete_and_replaced_only_with_force() {
    let gateway = Gateway::simulated();
    let (file, _) = back_up(&gateway, "backup.tar", &[]);
    let before = std::fs::read(&file).expect("a file");
    let path = file.display().to_string();
    let again = gateway.run_command(&["backup", "-o", &path]);
    assert_eq!(again.code, FAILED, "{again:#?}");
    assert!(again.stderr.contains("exists already") && again.stderr.contains("--force"), "{again:#?}");
    assert_eq!(std::fs::read(&file).expect("a file"), before);
    let forced = gateway.run_command(&["backup", "-o", &path, "--force"]);
    forced.ok_stdout();
    assert!(forced.stderr.contains("the file holds the master key"), "{forced:#?}");
    assert!(std::fs::read(&file).expect("a file") != before);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).expect("a file").permissions());
    assert_eq!(mode & 0o777, 0o600);
    let left: Vec<String> = names(gateway.home()).into_iter().filter(|name| name.starts_with('.')).collect();
    assert!(left.is_empty(), "{left:?}");
    let nowhere = gateway.run_command(&["backup", "-o", "no-such-folder/backup.tar"]);
    assert_eq!(nowhere.code, FAILED, "{nowhere:#?}");
}

#[test]
fn a_damaged_backup_restores_nothing_and_says_why() {
    let gateway = Gateway::simulated();
    gateway.generate(json!({})).ok_json();
    let (file, _) = back_up(&gateway, "backup.tar", &[]);
    let bytes = std::fs::read(&file).expect("a file");
    let middle = bytes.len() / 2;
    let mut altered = bytes.clone();
    altered[middle] ^= 1;
    let text = b"a letter".to_vec();
    for (name, contents, word) in [
        ("altered.tar", altered, "SHA-256 digest differs"),
        ("truncated.tar", bytes[..middle].to_vec(), "it is truncated"),
        ("empty.tar", Vec::new(), "is not a backup of imagate"),
        ("letter.txt", text, "is not a backup of imagate"),
    ] {
        let file = gateway.home().join(name);
        std::fs::write(&file, contents).expect("a file");
        let folder = gateway.home().join("restored");
        let output = restore(&gateway, &file, &folder);
        assert_eq!(output.code, FAILED, "{output:#?}");
        assert!(output.stderr.contains(word) && output.stderr.contains("advice: "), "{output:#?}");
        assert!(!folder.exists(), "{name}");
    }
}

#[test]
fn a_served_folder_and_a_full_folder_are_refused() {
    let mut gateway = Gateway::simulated();
    gateway.generate(json!({})).ok_json();
    gateway.final_records(1);
    let (file, _) = back_up(&gateway, "backup.tar", &[]);
    let data = gateway.home().join("data");
    let served = restore(&gateway, &file, &data);
    assert_eq!(served.code, FAILED, "{served:#?}");
    assert!(served.stderr.contains("already running") && served.stderr.contains("stop the gateway"), "{served:#?}");
    gateway.generate(json!({})).ok_json();
    gateway.final_records(2);
    gateway.kill();
    let full = restore(&gateway, &file, &data);
    assert_eq!(full.code, FAILED, "{full:#?}");
    assert!(full.stderr.contains("it is not empty"), "{full:#?}");
    assert_eq!(records_in(&gateway, &data).len(), 2, "the folder is as it was");
}

#[test]
fn a_backup_without_the_master_key_needs_the_file_that_was_kept_apart() {
    let gateway = Gateway::simulated();
    let (file, report) = back_up(&gateway, "backup.tar", &["--without-master-key"]);
    assert_eq!(report["master_key"], "left_out");
    let folder = gateway.home().join("restored");
    let output = restore(&gateway, &file, &folder);
    output.ok_stdout();
    assert!(output.stderr.contains("the backup has no master key"), "{output:#?}");
    let serve = || gateway.program().args(["serve", "--config"]).args([gateway.config()]);
    let refused = serve().args(["--data-dir"]).args([&folder]).run();
    assert_eq!(refused.code, FAILED, "{refused:#?}");
    assert!(refused.stderr.contains("master.key is missing"), "{refused:#?}");
    let key = gateway.home().join("data/master.key");
    std::fs::copy(key, folder.join("master.key")).expect("a copy");
    let server = serve_from(&gateway, &folder);
    assert_eq!(generate_at(&server, gateway.secret()), 200);
}

#[test]
fn a_folder_without_an_installation_has_no_backup() {
    let gateway = Gateway::simulated();
    let output = gateway.run_command(&["backup", "-o", "backup.tar", "--data-dir", "nowhere"]);
    assert_eq!(output.code, FAILED, "{output:#?}");
    assert!(output.stderr.contains("there is no installation in"), "{output:#?}");
    assert!(!gateway.home().join("nowhere").exists() && !gateway.home().join("backup.tar").exists());
}

#[test]
fn a_sealed_backup_is_made_without_the_key_that_opens_it() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    assert_eq!(gateway.generate(json!({})).status, 200);
    let path = |name: &str| gateway.home().join(name).display().to_string();
    let made = gateway.run_command(&["backup", "key", "--output", &path("backup.key")]);
    let recipient = made.ok_stdout().trim().to_owned();
    let again = gateway.run_command(&["backup", "key", "--output", &path("backup.key")]);
    assert_eq!(again.code, FAILED, "a key is never replaced");
    let (file, report) = back_up(&gateway, "sealed.age", &["--recipient", &recipient]);
    assert_eq!(report["sealed"], true, "{report}");
    let bytes = std::fs::read(&file).expect("a file");
    assert!(bytes.starts_with(b"age-encryption.org/v1\n") && !bytes.windows(6).any(|part| part == b"SQLite"));

    let folder = gateway.home().join("restored");
    let refused = restore(&gateway, &file, &folder);
    assert!(refused.code == FAILED && refused.stderr.contains("--identity"), "{refused:?}");
    std::fs::write(path("cut.age"), &bytes[..bytes.len() - 1]).expect("a file");
    let words = |file: &str| {
        let (file, folder) = (path(file), folder.display().to_string());
        gateway.run_command(&["restore", &file, "--identity", &path("backup.key"), "--data-dir", &folder])
    };
    assert_eq!(words("cut.age").code, FAILED);
    assert!(!folder.join("imagate.db").exists());
    words("sealed.age").ok_stdout();
    assert_eq!(records_in(&gateway, &folder).len(), 1);
    for invalid in ["age1", "sk-x", ""] {
        let words = ["backup", "--output", &path("x.age"), "--recipient", invalid];
        let refused = gateway.run_command(&words);
        assert!(refused.stderr.contains("--recipient"), "{refused:?}");
    }
}
