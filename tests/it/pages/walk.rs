//! The first steps of a new user in a real browser, with and without JavaScript: the printed setup link, a key, an
//! image, its record, the disabling of the key, the audit trail, and a second user who sees none of it.

use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::browser::{Browser, Tab, WITH_SCRIPT, WITHOUT_SCRIPT, WindowOptions};
use super::browser_driver::clipboard_lock;
use super::users::{
    ADA, ADAS_PASSWORD, BEN, BENS_PASSWORD, link_in, secret_in, setup_path, sign_in_at, watch_link, watch_passwords,
};
use crate::kit::{Call, Gateway, OutputChannel, format_and_size, pause, request};

/// The most calls with a disabled key until one is refused, with [`PAUSE`] between: a second and the time of the calls.
const MAX_CALLS: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

#[test]
fn a_new_user_gets_from_the_printed_link_to_the_audit_trail() {
    follow_first_steps(WITH_SCRIPT);
}

#[test]
fn a_new_user_gets_to_the_audit_trail_without_scripts() {
    follow_first_steps(WITHOUT_SCRIPT);
}

fn follow_first_steps(look: WindowOptions) {
    let gateway = Gateway::simulated();
    watch_passwords(&gateway);
    let browser = Browser::start();
    let ada = browser.tab(&gateway, look);
    set_up(&ada, &setup_path(&gateway));
    ada.follow("button", "Sign out");
    sign_in_at(&ada, ADA, ADAS_PASSWORD);
    let (key, secret, curl) = create_key(&ada, &gateway, look);
    let request_id = make_an_image(&curl, &gateway);
    read_the_record(&ada, &request_id);
    disable(&ada, &gateway, &key, &secret);
    read_the_trail(&ada);
    let ben = browser.tab(&gateway, look);
    invite(&ada, &ben, &gateway);
    assert_no_access(&ben, &key, &secret, &request_id);
    sign_out_everywhere(&ben, &browser.tab(&gateway, look));
    ada.close();
    ben.close();
}

/// Makes the first user, who becomes an administrator and gets to the start page.
fn set_up(tab: &Tab<'_>, path: &str) {
    assert_eq!(tab.go(path).status, 200);
    tab.fill("User name", ADA);
    tab.fill("Password", ADAS_PASSWORD);
    tab.fill("Repeat password", ADAS_PASSWORD);
    let seen = tab.follow("button", "Create admin and continue");
    assert_eq!((seen.status, seen.path.as_str()), (200, "/studio"));
}

/// Makes a key; returns the path of its page, its secret, and the curl command that the page offers.
fn create_key(tab: &Tab<'_>, gateway: &Gateway, look: WindowOptions) -> (String, String, String) {
    tab.go("/keys");
    open_form(tab);
    tab.fill("Name", "laptop");
    assert_eq!(tab.follow("button", "Create key").status, 200);
    let text = tab.text();
    let secret = secret_in(&text).expect("a secret on the page");
    gateway.watch_secret("a key", &secret, &[OutputChannel::Key]);
    let curl = if look.javascript {
        let _clipboard = clipboard_lock();
        tab.click("button", "Copy Secret");
        assert_eq!(tab.clipboard(), secret);
        tab.click("button", "Copy curl");
        tab.clipboard()
    } else {
        let code = tab.texts_of("pre code");
        code.into_iter().find(|code| code.contains("curl ")).expect("a command on the page")
    };
    assert!(curl.contains(tab.origin()), "the command must have the gateway's address: {curl}");
    let keys_page = tab.go("/keys");
    assert!(!keys_page.html.contains(&secret), "a secret is shown once");
    let key = tab.follow("link", "laptop").path;
    tab.assert_no_text(&secret);
    (key, secret, curl)
}

/// The form is inside a `<details>` element, which opens without JavaScript.
fn open_form(tab: &Tab<'_>) {
    if tab.count("button", "Create key") == 0 {
        tab.open_details("New key");
    }
}

/// Runs the curl command in a shell; returns the request id of the image's record.
fn make_an_image(curl: &str, gateway: &Gateway) -> String {
    let folder = tempfile::TempDir::new().expect("a directory");
    let mut shell = Command::new("sh");
    shell.args(["-c", curl]).current_dir(folder.path()).env("HOME", folder.path());
    let output = shell.output().expect("a shell");
    let answer: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {curl}\n{output:?}"));
    let file = STANDARD.decode(answer["data"][0]["b64_json"].as_str().expect("an image")).expect("base64");
    assert_eq!(format_and_size(&file).0, "png");
    let records = gateway.final_records(1);
    assert_eq!(records.len(), 1, "{records:?}");
    records[0]["request_id"].as_str().expect("an id").to_owned()
}

