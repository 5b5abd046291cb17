//! What the addresses of a manifest answer, and skills that are installed from there.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::server::{Answer, Server};
use super::{DONE, Done, FOUND, USAGE, done};
use crate::packages::{Shop, files};

const PACKAGE: &str = "GET /e/s/raw/main/packages/demo-1.0.0.zip";
const OTHER: &str = "GET /e/s/raw/main/packages/other-0.3.0.zip";
const REFS: &str = "GET /e/s.git/info/refs?service=git-upload-pack";
const SOURCE: &str = "HEAD /docs";

/// A host that serves a repository, but for one question, and the repository itself.
fn hosted(question: &'static str, answer: Answer) -> (Shop, Server) {
    let shop = Shop::new();
    let folder = shop.at("").canonicalize().expect("a folder");
    let server = Server::start(move |asked| if asked == question { answer.clone() } else { honest(&folder, asked) });
    let sources = format!("{} {}", server.url("/docs#one"), server.url("/docs#two"));
    let front = format!("title: Images\nproduct: images\nlanguage: python\nsource_urls: {sources}");
    shop.put("apis/images.md", &format!("---\n{front}\n---\n"));
    shop.build_for(&server.url(""));
    (shop, server)
}

fn honest(folder: &Path, asked: &str) -> Answer {
    if asked == REFS {
        let id = "0".repeat(40);
        return Answer::ok(format!("001e# service=git-upload-pack\n0000003d{id} refs/heads/main\n0000"));
    }
    let path = asked.strip_prefix("GET /e/s/raw/main/").map(|path| folder.join(path));
    match path.map(fs::read) {
        Some(Ok(bytes)) => Answer::ok(bytes),
        Some(Err(_)) => Answer::status("404 Not Found"),
        None => Answer::status("200 OK"),
    }
}

fn run(shop: &Shop, server: &Server, arguments: &[&str]) -> Done {
    done(server.known_to(&mut shop.command(arguments)), None)
}

/// The rules of class N that are broken.
fn broken(shop: &Shop, server: &Server, arguments: &[&str]) -> Vec<String> {
    let validate = ["validate", "skills.json", "--format", "json", "--online"];
    let report = run(shop, server, &[&validate, arguments].concat());
    let report: Value = serde_json::from_str(&report.stdout).unwrap_or_else(|error| panic!("{error}: {report:?}"));
    let rules = report["findings"].as_array().expect("a list").iter().filter_map(|finding| finding["rule"].as_str());
    rules.filter(|rule| rule.starts_with("M10")).map(str::to_owned).collect()
}

const PRIVATE: &[&str] = &["--allow-private-hosts"];

#[test]
fn each_address_is_asked_once_and_only_where_that_is_wanted() {
    let (shop, server) = hosted("", Answer::status("200 OK"));
    assert_eq!(run(&shop, &server, &["validate", "skills.json", "--allow-private-hosts"]).code, DONE);
    assert_eq!(server.asked(), [""; 0]);
    assert_eq!(broken(&shop, &server, PRIVATE), [""; 0]);
    assert_eq!(server.asked(), [REFS, PACKAGE, OTHER, SOURCE]);
}

#[test]
fn an_address_that_is_wrong_as_it_stands_is_not_asked() {
    for (key, value, asked) in [
        ("raw_base_url", "/e/s/raw/main?a=b", &[REFS, SOURCE][..]),
        ("raw_base_url", "/e/s/raw/main#a", &[REFS, SOURCE]),
        ("git_url", "/e/s.git?a=b", &[PACKAGE, OTHER, SOURCE]),
        ("git_url", "/e/s.git/", &[REFS, PACKAGE, OTHER, SOURCE]),
    ] {
        let (shop, server) = hosted("", Answer::status("200 OK"));
        let mut manifest = shop.manifest();
        manifest["repository"][key] = server.url(value).into();
        shop.put("skills.json", &manifest.to_string());
        assert_eq!(broken(&shop, &server, PRIVATE), [""; 0], "{value}");
        assert_eq!(server.asked(), asked, "{value}");
    }
    let (shop, server) = hosted("", Answer::status("200 OK"));
    let mut manifest = shop.manifest();
    manifest["skills"][0]["package"] = "packages/../demo.zip".into();
    shop.put("skills.json", &manifest.to_string());
    assert_eq!(broken(&shop, &server, PRIVATE), [""; 0]);
    assert_eq!(server.asked(), [REFS, OTHER, SOURCE]);
}

