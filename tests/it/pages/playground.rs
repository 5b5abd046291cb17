//! The playground: from the printed link to a picture, with and without JavaScript; edits with a painted mask; and what
//! strangers and repeated forms get.

use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use super::browser::{Browser, Tab, WITH_SCRIPT, WITHOUT_SCRIPT};
use super::browser_driver::clipboard_lock;
use super::users::{ADA, ADAS_PASSWORD, make_key, setup_path, sign_in_ada, sign_in_at, sign_in_ben, watch_passwords};
use super::visitor::{Form, Visitor};
use crate::kit::{Account, FakeUpstream, Gateway, eventually, format_and_size};

/// Creates the first admin: the first of two clicks.
#[track_caller]
fn set_up(tab: &Tab<'_>) {
    watch_passwords(tab.gateway());
    tab.go(&setup_path(tab.gateway()));
    tab.fill("User name", ADA);
    tab.fill("Password", ADAS_PASSWORD);
    tab.fill("Repeat password", ADAS_PASSWORD);
    assert_eq!(tab.follow("button", "Create admin and continue").path, "/studio");
}

/// Waits until the script has finished a request, and returns the number of pictures with their pixels.
#[track_caller]
pub(super) fn wait_for_pictures(tab: &Tab<'_>, count: usize) {
    eventually("the pictures are finished", || {
        let is_done = tab.evaluate("document.getElementById('make').disabled === false");
        let has_report = tab.evaluate("document.querySelectorAll('#report dl').length > 0");
        let links = tab.evaluate("document.querySelectorAll('#pictures figcaption a[download]').length");
        (is_done == json!(true) && has_report == json!(true) && links == json!(count)).then_some(())
    });
}

#[test]
fn two_clicks_lead_from_the_printed_link_to_a_picture() {
    let gateway = Gateway::simulated();
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    let begun = Instant::now();
    set_up(&tab);
    tab.click("button", "Make the image");
    wait_for_pictures(&tab, 1);
    println!("from the link to the picture: {:?}", begun.elapsed());
    let drawn = tab.evaluate(
        "(() => { const canvas = document.querySelector('#pictures canvas');
            const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            return [canvas.width, canvas.height, new Set(pixels).size > 16]; })()",
    );
    assert_eq!(drawn, json!([1024, 1024, true]));
    tab.assert_text("Succeeded");
    tab.assert_text("1024x1024");
    let [record] = gateway.final_records(1).try_into().expect("one record");
    assert_eq!((record["state"].as_str(), record["stream"].as_bool()), (Some("succeeded"), Some(true)));
    assert_eq!(record["key_name"].as_str().unwrap_or("Playground"), "Playground");
    // The history is in the browser, and stays after a reload.
    tab.reload();
    eventually("the history is shown", || {
        (tab.evaluate("document.querySelectorAll('#thumbs li').length") == json!(1)).then_some(())
    });
    tab.close();
}

#[test]
fn without_scripts_the_form_makes_a_picture_and_a_reload_pays_nothing() {
    let gateway = Gateway::simulated();
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITHOUT_SCRIPT);
    set_up(&tab);
    tab.fill("Prompt", "a harbour at night");
    tab.fill("Size", "1536x1024");
    let seen = tab.follow("button", "Show cost and code");
    assert_eq!((seen.status, seen.path.as_str()), (200, "/studio/preview"));
    tab.assert_text("a harbour at night");
    let seen = tab.follow("button", "Make the image");
    assert!(seen.path.starts_with("/studio/key_"), "{}", seen.path);
    assert_eq!(tab.texts_of("#report .tag"), ["Succeeded"]);
    assert_eq!(tab.reload().status, 200);
    let mut visitor = Visitor::new(&gateway);
    visitor.cookies = cookies(&tab);
    let picture = visitor.get(&format!("{}/0", seen.path));
    assert_eq!(format_and_size(&picture.body), ("png".to_owned(), "1536x1024".to_owned()));
    assert_eq!(picture.header("content-type"), Some("image/png"));
    assert_eq!(picture.header("cache-control"), Some("no-store"));
    assert_eq!(visitor.get(&format!("{}/1", seen.path)).status, 404);
    assert_eq!(gateway.final_records(1).len(), 1);
    tab.close();
}

