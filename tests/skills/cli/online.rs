//! The checks that request the URLs of a manifest, and skills that are installed from URLs.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::server::{Answer, Server};
use super::{CommandOutput, EXIT_FAILURE, EXIT_SUCCESS, EXIT_USAGE, run_command};
use crate::packages::{SkillRepository, files};

const PACKAGE: &str = "GET /e/s/raw/main/packages/demo-1.0.0.zip";
const OTHER: &str = "GET /e/s/raw/main/packages/other-0.3.0.zip";
const REFS: &str = "GET /e/s.git/info/refs?service=git-upload-pack";
const SOURCE: &str = "HEAD /docs";

/// A repository and a host that serves it. The host gives `answer` to `overridden_request`.
fn hosted(overridden_request: &'static str, answer: Answer) -> (SkillRepository, Server) {
    let repo = SkillRepository::new();
    let folder = repo.path("").canonicalize().expect("a folder");
    let respond = move |request: &str| {
        if request == overridden_request { answer.clone() } else { correct_answer(&folder, request) }
    };
    let server = Server::start(respond);
    let sources = format!("{} {}", server.url("/docs#one"), server.url("/docs#two"));
    let front_matter = format!("title: Images\nproduct: images\nlanguage: python\nsource_urls: {sources}");
    repo.write_file("apis/images.md", &format!("---\n{front_matter}\n---\n"));
    repo.build_for(&server.url(""));
    (repo, server)
}

/// The answer of a host that serves the repository in `folder` correctly.
fn correct_answer(folder: &Path, request: &str) -> Answer {
    if request == REFS {
        let id = "0".repeat(40);
        return Answer::ok(format!("001e# service=git-upload-pack\n0000003d{id} refs/heads/main\n0000"));
    }
    let path = request.strip_prefix("GET /e/s/raw/main/").map(|path| folder.join(path));
    match path.map(fs::read) {
        Some(Ok(bytes)) => Answer::ok(bytes),
        Some(Err(_)) => Answer::status("404 Not Found"),
        None => Answer::status("200 OK"),
    }
}

fn run(repo: &SkillRepository, server: &Server, arguments: &[&str]) -> CommandOutput {
    run_command(server.trusted_by(&mut repo.command(arguments)), None)
}

/// The rules M100 to M109 that a check with `--online` finds broken.
fn broken(repo: &SkillRepository, server: &Server, arguments: &[&str]) -> Vec<String> {
    let validate = ["validate", "skills.json", "--format", "json", "--online"];
    let report = run(repo, server, &[&validate, arguments].concat());
    let report: Value = serde_json::from_str(&report.stdout).unwrap_or_else(|error| panic!("{error}: {report:?}"));
    let rules = report["findings"].as_array().expect("a list").iter().filter_map(|finding| finding["rule"].as_str());
    rules.filter(|rule| rule.starts_with("M10")).map(str::to_owned).collect()
}

const PRIVATE: &[&str] = &["--allow-private-hosts"];

#[test]
fn each_url_is_requested_once_and_only_with_online() {
    let (repo, server) = hosted("", Answer::status("200 OK"));
    assert_eq!(run(&repo, &server, &["validate", "skills.json", "--allow-private-hosts"]).code, EXIT_SUCCESS);
    assert_eq!(server.requests(), [""; 0]);
    assert_eq!(broken(&repo, &server, PRIVATE), [""; 0]);
    assert_eq!(server.requests(), [REFS, PACKAGE, OTHER, SOURCE]);
}

#[test]
fn an_invalid_url_is_not_requested() {
    for (key, value, requests) in [
        ("raw_base_url", "/e/s/raw/main?a=b", &[REFS, SOURCE][..]),
        ("raw_base_url", "/e/s/raw/main#a", &[REFS, SOURCE]),
        ("git_url", "/e/s.git?a=b", &[PACKAGE, OTHER, SOURCE]),
        ("git_url", "/e/s.git/", &[REFS, PACKAGE, OTHER, SOURCE]),
    ] {
        let (repo, server) = hosted("", Answer::status("200 OK"));
        let mut manifest = repo.manifest();
        manifest["repository"][key] = server.url(value).into();
        repo.write_file("skills.json", &manifest.to_string());
        assert_eq!(broken(&repo, &server, PRIVATE), [""; 0], "{value}");
        assert_eq!(server.requests(), requests, "{value}");
    }
    let (repo, server) = hosted("", Answer::status("200 OK"));
    let mut manifest = repo.manifest();
    manifest["skills"][0]["package"] = "packages/../demo.zip".into();
    repo.write_file("skills.json", &manifest.to_string());
    assert_eq!(broken(&repo, &server, PRIVATE), [""; 0]);
    assert_eq!(server.requests(), [REFS, OTHER, SOURCE]);
}

