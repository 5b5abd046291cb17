//! Manifests behind an address: https and nothing else, where it is allowed, and no more than is read.

use std::net::TcpListener;

use super::server::{Answer, Server};
use super::{DONE, Done, FOUND, USAGE, case, done, program};

fn validate(server: &Server, arguments: &[&str]) -> Done {
    let address = server.url("/skills.json");
    done(server.known_to(&mut program(&[&["validate", &address], arguments].concat())), None)
}

fn serving(name: &str) -> Server {
    let bytes = std::fs::read(case(name)).expect("a case");
    Server::start(move |_| Answer::ok(bytes.clone()))
}

#[test]
fn a_manifest_is_downloaded_where_that_is_allowed() {
    let server = serving("M036/build-metadata");
    let done = validate(&server, &["--allow-network"]);
    assert!(done.code == FOUND && done.stdout.contains("/skills.json:43:18"), "{done:?}");
    let server = serving("good/full");
    assert_eq!(validate(&server, &["--allow-network"]).code, DONE);
    let refused = validate(&server, &[]);
    assert!(refused.code == USAGE && refused.stderr.contains("--allow-network"), "{refused:?}");
}

#[test]
fn a_server_that_nobody_vouches_for_is_not_believed() {
    let server = serving("good/full");
    let address = server.url("/skills.json");
    let mut command = program(&["validate", &address, "--allow-network"]);
    let done = done(command.env_remove("SSL_CERT_FILE"), None);
    assert!(done.code == FOUND && done.stdout.is_empty(), "{done:?}");
}

#[test]
fn a_download_is_never_sent_to_http() {
    let plain = TcpListener::bind("127.0.0.1:0").expect("a port");
    plain.set_nonblocking(true).expect("it does not wait");
    let port = plain.local_addr().expect("an address").port();
    let server = Server::start(move |_| Answer::redirect(&format!("http://localhost:{port}/x")));
    let done = validate(&server, &["--allow-network"]);
    assert!(done.code == FOUND && done.stdout.is_empty(), "{done:?}");
    assert!(plain.accept().is_err(), "it was called without TLS");
}

#[test]
fn an_answer_that_is_no_manifest_is_a_failure() {
    let done = validate(&Server::start(|_| Answer::status("404 Not Found")), &["--allow-network"]);
    assert!(done.code == FOUND && done.stderr.contains("404"), "{done:?}");
}

#[test]
fn a_download_without_an_end_is_ended() {
    let done = validate(&Server::start(|_| Answer::endless()), &["--allow-network"]);
    assert!(done.code == FOUND && done.stderr.contains("67108864 bytes"), "{done:?}");
}