#[test]
fn a_size_that_breaks_a_rule_is_shown_while_it_is_typed_and_costs_nothing() {
    let gateway = Gateway::simulated();
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    set_up(&tab);
    let states = |tab: &Tab<'_>| {
        tab.evaluate("[...document.querySelectorAll('#size-rules li')].map((rule) => rule.dataset.state)")
    };
    assert_eq!(states(&tab), json!(["good", "good", "good", "good"]));
    for (size, expected) in [
        ("1000x1000", json!(["bad", "good", "good", "good"])),
        ("4096x2048", json!(["good", "bad", "good", "bad"])),
        ("3072x512", json!(["good", "good", "bad", "good"])),
        ("64x64", json!(["good", "good", "good", "bad"])),
        ("auto", json!(["open", "open", "open", "open"])),
    ] {
        tab.fill("Size", size);
        assert_eq!(states(&tab), expected, "{size}");
    }
    tab.fill("Size", "1000x1000");
    // The browser reports the refused request as a fault of the page.
    tab.click_for_fault("button", "Make the image", "400");
    tab.assert_text("divisible by 16");
    assert_eq!(tab.evaluate("document.getElementById('size').getAttribute('aria-invalid')"), json!("true"));
    assert_eq!(gateway.records(), Vec::<Value>::new());
    // The next request needs no reload.
    tab.fill("Size", "1024x1024");
    tab.click("button", "Make the image");
    wait_for_pictures(&tab, 1);
    tab.close();
}

#[test]
fn a_picture_is_edited_with_a_mask_that_is_painted_on_it() {
    let gateway = Gateway::simulated();
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    set_up(&tab);
    tab.open_details("Edit images");
    tab.evaluate(
        "(async () => { const canvas = document.createElement('canvas'); canvas.width = 1024; canvas.height = 1024;
            canvas.getContext('2d').fillRect(0, 0, 512, 512);
            const blob = await new Promise((resolve) => canvas.toBlob(resolve));
            const files = new DataTransfer(); files.items.add(new File([blob], 'fox.png', { type: 'image/png' }));
            const input = document.getElementById('image'); input.files = files.files;
            input.dispatchEvent(new Event('change', { bubbles: true })); })()",
    );
    eventually("the painter is open", || {
        (tab.evaluate("document.getElementById('painter').hidden") == json!(false)).then_some(())
    });
    tab.evaluate("document.getElementById('paint').focus()");
    for key in ["ArrowLeft", " ", "ArrowUp", " "] {
        tab.press(key);
    }
    tab.fill("Prompt", "make it a hare");
    eventually("the code is that of an edit with a mask", || {
        tab.texts_of("#call-code code")
            .iter()
            .any(|code| code.contains("/images/edits") && code.contains("mask"))
            .then_some(())
    });
    tab.click("button", "Make the image");
    wait_for_pictures(&tab, 1);
    let [record] = gateway.final_records(1).try_into().expect("one record");
    assert_eq!((record["operation"].as_str(), record["state"].as_str()), (Some("edit_image"), Some("succeeded")));
    tab.close();
}

/// Runs a command of the page in a shell, with the key in the variable that it names; returns the file that it writes.
fn run_copied(command: &str, secret: &str) -> Vec<u8> {
    let folder = tempfile::TempDir::new().expect("a directory");
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder.path()).env("HOME", folder.path()).env("IMAGATE_API_KEY", secret);
    let output = shell.output().expect("a shell");
    let mut files = std::fs::read_dir(folder.path()).expect("a directory").flatten();
    let file = files.next().unwrap_or_else(|| panic!("no file: {command}\n{output:?}"));
    std::fs::read(file.path()).expect("a file")
}

#[test]
fn the_copied_command_makes_the_same_picture_as_the_form() {
    let gateway = Gateway::simulated();
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    set_up(&tab);
    let mut ada = Visitor::with_cookies(&gateway, &cookies(&tab));
    let (_, secret) = make_key(&mut ada, "shell");
    // Signs that a shell could read as its own.
    tab.fill("Prompt", "a fox's \"den\", $HOME and `date`; \\ end");
    tab.fill("Size", "1536x1024");
    eventually("the code has the size", || {
        tab.texts_of("#call-code code").iter().any(|code| code.contains("1536x1024")).then_some(())
    });
    let clipboard = clipboard_lock();
    tab.click("button", "Copy curl");
    let command = tab.clipboard();
    drop(clipboard);
    assert!(command.contains(tab.origin()), "{command}");
    assert_eq!(format_and_size(&run_copied(&command, &secret)), ("png".to_owned(), "1536x1024".to_owned()));
    tab.click("button", "Make the image");
    wait_for_pictures(&tab, 1);
    let records = gateway.final_records(2);
    // The simulator counts the tokens of the prompt, so both requests had the same one.
    assert_eq!(records[0]["usage"]["input_tokens"], records[1]["usage"]["input_tokens"], "{records:?}");
    assert_eq!(records[0]["size"], records[1]["size"]);
    tab.close();
}