fn read_the_record(tab: &Tab<'_>, request_id: &str) {
    tab.go("/records");
    assert_eq!(tab.follow_to(&format!("/records/{request_id}")).status, 200);
    for text in [request_id, "laptop", ADA, "gpt-image-2", "default"] {
        tab.assert_text(text);
    }
}

/// Disables the key on its page; the gateway must refuse it within about a second.
fn disable(tab: &Tab<'_>, gateway: &Gateway, key: &str, secret: &str) {
    let call = || Call::generation().key(secret).json(&request(json!({}))).send(gateway.address());
    call().ok_json();
    tab.go(key);
    tab.follow("button", "Disable");
    let refusal = (0..MAX_CALLS).find_map(|_| {
        let answer = call();
        pause(PAUSE);
        (answer.status == 401).then_some(answer)
    });
    let refusal = refusal.expect("the key still works a second after it was disabled");
    assert_eq!(refusal.error_object(401)["code"], "INVALID_API_KEY");
    tab.go(key);
    tab.assert_text("Disabled");
}

/// The audit trail has the user, address and time of the disabling.
fn read_the_trail(tab: &Tab<'_>) {
    tab.go("/audit");
    let rows = tab.texts_of("tbody tr");
    let row = rows.iter().find(|row| row.contains("laptop") && row.contains("key.disable"));
    let row = row.unwrap_or_else(|| panic!("no row of the disabling: {rows:#?}"));
    assert!(row.contains(ADA) && row.contains("127.0.0.1"), "{row}");
    let time = tab.evaluate("[...document.querySelectorAll('tbody tr')].find((row) => row.innerText.includes('key.disable')).querySelector('time').dateTime");
    assert!(time.as_str().is_some_and(|text| text.contains('T') && text.ends_with('Z')), "{time}");
}

/// The first user invites the second, who accepts the invitation.
fn invite(ada: &Tab<'_>, ben: &Tab<'_>, gateway: &Gateway) {
    ada.go("/people");
    if ada.count("button", "Create invitation link") == 0 {
        ada.open_details("Invite a user");
    }
    ada.fill("User name", BEN);
    assert_eq!(ada.follow("button", "Create invitation link").status, 200);
    let path = link_in(&ada.text(), "/invitation/").expect("a link");
    watch_link(gateway, &path);
    assert_eq!(ben.go(&path).status, 200);
    ben.assert_text(BEN);
    ben.fill("Password", BENS_PASSWORD);
    ben.fill("Repeat password", BENS_PASSWORD);
    assert_eq!(ben.follow("button", "Set password and sign in").status, 200);
    ben.follow("button", "Sign out");
    sign_in_at(ben, BEN, BENS_PASSWORD);
}

fn assert_no_access(ben: &Tab<'_>, key: &str, secret: &str, request_id: &str) {
    for page in ["/keys", "/usage", "/records", "/start"] {
        let seen = ben.go(page);
        assert_eq!(seen.status, 200, "{page}");
        for text in ["laptop", request_id, secret, ADA] {
            assert!(!seen.html.contains(text), "{text} of another user is on {page}: {}", seen.html);
        }
    }
    for (page, status) in [
        (key.to_owned(), 404),
        (format!("/records/{request_id}"), 404),
        ("/people".to_owned(), 403),
        ("/audit".to_owned(), 403),
        ("/accounts".to_owned(), 403),
        ("/groups".to_owned(), 403),
        ("/prices".to_owned(), 403),
    ] {
        let seen = ben.go(&page);
        assert_eq!(seen.status, status, "{page}");
        assert!(!seen.html.contains("laptop") && !seen.html.contains(ADA), "{page}: {}", seen.html);
    }
}

/// A sign-out everywhere ends the sessions of both windows.
fn sign_out_everywhere(tab: &Tab<'_>, other_tab: &Tab<'_>) {
    sign_in_at(other_tab, BEN, BENS_PASSWORD);
    // The playground asks for the cost of its form in the background.
    other_tab.go("/keys");
    tab.go("/profile");
    tab.follow("button", "Sign out everywhere");
    for window in [tab, other_tab] {
        let seen = window.go("/keys");
        assert!(seen.path.starts_with("/sign-in"), "{seen:?}");
    }
}
