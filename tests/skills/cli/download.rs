//! Downloads of manifests: only with permission, only over https, and only up to the size limit.

use std::net::TcpListener;

use super::server::{Answer, Server};
use super::{CommandOutput, EXIT_FAILURE, EXIT_SUCCESS, EXIT_USAGE, case_path, run_command, skills_command};

fn validate(server: &Server, arguments: &[&str]) -> CommandOutput {
    let address = server.url("/skills.json");
    run_command(server.trusted_by(&mut skills_command(&[&["validate", &address], arguments].concat())), None)
}

fn start_server(name: &str) -> Server {
    let bytes = std::fs::read(case_path(name)).expect("a case");
    Server::start(move |_| Answer::ok(bytes.clone()))
}

#[test]
fn a_manifest_is_downloaded_only_if_allowed() {
    let server = start_server("M036/build-metadata");
    let done = validate(&server, &["--allow-network"]);
    assert!(done.code == EXIT_FAILURE && done.stdout.contains("/skills.json:43:18"), "{done:?}");
    let server = start_server("good/full");
    assert_eq!(validate(&server, &["--allow-network"]).code, EXIT_SUCCESS);
    let refused = validate(&server, &[]);
    assert!(refused.code == EXIT_USAGE && refused.stderr.contains("--allow-network"), "{refused:?}");
}

#[test]
fn export_downloads_no_manifest() {
    let refused = run_command(&mut skills_command(&["export", "https://localhost/skills.json"]), None);
    assert!(refused.code == EXIT_USAGE && refused.stderr.contains("download the manifest first"), "{refused:?}");
    assert!(!refused.stderr.contains("--allow-network"), "{refused:?}");
}

#[test]
fn a_server_with_an_untrusted_certificate_is_refused() {
    let server = start_server("good/full");
    let address = server.url("/skills.json");
    let mut command = skills_command(&["validate", &address, "--allow-network"]);
    let done = run_command(command.env_remove("SSL_CERT_FILE"), None);
    assert!(done.code == EXIT_FAILURE && done.stdout.is_empty(), "{done:?}");
}

#[test]
fn a_redirect_to_http_is_not_followed() {
    let http_listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    http_listener.set_nonblocking(true).expect("a non-blocking listener");
    let port = http_listener.local_addr().expect("an address").port();
    let server = Server::start(move |_| Answer::redirect(&format!("http://localhost:{port}/x")));
    let done = validate(&server, &["--allow-network"]);
    assert!(done.code == EXIT_FAILURE && done.stdout.is_empty(), "{done:?}");
    assert!(http_listener.accept().is_err(), "the redirect to http was followed");
}

#[test]
fn a_status_404_is_a_failure() {
    let done = validate(&Server::start(|_| Answer::status("404 Not Found")), &["--allow-network"]);
    assert!(done.code == EXIT_FAILURE && done.stderr.contains("404"), "{done:?}");
}

#[test]
fn an_endless_download_is_stopped_at_the_limit() {
    let done = validate(&Server::start(|_| Answer::endless()), &["--allow-network"]);
    assert!(done.code == EXIT_FAILURE && done.stderr.contains("67108864 bytes"), "{done:?}");
}