#[test]
fn a_checksum_in_capitals_is_accepted() {
    let (repo, server) = hosted("", Answer::status("200 OK"));
    let mut manifest = repo.manifest();
    manifest["skills"][0]["sha256"] = manifest["skills"][0]["sha256"].as_str().expect("a sum").to_uppercase().into();
    repo.write_file("skills.json", &manifest.to_string());
    assert_eq!(broken(&repo, &server, PRIVATE), [""; 0]);
}

#[test]
fn one_host_gets_at_most_two_requests_at_a_time() {
    let counts = Arc::new((Mutex::new((0, 0)), Condvar::new()));
    let server_counts = Arc::clone(&counts);
    let server = Server::start(move |_| {
        let (counts, changed) = &*server_counts;
        let mut running = counts.lock().expect("no thread panicked");
        *running = (running.0 + 1, running.1.max(running.0 + 1));
        changed.notify_all();
        let wait = changed.wait_timeout_while(running, Duration::from_millis(100), |(_, maximum)| *maximum < 3);
        wait.expect("no thread panicked").0.0 -= 1;
        Answer::status("200 OK")
    });
    let (repo, _) = hosted("", Answer::status("200 OK"));
    let mut manifest = repo.manifest();
    manifest["apis"][0]["source_urls"] = (0..8).map(|number| server.url(&format!("/docs/{number}"))).collect();
    repo.write_file("skills.json", &manifest.to_string());
    broken(&repo, &server, PRIVATE);
    assert_eq!(server.requests().len(), 8);
    assert!(counts.0.lock().expect("no thread panicked").1 <= 2);
}

#[test]
fn public_hosts_are_requested_without_a_proxy() {
    let proxy = TcpListener::bind("127.0.0.1:0").expect("a port");
    proxy.set_nonblocking(true).expect("a non-blocking listener");
    let repo = SkillRepository::new();
    repo.build_for("https://nobody.invalid");
    let mut command = repo.command(&["validate", "skills.json", "--online"]);
    for name in ["NO_PROXY", "no_proxy"] {
        command.env_remove(name);
    }
    let address = format!("http://{}", proxy.local_addr().expect("an address"));
    let output = run_command(command.env("HTTPS_PROXY", &address).env("https_proxy", &address), None);
    assert!(output.code == EXIT_FAILURE && output.stdout.contains("it cannot be reached"), "{output:?}");
    assert!(proxy.accept().is_err(), "the proxy was used");
}

#[test]
fn a_redirect_loop_is_given_up() {
    let (repo, server) = hosted(PACKAGE, Answer::redirect("/e/s/raw/main/packages/demo-1.0.0.zip"));
    assert_eq!(broken(&repo, &server, PRIVATE), ["M104"]);
    assert_eq!(server.requests().iter().filter(|request| *request == PACKAGE).count(), 6);
}

#[test]
fn private_hosts_are_not_requested_by_default() {
    let (repo, server) = hosted("", Answer::status("200 OK"));
    assert_eq!(broken(&repo, &server, &[]), [""; 0]);
    assert_eq!(server.requests(), [""; 0]);
}

#[test]
fn each_wrong_answer_breaks_its_rule() {
    let not_found = || Answer::status("404 Not Found");
    let refs_without_branch =
        Answer::ok(format!("001e# service=git-upload-pack\n0000003d{} refs/heads/next\n0000", "0".repeat(40)));
    let length = fs::metadata(hosted("", not_found()).0.path("packages/demo-1.0.0.zip")).expect("a package").len();
    let same_length = vec![b'x'; usize::try_from(length).expect("a length")];
    for (overridden_request, answer, rules) in [
        (PACKAGE, not_found(), &["M100"][..]),
        (PACKAGE, Answer::endless(), &["M100"]),
        (PACKAGE, Answer::ok(vec![b' '; (10 << 20) + 1]), &["M100"]),
        (PACKAGE, Answer::ok("other"), &["M101", "M101"]),
        (PACKAGE, Answer::ok(same_length), &["M101"]),
        (REFS, not_found(), &["M103"]),
        (REFS, Answer::ok("<!DOCTYPE html>"), &["M103"]),
        (REFS, refs_without_branch, &["M103"]),
        (REFS, Answer::endless(), &[]),
        (REFS, Answer::ok(vec![b' '; (8 << 20) + 1]), &[]),
        // A host that refuses HEAD gets a GET, which it answers.
        (SOURCE, Answer::status("405 Method Not Allowed"), &[]),
        (PACKAGE, Answer::redirect("https://user:secret@localhost/"), &["M104"]),
        (PACKAGE, Answer::redirect("/e/s/raw/main/packages/demo-1.0.0.zip"), &["M104"]),
    ] {
        let (repo, server) = hosted(overridden_request, answer);
        assert_eq!(broken(&repo, &server, PRIVATE), rules, "{overridden_request}");
    }
}

