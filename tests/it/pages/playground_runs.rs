//! The address of a request of the playground: it is known before the request is sent, and shows the request to its user
//! in every session, while it runs and as long as its answer is kept.

use std::thread;

use super::playground::playground_form;
use super::users::{ADA, ADAS_PASSWORD, invite, make_key, sign_in, sign_in_ada, sign_in_ben};
use super::visitor::{Form, Visitor, post};
use crate::kit::{self, Account, Answer, Call, FakeUpstream, Gateway, alpha_png, eventually, request};

/// The page of a request that is in progress loads itself again without a script.
const LOOKS_AGAIN: &str = "<noscript><meta http-equiv=\"refresh\"";

/// The address that the page has as soon as the form is sent.
fn address_of(form: &Form) -> String {
    format!("/studio/{}/{}", form.value("key"), form.value("nonce"))
}

/// Another browser in which Ada signs in.
#[track_caller]
fn sign_in_elsewhere(gateway: &Gateway) -> Visitor<'_> {
    let mut elsewhere = Visitor::new(gateway);
    assert_eq!(sign_in(&mut elsewhere, ADA, ADAS_PASSWORD).status, 303);
    elsewhere
}

/// Sends a form as the script does, and leaves when the upstream has the request.
#[track_caller]
fn send_and_leave(visitor: &Visitor<'_>, call: Call, upstream: &FakeUpstream) {
    let before = upstream.attempt_count();
    let cookies: Vec<String> = visitor.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let call = call.header("origin", &visitor.origin()).header("cookie", &cookies.join("; "));
    let call = call.header("accept", "text/event-stream");
    let connection = call.dispatch(visitor.gateway.address()).expect("a connection");
    upstream.wait_until("the request is sent", |attempts| attempts.len() > before);
    drop(connection);
}

/// The paths of the records in the list of recent requests.
fn recent(visitor: &mut Visitor<'_>) -> Vec<String> {
    let html = visitor.get("/studio").text();
    let list = html.split("id=\"recent-items\"").nth(1).and_then(|rest| rest.split("</ul>").next()).expect("a list");
    let links = list.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    links.map(str::to_owned).collect()
}

/// Checks that the user finds the picture at its address, on the page of its record, and in the list.
#[track_caller]
fn check_found(visitor: &mut Visitor<'_>, address: &str) {
    let page = eventually("the picture is on the page", || {
        let page = visitor.get(address);
        (page.status == 200 && page.text().contains("<figure><img")).then(|| page.text())
    });
    assert!(page.contains("data-state=\"ended\"") && !page.contains(LOOKS_AGAIN), "{page}");
    let picture = page.split("<figure><img src=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a picture");
    assert_eq!(visitor.get(picture).header("content-type"), Some("image/png"));
    let record = recent(visitor).first().expect("a recent request").clone();
    let page = visitor.get(&record);
    assert!(page.text().contains(&format!("<figure><img src=\"{record}/images/0\"")), "{}", page.text());
    assert_eq!(page.header("refresh"), None);
    let picture = visitor.get(&format!("{record}/images/0"));
    assert_eq!((picture.status, picture.header("content-type")), (200, Some("image/png")));
    assert_eq!(visitor.get(&format!("{record}/images/1")).status, 404);
}

#[test]
fn the_first_request_of_a_new_user_is_found_while_it_runs_and_afterwards_in_every_browser() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let mut ada = sign_in_ada(&gateway);
    let form = playground_form(&mut ada, "a cube [[gate=open]]");
    let address = address_of(&form);
    assert!(address.starts_with("/studio/new/"), "{address}");
    assert!(ada.get(&address).text().contains("data-state=\"unknown\""), "it is not sent yet");
    send_and_leave(&ada, post("/studio", &form.fields), &upstream);
    for mut visitor in [ada.clone(), sign_in_elsewhere(&gateway)] {
        let page = visitor.get(&address).text();
        assert!(page.contains("data-state=\"running\"") && page.contains(LOOKS_AGAIN), "{page}");
        let record = recent(&mut visitor).first().expect("a recent request").clone();
        assert_eq!(visitor.get(&record).header("refresh"), Some("5"));
    }
    upstream.open_gate("open");
    for mut visitor in [ada, sign_in_elsewhere(&gateway)] {
        check_found(&mut visitor, &address);
    }
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn an_edit_is_found_after_its_browser_left() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let mut ada = sign_in_ada(&gateway);
    make_key(&mut ada, "mine");
    let form = playground_form(&mut ada, "a cube [[gate=open]]");
    let address = address_of(&form);
    let fields = form.fields.iter().filter(|(name, _)| name != "image" && name != "mask");
    let edit = fields.fold(kit::Form::new(), |edit, (name, value)| edit.text(name, value));
    send_and_leave(&ada, edit.file("image", &alpha_png(64, 64)).call_to("/studio"), &upstream);
    upstream.open_gate("open");
    check_found(&mut sign_in_elsewhere(&gateway), &address);
    assert_eq!(gateway.final_records(1)[0]["operation"], "edit_image");
}

#[test]
fn a_page_without_a_script_gets_the_address_of_a_request_that_takes_long() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let mut ada = sign_in_ada(&gateway);
    let form = playground_form(&mut ada, "a cube [[gate=open]]");
    let answer = ada.post("/studio", &form.fields);
    assert_eq!(answer.status, 303, "{}", answer.text());
    let address = answer.header("location").expect("a path").to_owned();
    assert!(ada.get(&address).text().contains(LOOKS_AGAIN));
    upstream.open_gate("open");
    check_found(&mut ada, &address);
    assert_eq!(upstream.attempt_count(), 1);
}