#[test]
fn a_checksum_is_served_in_capitals_too() {
    let (shop, server) = hosted("", Answer::status("200 OK"));
    let mut manifest = shop.manifest();
    manifest["skills"][0]["sha256"] = manifest["skills"][0]["sha256"].as_str().expect("a sum").to_uppercase().into();
    shop.put("skills.json", &manifest.to_string());
    assert_eq!(broken(&shop, &server, PRIVATE), [""; 0]);
}

#[test]
fn one_host_is_asked_two_questions_at_a_time() {
    let counts = Arc::new((Mutex::new((0, 0)), Condvar::new()));
    let counted = Arc::clone(&counts);
    let server = Server::start(move |_| {
        let (counts, changed) = &*counted;
        let mut now = counts.lock().expect("nobody panicked");
        *now = (now.0 + 1, now.1.max(now.0 + 1));
        changed.notify_all();
        let waited = changed.wait_timeout_while(now, Duration::from_millis(100), |(_, most)| *most < 3);
        waited.expect("nobody panicked").0.0 -= 1;
        Answer::status("200 OK")
    });
    let (shop, _) = hosted("", Answer::status("200 OK"));
    let mut manifest = shop.manifest();
    manifest["apis"][0]["source_urls"] = (0..8).map(|number| server.url(&format!("/docs/{number}"))).collect();
    shop.put("skills.json", &manifest.to_string());
    broken(&shop, &server, PRIVATE);
    assert_eq!(server.asked().len(), 8);
    assert!(counts.0.lock().expect("nobody panicked").1 <= 2);
}

#[test]
fn hosts_that_everybody_can_reach_are_asked_without_a_proxy() {
    let proxy = TcpListener::bind("127.0.0.1:0").expect("a port");
    proxy.set_nonblocking(true).expect("it does not wait");
    let shop = Shop::new();
    shop.build_for("https://nobody.invalid");
    let mut command = shop.command(&["validate", "skills.json", "--online"]);
    for name in ["NO_PROXY", "no_proxy"] {
        command.env_remove(name);
    }
    let address = format!("http://{}", proxy.local_addr().expect("an address"));
    let told = done(command.env("HTTPS_PROXY", &address).env("https_proxy", &address), None);
    assert!(told.code == FOUND && told.stdout.contains("it cannot be reached"), "{told:?}");
    assert!(proxy.accept().is_err(), "somebody in between was asked");
}

#[test]
fn a_question_that_is_sent_in_circles_is_given_up() {
    let (shop, server) = hosted(PACKAGE, Answer::redirect("/e/s/raw/main/packages/demo-1.0.0.zip"));
    assert_eq!(broken(&shop, &server, PRIVATE), ["M104"]);
    assert_eq!(server.asked().iter().filter(|asked| *asked == PACKAGE).count(), 6);
}

#[test]
fn hosts_that_only_some_can_reach_are_not_asked() {
    let (shop, server) = hosted("", Answer::status("200 OK"));
    assert_eq!(broken(&shop, &server, &[]), [""; 0]);
    assert_eq!(server.asked(), [""; 0]);
}

#[test]
fn each_wrong_answer_is_told_by_its_rule() {
    let gone = || Answer::status("404 Not Found");
    let list = Answer::ok(format!("001e# service=git-upload-pack\n0000003d{} refs/heads/next\n0000", "0".repeat(40)));
    let length = fs::metadata(hosted("", gone()).0.at("packages/demo-1.0.0.zip")).expect("a package").len();
    let same_length = vec![b'x'; usize::try_from(length).expect("a length")];
    for (question, answer, rules) in [
        (PACKAGE, gone(), &["M100"][..]),
        (PACKAGE, Answer::endless(), &["M100"]),
        (PACKAGE, Answer::ok(vec![b' '; (10 << 20) + 1]), &["M100"]),
        (PACKAGE, Answer::ok("other"), &["M101", "M101"]),
        (PACKAGE, Answer::ok(same_length), &["M101"]),
        (REFS, gone(), &["M103"]),
        (REFS, Answer::ok("<!DOCTYPE html>"), &["M103"]),
        (REFS, list, &["M103"]),
        (REFS, Answer::endless(), &[]),
        (REFS, Answer::ok(vec![b' '; (8 << 20) + 1]), &[]),
        // Who does not know HEAD is asked with GET, which is answered.
        (SOURCE, Answer::status("405 Method Not Allowed"), &[]),
        (PACKAGE, Answer::redirect("https://user:secret@localhost/"), &["M104"]),
        (PACKAGE, Answer::redirect("/e/s/raw/main/packages/demo-1.0.0.zip"), &["M104"]),
    ] {
        let (shop, server) = hosted(question, answer);
        assert_eq!(broken(&shop, &server, PRIVATE), rules, "{question}");
    }
}