#[test]
fn a_missing_source_is_reported_after_at_most_two_requests() {
    let repo = SkillRepository::new();
    let server = Server::start(|_| Answer::status("410 Gone"));
    repo.build_for(&server.url(""));
    let mut manifest = repo.manifest();
    manifest["skills"] = json!([]);
    manifest["apis"] = json!([{
        "id": "images", "title": "Images", "product": "images", "language": "python", "path": "apis/images.md",
        "source_urls": [server.url("/docs")],
    }]);
    repo.write_file("skills.json", &manifest.to_string());
    assert_eq!(broken(&repo, &server, PRIVATE), ["M102", "M103"]);
    assert_eq!(server.requests(), ["GET /docs", REFS, SOURCE]);
}

#[test]
fn requests_need_tls_and_a_trusted_certificate() {
    let http_listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    http_listener.set_nonblocking(true).expect("a non-blocking listener");
    let target = format!("http://localhost:{}/x", http_listener.local_addr().expect("an address").port());
    let (repo, server) = hosted(PACKAGE, Answer::redirect(&target));
    assert_eq!(broken(&repo, &server, PRIVATE), ["M104"]);
    assert!(http_listener.accept().is_err(), "a request was sent without TLS");
    let untrusted = Server::start(|_| Answer::status("200 OK"));
    // Two packages, the branch, and one source that two entries name.
    assert_eq!(broken(&repo, &untrusted, PRIVATE), ["M104"; 5]);
    assert_eq!(server.requests().len(), 4);
}

const INSTALL: &[&str] = &["install", "demo", "--into", "agent", "--from"];

#[test]
fn a_skill_is_installed_from_a_url() {
    let (repo, server) = hosted("", Answer::status("200 OK"));
    let from = server.url("/e/s/raw/main/skills.json");
    let installed = run(&repo, &server, &[INSTALL, &[&from], PRIVATE].concat());
    assert!(installed.code == EXIT_SUCCESS && installed.stderr.contains("installed demo 1.0.0"), "{installed:?}");
    assert_eq!(files(&repo.path("agent/demo")), files(&repo.path("skills/demo")));
    assert_eq!(server.requests(), ["GET /e/s/raw/main/packages/demo-1.0.0.zip", "GET /e/s/raw/main/skills.json"]);
    let again = run(&repo, &server, &[INSTALL, &[&from], PRIVATE].concat());
    assert!(again.code == EXIT_SUCCESS && again.stderr.contains("is already installed"), "{again:?}");
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn a_wrong_or_unavailable_package_is_not_installed() {
    for (answer, expected) in [
        (Answer::ok("other"), "M073"),
        (Answer::status("404 Not Found"), "404"),
        (Answer::endless(), "more than 10485760 bytes"),
        (Answer::redirect("http://localhost/x"), "https"),
    ] {
        let (repo, server) = hosted(PACKAGE, answer);
        let from = server.url("/e/s/raw/main/skills.json");
        let refused = run(&repo, &server, &[INSTALL, &[&from], PRIVATE].concat());
        assert!(refused.code == EXIT_FAILURE && refused.stderr.contains(expected), "{refused:?}");
        assert_eq!(files(&repo.path("agent")).len(), 0);
    }
    let (repo, server) = hosted("", Answer::status("200 OK"));
    let refused = run(&repo, &server, &[INSTALL, &[&server.url("/e/s/raw/main/skills.json")]].concat());
    assert!(refused.code == EXIT_FAILURE && refused.stderr.contains("--allow-private-hosts"), "{refused:?}");
    assert_eq!(server.requests(), ["GET /e/s/raw/main/skills.json"]);
    repo.build_for(&server.url("").replace("localhost", "127.0.0.1"));
    let refused = run(&repo, &server, &[INSTALL, &[&server.url("/e/s/raw/main/skills.json")]].concat());
    assert!(refused.code == EXIT_FAILURE && refused.stderr.contains("--allow-private-hosts"), "{refused:?}");
    let http_url = run(&repo, &server, &[INSTALL, &["http://localhost/skills.json"]].concat());
    assert!(http_url.code == EXIT_USAGE && http_url.stderr.contains("https"), "{http_url:?}");
}

/// Errors end up in logs.
#[test]
fn an_error_of_an_install_shows_no_credentials() {
    let repo = SkillRepository::new();
    repo.build_for("https://example.com");
    let manifest = Arc::new(Mutex::new(String::new()));
    let served = Arc::clone(&manifest);
    let server = Server::start(move |_| Answer::ok(served.lock().expect("no thread panicked").clone()));
    for base in ["https://user:secret@localhost/raw", "http://secret@localhost/raw", "https://user:se/secret@localhost"]
    {
        let mut named = repo.manifest();
        named["repository"]["raw_base_url"] = base.into();
        *manifest.lock().expect("no thread panicked") = named.to_string();
        let refused = run(&repo, &server, &[INSTALL, &[&server.url("/skills.json")], PRIVATE].concat());
        assert!(refused.code == EXIT_FAILURE && refused.stderr.contains("`demo`: "), "{refused:?}");
        assert!(!refused.stderr.contains("secret"), "{refused:?}");
    }
}