#[test]
fn two_results_can_be_compared_and_several_images_are_shown() {
    let gateway = Gateway::simulated();
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    set_up(&tab);
    tab.open_details("Format, background and number");
    tab.fill("Images", "2");
    tab.click("button", "Make the image");
    wait_for_pictures(&tab, 2);
    eventually("the history has both", || {
        (tab.evaluate("document.querySelectorAll('#thumbs li').length") == json!(2)).then_some(())
    });
    tab.evaluate("document.querySelectorAll('#thumbs li .button').forEach((button) => button.click())");
    eventually("both are drawn", || {
        let widths = "['compare-left', 'compare-right'].map((id) => document.getElementById(id).width)";
        (tab.evaluate(widths) == json!([1024, 1024])).then_some(())
    });
    tab.click("button", "Delete the history");
    eventually("the history is empty", || {
        (tab.evaluate("document.getElementById('history').hidden") == json!(true)).then_some(())
    });
    tab.close();
}

/// The text of the error beside the form; `None` if it is not shown.
fn shown_error(tab: &Tab<'_>) -> Option<String> {
    let code = "document.getElementById('playground-error').hidden ? null : \
        document.querySelector('#playground-error p').textContent";
    tab.evaluate(code).as_str().map(str::to_owned)
}

fn nonce(tab: &Tab<'_>) -> Value {
    tab.evaluate("document.getElementById('nonce').value")
}

/// Clicks on the button even if it is disabled, as an impatient user does.
fn click_again(tab: &Tab<'_>) {
    tab.evaluate("document.getElementById('make').click()");
    assert_eq!(tab.evaluate("document.getElementById('make').disabled"), json!(true));
}

#[test]
fn several_images_that_take_longer_than_an_answer_may_are_shown_and_paid_for_once() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("answer_deadline = \"1s\"\n", &[Account::for_upstream("only", &upstream)]);
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    set_up(&tab);
    tab.fill("Prompt", "a cube [[gate=open]]");
    tab.open_details("Format, background and number");
    tab.fill("Images", "2");
    let before = nonce(&tab);
    // The browser reports the answer that the request is in progress.
    tab.click_for_fault("button", "Make the image", "409");
    eventually("the script has looked for the outcome", || {
        let looks =
            "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/studio/key_')).length";
        tab.evaluate(looks).as_u64().filter(|count| *count > 0)
    });
    click_again(&tab);
    assert_eq!((shown_error(&tab), nonce(&tab)), (None, before.clone()));
    upstream.open_gate("open");
    wait_for_pictures(&tab, 2);
    tab.assert_text("Succeeded");
    assert_eq!(shown_error(&tab), None);
    assert_ne!(nonce(&tab), before, "the next click is a new request");
    assert_eq!((upstream.attempt_count(), gateway.final_records(1).len()), (1, 1));
    tab.close();
}

/// Lets the next request for images be sent, and its answer be lost when the test calls `cut`, as by a proxy that does not
/// wait so long.
fn lose_next_answer(tab: &Tab<'_>) {
    tab.evaluate(
        "(() => { const real = window.fetch; window.fetch = (path, options) => {
            if (path !== '/studio' || options?.method !== 'POST') return real(path, options);
            window.fetch = real; real(path, { ...options, signal: undefined });
            return new Promise((_, reject) => {
                window.cut = () => reject(new TypeError('the connection is cut')); }); }; })()",
    );
}

#[test]
fn a_request_whose_answer_is_lost_is_paid_for_once() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    set_up(&tab);
    // The first request makes its key, and its address is known all the same.
    tab.fill("Prompt", "a cube [[gate=first]]");
    let before = nonce(&tab);
    lose_next_answer(&tab);
    tab.click("button", "Make the image");
    upstream.wait_until("the request is sent", |attempts| attempts.len() == 1);
    tab.evaluate("window.cut()");
    click_again(&tab);
    assert_eq!(nonce(&tab), before);
    upstream.open_gate("first");
    wait_for_pictures(&tab, 1);
    assert_eq!((shown_error(&tab), upstream.attempt_count()), (None, 1));

    tab.fill("Prompt", "a cone [[gate=second]]");
    lose_next_answer(&tab);
    tab.click("button", "Make the image");
    upstream.wait_until("the request is sent", |attempts| attempts.len() == 2);
    tab.evaluate("window.cut()");
    click_again(&tab);
    upstream.open_gate("second");
    wait_for_pictures(&tab, 1);
    assert_eq!((shown_error(&tab), upstream.attempt_count()), (None, 2));
    assert_eq!(gateway.final_records(2).len(), 2);
    tab.close();
}