#[test]
fn a_source_that_is_gone_is_told_and_is_asked_twice_at_most() {
    let shop = Shop::new();
    let server = Server::start(|_| Answer::status("410 Gone"));
    shop.build_for(&server.url(""));
    let mut manifest = shop.manifest();
    manifest["skills"] = json!([]);
    manifest["apis"] = json!([{
        "id": "images", "title": "Images", "product": "images", "language": "python", "path": "apis/images.md",
        "source_urls": [server.url("/docs")],
    }]);
    shop.put("skills.json", &manifest.to_string());
    assert_eq!(broken(&shop, &server, PRIVATE), ["M102", "M103"]);
    assert_eq!(server.asked(), ["GET /docs", REFS, SOURCE]);
}

#[test]
fn nobody_is_asked_without_tls_and_nobody_who_cannot_prove_it() {
    let plain = TcpListener::bind("127.0.0.1:0").expect("a port");
    plain.set_nonblocking(true).expect("it does not wait");
    let to = format!("http://localhost:{}/x", plain.local_addr().expect("an address").port());
    let (shop, server) = hosted(PACKAGE, Answer::redirect(&to));
    assert_eq!(broken(&shop, &server, PRIVATE), ["M104"]);
    assert!(plain.accept().is_err(), "it was called without TLS");
    let other = Server::start(|_| Answer::status("200 OK"));
    // Two packages, the branch and one source, which two entries name.
    assert_eq!(broken(&shop, &other, PRIVATE), ["M104"; 5]);
    assert_eq!(server.asked().len(), 4);
}

const INSTALL: &[&str] = &["install", "demo", "--into", "agent", "--from"];

#[test]
fn a_skill_is_installed_from_an_address() {
    let (shop, server) = hosted("", Answer::status("200 OK"));
    let from = server.url("/e/s/raw/main/skills.json");
    let installed = run(&shop, &server, &[INSTALL, &[&from], PRIVATE].concat());
    assert!(installed.code == DONE && installed.stderr.contains("installed demo 1.0.0"), "{installed:?}");
    assert_eq!(files(&shop.at("agent/demo")), files(&shop.at("skills/demo")));
    assert_eq!(server.asked(), ["GET /e/s/raw/main/packages/demo-1.0.0.zip", "GET /e/s/raw/main/skills.json"]);
    let again = run(&shop, &server, &[INSTALL, &[&from], PRIVATE].concat());
    assert!(again.code == DONE && again.stderr.contains("is already installed"), "{again:?}");
    assert_eq!(server.asked().len(), 3);
}

#[test]
fn a_package_from_elsewhere_is_not_installed() {
    for (answer, why) in [
        (Answer::ok("other"), "not the package that the manifest promises"),
        (Answer::status("404 Not Found"), "404"),
        (Answer::endless(), "more than 10485760 bytes"),
        (Answer::redirect("http://localhost/x"), "https"),
    ] {
        let (shop, server) = hosted(PACKAGE, answer);
        let from = server.url("/e/s/raw/main/skills.json");
        let refused = run(&shop, &server, &[INSTALL, &[&from], PRIVATE].concat());
        assert!(refused.code == FOUND && refused.stderr.contains(why), "{refused:?}");
        assert_eq!(files(&shop.at("agent")).len(), 0);
    }
    let (shop, server) = hosted("", Answer::status("200 OK"));
    let refused = run(&shop, &server, &[INSTALL, &[&server.url("/e/s/raw/main/skills.json")]].concat());
    assert!(refused.code == FOUND && refused.stderr.contains("--allow-private-hosts"), "{refused:?}");
    assert_eq!(server.asked(), ["GET /e/s/raw/main/skills.json"]);
    shop.build_for(&server.url("").replace("localhost", "127.0.0.1"));
    let refused = run(&shop, &server, &[INSTALL, &[&server.url("/e/s/raw/main/skills.json")]].concat());
    assert!(refused.code == FOUND && refused.stderr.contains("--allow-private-hosts"), "{refused:?}");
    let plain = run(&shop, &server, &[INSTALL, &["http://localhost/skills.json"]].concat());
    assert!(plain.code == USAGE && plain.stderr.contains("https"), "{plain:?}");
}
