//! Images of JSON edits that are named by a web address: which are fetched, and which never are.

#[path = "../skills/cli/server.rs"]
#[expect(dead_code, reason = "the tests of the skills commands use the rest")]
mod https_server;

use std::sync::Arc;

use serde_json::{Value, json};

use self::https_server::{Answer, Server};
use crate::kit::{Account, Attempt, FakeUpstream, Gateway, alpha_png, image_file, sha256};

/// A host of images, and a gateway with an upstream.
struct RemoteImageSetup {
    upstream: FakeUpstream,
    gateway: Gateway,
}

// === impl RemoteImageSetup ===

impl RemoteImageSetup {
    /// A gateway with these further lines in `[remote_images]`, which trusts `host`.
    fn new(host: &Server, lines: &str) -> Self {
        let upstream = FakeUpstream::start();
        let top = if lines.is_empty() { String::new() } else { format!("[remote_images]\n{lines}\n") };
        let root = host.root_path().to_str().expect("a path");
        let account = Account::for_upstream("only", &upstream);
        let gateway = Gateway::with_secrets(&top, &[account], &[("SSL_CERT_FILE", root)]);
        Self { upstream, gateway }
    }

    /// A gateway that may fetch from `host`, although it is on this machine.
    fn allowing(host: &Server) -> Self {
        let name = host.url("").trim_start_matches("https://").to_owned();
        Self::new(host, &format!("hosts = [\"{name}\"]\nnetworks = [\"127.0.0.0/8\", \"::1\"]\ntimeout = \"3s\""))
    }

    fn edit(&self, images: &[&str], mask: Option<&str>) -> crate::kit::Answer {
        let images: Vec<Value> = images.iter().map(|url| json!({"image_url": url})).collect();
        let mask = mask.map(|url| json!({"image_url": url}));
        self.gateway.edit_json(json!({"images": images, "mask": mask}))
    }

    /// The address must be refused for this parameter, and cost nothing.
    #[track_caller]
    fn check_refused(&self, address: &str, part: &str) {
        let error = self.edit(&[address], None).error_object(400);
        assert_eq!(
            (&error["param"], &error["reason"]),
            (&json!("images[0].image_url"), &json!("invalid_value")),
            "{error}"
        );
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains(part), "{address}: {message}");
        assert_eq!(self.upstream.attempt_count(), 0, "{address}");
    }
}

/// A host with the files of a few names.
fn host() -> Server {
    let (photo, mask) = (image_file(64, 64, "png"), alpha_png(64, 64));
    Server::start(move |request| match request {
        "GET /photo.png" | "GET /photo.png?version=2" => Answer::ok(photo.as_slice()),
        "GET /mask.png" => Answer::ok(mask.as_slice()),
        "GET /text" => Answer::ok("no image"),
        "GET /endless" => Answer::endless(),
        "GET /to-photo" => Answer::redirect("/photo.png"),
        "GET /to-itself" => Answer::redirect("/to-itself"),
        "GET /to-metadata" => Answer::redirect("https://169.254.169.254/latest/meta-data"),
        "GET /to-plain" => Answer::redirect("http://localhost/photo.png"),
        "GET /to-nowhere" => Answer::status("302 Found"),
        "GET /zipped" => Answer::status("200 OK\r\ncontent-encoding: compress"),
        _ => Answer::status("404 Not Found"),
    })
}

fn digests(attempt: &Attempt) -> Vec<Vec<u8>> {
    attempt.files().into_iter().map(|part| part.digest.clone()).collect()
}

#[test]
fn images_by_address_and_by_data_url_keep_their_order() {
    let host = host();
    let setting = RemoteImageSetup::allowing(&host);
    let local = image_file(80, 80, "webp");
    let (photo, escaped) = (host.url("/photo.png"), host.url("/photo.png?version=2#part"));
    let answer = setting.edit(&[&photo, &crate::edits::data_url(&local), &escaped], Some(&host.url("/mask.png")));
    answer.ok_json();
    let attempts = setting.upstream.received_attempts();
    let photo: Arc<Vec<u8>> = image_file(64, 64, "png");
    assert_eq!(digests(&attempts[0]), [sha256(&photo), sha256(&local), sha256(&photo)]);
    assert_eq!(attempts[0].mask().map(|part| part.digest.clone()), Some(sha256(&alpha_png(64, 64))));
    assert_eq!(host.requests(), ["GET /mask.png", "GET /photo.png", "GET /photo.png?version=2"]);
}

#[test]
fn a_redirect_is_followed_only_to_an_allowed_address() {
    let host = host();
    let setting = RemoteImageSetup::allowing(&host);
    setting.check_refused(&host.url("/to-itself"), "redirects too often");
    assert_eq!(host.requests().len(), 4, "the address and three redirects");
    setting.check_refused(&host.url("/to-nowhere"), "redirects too often");
    setting.check_refused(&host.url("/to-metadata"), "does not fetch images from the host '169.254.169.254'");
    setting.check_refused(&host.url("/to-plain"), "must begin with 'https://'");
    setting.edit(&[&host.url("/to-photo")], None).ok_json();
}

#[test]
fn an_answer_that_is_no_image_is_refused() {
    let host = host();
    let setting = RemoteImageSetup::allowing(&host);
    setting.check_refused(&host.url("/nowhere"), "answered with the status 404");
    setting.check_refused(&host.url("/text"), "Invalid image");
    setting.check_refused(&host.url("/zipped"), "the answer broke off");
    setting.check_refused(&host.url("/endless"), "the file is too large");
}

#[test]
fn nothing_is_fetched_from_a_private_address_or_without_the_setting() {
    let host = host();
    let name = host.url("").trim_start_matches("https://").to_owned();
    let public_only = RemoteImageSetup::new(&host, &format!("hosts = [\"{name}\", \"*\"]"));
    public_only.check_refused(&host.url("/photo.png"), "could not be reached");
    for address in
        ["https://2130706433/", "https://0177.0.0.1/", "https://[::ffff:127.0.0.1]/", "https://169.254.169.254/"]
    {
        public_only.check_refused(address, "does not fetch images from the host");
    }
    public_only.check_refused("https://user:password@localhost/", "no user and no password");
    let off = RemoteImageSetup::new(&host, "");
    off.check_refused(&host.url("/photo.png"), "remote images are not fetched here");
    assert_eq!(host.requests(), [""; 0], "no connection was used");
}

#[test]
fn a_wrong_setting_is_named() {
    let host = host();
    let setting = RemoteImageSetup::allowing(&host);
    let text = std::fs::read_to_string(setting.gateway.config()).expect("a configuration");
    for (from, to, place) in [
        ("hosts = [", "hosts = [\"https://a.example\", ", "`hosts[0]` must be a host"),
        ("127.0.0.0/8", "127.0.0.0/33", "`networks[0]` must be"),
        ("timeout = \"3s\"", "timeout = \"soon\"", "`timeout` must be"),
        ("networks =", "network =", "`network`"),
    ] {
        std::fs::write(setting.gateway.config(), text.replacen(from, to, 1)).expect("a configuration");
        let output = setting.gateway.run_command(&["config", "check"]);
        assert!(output.stderr.contains(place), "{place}: {}", output.stderr);
    }
}