/// The cookies of a window.
fn cookies(tab: &Tab<'_>) -> std::collections::BTreeMap<String, String> {
    let text = |cookie: &Value, name: &str| cookie[name].as_str().unwrap_or_default().to_owned();
    tab.cookies().iter().map(|cookie| (text(cookie, "name"), text(cookie, "value"))).collect()
}

/// The form of the playground, filled in for a key.
#[track_caller]
pub(super) fn playground_form(visitor: &mut Visitor<'_>, prompt: &str) -> Form {
    visitor.form("/studio", "/studio").with(&[("prompt", prompt)])
}

#[test]
fn a_form_that_is_sent_twice_is_one_request() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let form = playground_form(&mut ada, "a fox");
    let first = ada.post("/studio", &form.fields);
    let again = ada.post("/studio", &form.fields);
    assert_eq!((first.status, again.status), (303, 303), "{}", first.text());
    assert_eq!(first.header("location"), again.header("location"));
    assert_eq!(gateway.final_records(1).len(), 1);
    assert_eq!(ada.get("/keys").text().matches("<bdi>Playground</bdi>").count(), 1, "one key was created");
}

#[test]
fn another_request_with_a_used_form_is_refused() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let form = playground_form(&mut ada, "a fox");
    assert_eq!(ada.post("/studio", &form.fields).status, 303);
    let answer = ada.post("/studio", &form.with(&[("prompt", "a hare")]).fields);
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(gateway.final_records(1).len(), 1);
}

#[test]
fn pictures_and_keys_belong_to_one_user() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    make_key(&mut ben, "bens");
    let form = playground_form(&mut ada, "a fox");
    let path = ada.post("/studio", &form.fields).header("location").expect("a path").to_owned();
    let picture = format!("{path}/0");
    assert_eq!(ada.get(&picture).status, 200);
    assert_eq!((ben.get(&path).status, ben.get(&picture).status), (404, 404));
    let mut stranger = Visitor::new(&gateway);
    assert_eq!((stranger.get(&picture).status, stranger.get("/studio").status), (303, 303));
    let mut elsewhere = Visitor::new(&gateway);
    drop(super::users::sign_in(&mut elsewhere, ADA, ADAS_PASSWORD));
    assert_eq!(elsewhere.get(&picture).status, 200, "another session of the same user");
    // A key of somebody else, also for an admin, and a form of somebody else.
    let bens_key = ben.form("/studio", "/studio").value("key").to_owned();
    let answer = ada.post("/studio", &playground_form(&mut ada.clone(), "a fox").with(&[("key", &bens_key)]).fields);
    assert_eq!(answer.status, 401, "{}", answer.text());
    let nonce = ada.form("/studio", "/studio").value("nonce").to_owned();
    let stolen = playground_form(&mut ben, "a fox").with(&[("nonce", &nonce)]);
    assert_eq!(ben.post("/studio", &stolen.fields).status, 422);
    assert_eq!(gateway.final_records(1).len(), 1);
}

#[test]
fn an_invalid_field_is_named_and_keeps_what_was_typed() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    for (field, value) in [("size", "1000x1000"), ("quality", "best"), ("n", "11"), ("model", "none")] {
        let form = playground_form(&mut ada, "a fox in the snow").with(&[(field, value)]);
        let answer = ada.post("/studio", &form.fields);
        let html = answer.text();
        assert_eq!(answer.status, 400, "{field}: {html}");
        assert!(html.contains(&format!("id=\"{field}-error\"")), "{field}: {html}");
        assert!(html.contains("a fox in the snow"), "{field}");
    }
    assert_eq!(gateway.records(), Vec::<Value>::new());
}

#[test]
fn the_page_of_the_playground_is_small_and_served_with_the_strict_policy() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let page = ada.get("/studio");
    let policy = page.header("content-security-policy").expect("a policy").to_owned();
    assert!(policy.contains("img-src 'self'") && policy.contains("connect-src 'self'"), "{policy}");
    let html = page.text();
    let assets: usize = html
        .split(['"', '#'])
        .filter(|text| text.starts_with("/assets/"))
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .map(|path| ada.get(path).body.len())
        .sum();
    let weight = html.len() + assets;
    assert!(weight < 150 * 1024, "{weight} bytes");
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    tab.close();
}
