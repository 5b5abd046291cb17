//! A person who reloads, closes or stops the playground, or goes on in another browser, in a real Chromium: the picture is
//! found each time, and paid for once.

use serde_json::json;

use super::browser::{Browser, Tab, WITH_SCRIPT, WITHOUT_SCRIPT};
use super::playground::wait_for_pictures;
use super::users::{ADA, ADAS_PASSWORD, sign_in_ada, sign_in_at};
use crate::kit::{FakeUpstream, Gateway, eventually};

/// The path in the address bar.
fn address(tab: &Tab<'_>) -> String {
    tab.evaluate("location.pathname").as_str().unwrap_or_default().to_owned()
}

fn state(tab: &Tab<'_>) -> String {
    tab.evaluate("document.getElementById('stage').dataset.state ?? ''").as_str().unwrap_or_default().to_owned()
}

/// Fills in the form, sends it, and waits until the upstream has the request.
#[track_caller]
fn begin(tab: &Tab<'_>, upstream: &FakeUpstream, prompt: &str) {
    let before = upstream.attempt_count();
    tab.fill("Prompt", prompt);
    tab.click("button", "Make the image");
    assert!(address(tab).starts_with("/studio/"), "the address is known at once: {}", address(tab));
    upstream.wait_until("the request is sent", |attempts| attempts.len() == before + 1);
}

fn history_length(tab: &Tab<'_>) -> serde_json::Value {
    tab.evaluate("document.querySelectorAll('#thumbs li').length")
}

#[test]
fn a_reload_shows_the_request_and_keeps_the_form_and_the_history() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    drop(sign_in_ada(&gateway));
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    // The first request makes the key of the user. The second one has it.
    for (number, prompt) in ["a cube [[gate=first]]", "a cone [[gate=second]]"].into_iter().enumerate() {
        tab.fill("Size", "1536x1024");
        begin(&tab, &upstream, prompt);
        tab.reload();
        assert_eq!(state(&tab), "running");
        tab.assert_text("still being made");
        assert_eq!(tab.evaluate("document.getElementById('prompt').value"), json!(prompt));
        assert_eq!(tab.evaluate("document.getElementById('size').value"), json!("1536x1024"));
        tab.reload();
        upstream.open_gate(if number == 0 { "first" } else { "second" });
        wait_for_pictures(&tab, 1);
        eventually("the history has the picture", || (history_length(&tab) == json!(number + 1)).then_some(()));
        assert!(!address(&tab).contains("/new/"), "{}", address(&tab));
        // The picture is still there, and in the history once.
        tab.reload();
        assert_eq!(state(&tab), "ended");
        eventually("the picture is shown", || {
            (tab.evaluate("document.querySelector('#pictures img')?.naturalWidth > 0") == json!(true)).then_some(())
        });
        eventually("the history is shown", || (history_length(&tab) == json!(number + 1)).then_some(()));
    }
    assert_eq!(upstream.attempt_count(), 2);
    tab.close();
}

#[test]
fn an_edit_is_shown_after_a_reload() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    drop(sign_in_ada(&gateway));
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    tab.open_details("Edit images");
    tab.evaluate(
        "(async () => { const canvas = document.createElement('canvas'); canvas.width = 64; canvas.height = 64;
            const blob = await new Promise((resolve) => canvas.toBlob(resolve));
            const files = new DataTransfer(); files.items.add(new File([blob], 'fox.png', { type: 'image/png' }));
            document.getElementById('image').files = files.files; })()",
    );
    begin(&tab, &upstream, "a hare [[gate=open]]");
    tab.reload();
    assert_eq!(state(&tab), "running");
    upstream.open_gate("open");
    wait_for_pictures(&tab, 1);
    assert_eq!(gateway.final_records(1)[0]["operation"], "edit_image");
    tab.close();
}

#[test]
fn a_closed_window_leaves_its_picture_to_the_next_sign_in() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    drop(sign_in_ada(&gateway));
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    begin(&tab, &upstream, "a cube [[gate=open]]");
    let kept = address(&tab);
    // Its cookies are gone with it.
    tab.close();
    for look in [WITH_SCRIPT, WITHOUT_SCRIPT] {
        let tab = browser.tab(&gateway, look);
        sign_in_at(&tab, ADA, ADAS_PASSWORD);
        assert_eq!(tab.count("heading", "Recent images"), 1);
        assert_eq!(tab.texts_of("#recent-items .tag"), ["Running"]);
        tab.go(&kept);
        tab.assert_text("still being made");
        tab.close();
    }
    upstream.open_gate("open");
    let tab = browser.tab(&gateway, WITHOUT_SCRIPT);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    eventually("the list says so", || {
        tab.go("/studio");
        (tab.texts_of("#recent-items .tag") == ["Succeeded"]).then_some(())
    });
    let record = gateway.final_records(1)[0]["request_id"].as_str().expect("an id").to_owned();
    let seen = tab.follow_to(&format!("/records/{record}"));
    assert!(seen.html.contains(&format!("/records/{record}/images/0")), "{}", seen.html);
    assert_eq!(tab.count("img", "Image 1"), 1);
    tab.go(&kept);
    assert_eq!(tab.count("img", "Image 1"), 1);
    assert_eq!(upstream.attempt_count(), 1);
    tab.close();
}

#[test]
fn a_stop_says_where_the_picture_will_be_found() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    drop(sign_in_ada(&gateway));
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    begin(&tab, &upstream, "a cube [[gate=open]]");
    tab.click("button", "Stop waiting");
    eventually("the page has stopped", || {
        (tab.evaluate("document.getElementById('make').disabled") == json!(false)).then_some(())
    });
    tab.assert_text("Stopped waiting");
    tab.assert_text("still being made, and may be paid for. It will be on this page");
    assert_eq!(tab.texts_of("#recent-items .tag"), ["Running"]);
    let stopped = address(&tab);
    // The next request is another one, with an address of its own.
    begin(&tab, &upstream, "a cone");
    wait_for_pictures(&tab, 1);
    assert_ne!(address(&tab), stopped);
    upstream.open_gate("open");
    tab.go(&stopped);
    wait_for_pictures_or_image(&tab);
    assert_eq!(upstream.attempt_count(), 2);
    tab.close();
}

/// Waits until the page shows the picture: drawn by the script that has waited for it, or from its address.
#[track_caller]
fn wait_for_pictures_or_image(tab: &Tab<'_>) {
    eventually("the picture is shown", || {
        (tab.evaluate("document.querySelectorAll('#pictures figcaption a[download]').length") == json!(1)).then_some(())
    });
}