/// Checks that the request of Ada is nobody else's.
#[track_caller]
fn check_hidden(visitor: &mut Visitor<'_>, address: &str, record: &str, record_status: u16) {
    for path in [address.to_owned(), format!("{address}/0"), format!("{record}/images/0")] {
        assert_eq!(visitor.get(&path).status, 404, "{path}");
    }
    let page = visitor.get(record);
    assert_eq!(page.status, record_status);
    assert!(!page.text().contains("/images/0"), "{}", page.text());
    assert_eq!(recent(visitor), Vec::<String>::new());
}

#[test]
fn pictures_are_shown_to_their_user_only() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    let invitation = invite(&mut ada, "cora", "admin");
    let mut cora = Visitor::new(&gateway);
    let password = [("password", ADAS_PASSWORD), ("again", ADAS_PASSWORD)];
    assert_eq!(cora.submit(&invitation, &invitation, &password).status, 303);
    let form = playground_form(&mut ada, "a fox");
    let address = ada.post("/studio", &form.fields).header("location").expect("a path").to_owned();
    check_found(&mut ada, &address);
    let record = recent(&mut ada).remove(0);
    check_hidden(&mut ben, &address, &record, 404);
    check_hidden(&mut cora, &address, &record, 200);
    // A visitor is led to the sign-in, and from there to the request.
    let answer = Visitor::new(&gateway).get(&address);
    assert_eq!(answer.status, 303);
    assert!(answer.header("location").is_some_and(|path| path.starts_with("/sign-in?next=%2Fstudio%2F")));
    for forged in [address.replace('.', "x"), format!("{address}x"), "/studio/new/a.b.c".to_owned()] {
        assert_eq!(ada.get(&forged).status, 404, "{forged}");
    }
}

#[test]
fn a_request_that_was_not_sent_or_failed_or_was_cut_off_says_so_at_its_address() {
    let upstream = FakeUpstream::start();
    let mut gateway = Gateway::with_upstream(&upstream);
    let mut ada = sign_in_ada(&gateway);
    make_key(&mut ada, "mine");
    let unsent = address_of(&playground_form(&mut ada, "a fox"));
    let page = ada.get(&unsent).text();
    assert!(page.contains("nothing was paid") && page.contains("data-state=\"unknown\""), "{page}");
    for (prompt, state, text) in [
        ("a cube [[status=500]]", "unknown", "nothing was paid"),
        ("a cube [[status=400 body=policy]]", "ended", "Content refused"),
    ] {
        let failed = playground_form(&mut ada, prompt);
        assert_eq!(ada.post("/studio", &failed.fields).status, 303);
        let page = ada.get(&address_of(&failed)).text();
        assert!(page.contains(&format!("data-state=\"{state}\"")) && page.contains(text), "{prompt}: {page}");
        assert!(!page.contains("<figure>"), "{prompt}");
    }
    let cut = playground_form(&mut ada, "a cube [[gate=never]]");
    send_and_leave(&ada, post("/studio", &cut.fields), &upstream);
    let cookies = ada.cookies;
    gateway.kill();
    gateway.start();
    let page = Visitor::with_cookies(&gateway, &cookies).get(&address_of(&cut)).text();
    assert!(page.contains("data-state=\"ended\"") && page.contains("Interrupted"), "{page}");
}

/// Sends a request of the API with the user's key.
fn draw(gateway: &Gateway, secret: &str, idempotency_key: Option<&str>) -> Answer {
    let call = Call::generation().json(&request(serde_json::json!({"prompt": "a cube"}))).key(secret);
    let call = idempotency_key.into_iter().fold(call, |call, key| call.header("idempotency-key", key));
    call.send(gateway.address())
}

#[test]
fn a_picture_of_the_api_is_on_the_page_of_its_record_as_long_as_its_answer_is_kept() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("only", &upstream)]);
    let mut ada = sign_in_ada(&gateway);
    let (key, secret) = make_key(&mut ada, "shell");
    draw(&gateway, &secret, None).ok_json();
    assert_eq!(recent(&mut ada), Vec::<String>::new(), "its caller has the picture, and nothing is kept");
    thread::scope(|scope| {
        for number in 0..10 {
            let (gateway, secret) = (&gateway, &secret);
            scope.spawn(move || draw(gateway, secret, Some(&format!("order-{number}"))).ok_json());
        }
    });
    let found = recent(&mut ada);
    assert_eq!(found.len(), 8, "the list is short");
    for record in &found {
        assert_eq!(ada.get(&format!("{record}/images/0")).status, 200, "{record}");
    }
    // A key that cannot be used any more has made the pictures all the same.
    assert_eq!(ada.submit(&key, &format!("{key}/disable"), &[]).status, 303);
    assert!(ada.get(&found[0]).text().contains("<figure><img"));
    assert_eq!(recent(&mut ada), found);
}

#[test]
fn the_address_of_a_request_whose_key_was_disabled_leads_to_the_list() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let (key, _) = make_key(&mut ada, "mine");
    let form = playground_form(&mut ada, "a fox");
    assert_eq!(ada.post("/studio", &form.fields).status, 303);
    assert_eq!(ada.submit(&key, &format!("{key}/disable"), &[]).status, 303);
    assert_eq!(ada.get(&address_of(&form)).header("location"), Some("/studio"));
    let record = recent(&mut ada).remove(0);
    assert_eq!(ada.get(&format!("{record}/images/0")).status, 200);
}
