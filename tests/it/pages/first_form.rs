//! The first form of the playground that a new user sends: it makes one key and one payment, however often it is sent.

use super::playground::playground_form;
use super::users::sign_in_ada;
use super::visitor::{Form, Visitor, post};
use crate::kit::{FakeUpstream, Gateway};

/// Sends the same form at once to the gateways of these visitors, and returns the paths to which the answers lead.
pub(crate) fn send_at_once(visitors: Vec<Visitor<'_>>, form: &Form) -> Vec<String> {
    std::thread::scope(|scope| {
        let send = |mut visitor: Visitor<'_>| visitor.post("/studio", &form.fields);
        let threads: Vec<_> = visitors.into_iter().map(|visitor| scope.spawn(move || send(visitor))).collect();
        let answers = threads.into_iter().map(|thread| thread.join().expect("an answer"));
        answers
            .map(|answer| {
                assert_eq!(answer.status, 303, "{}", answer.text());
                answer.header("location").expect("a path").to_owned()
            })
            .collect()
    })
}

#[test]
fn the_first_form_of_a_new_user_that_is_sent_five_times_at_once_makes_one_key_and_one_payment() {
    for _ in 0..5 {
        let upstream = FakeUpstream::start();
        let gateway = Gateway::with_upstream(&upstream);
        let mut ada = sign_in_ada(&gateway);
        let form = playground_form(&mut ada, "a fox");
        let paths = send_at_once(vec![ada.clone(); 5], &form);
        assert!(paths.iter().all(|path| *path == paths[0]), "{paths:?}");
        assert_eq!(upstream.attempt_count(), 1);
        assert_eq!(ada.get("/keys").text().matches("<bdi>Playground</bdi>").count(), 1, "one key was created");
        assert_eq!(ada.get(&format!("{}/0", paths[0])).status, 200);
    }
}

/// A browser drops the first of two requests that a double click sends.
#[test]
fn first_forms_whose_browser_leaves_at_once_make_the_key_and_the_payment_of_the_last_one() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with_upstream(&upstream);
    let mut ada = sign_in_ada(&gateway);
    let form = playground_form(&mut ada, "a fox");
    for _ in 0..3 {
        let origin = ada.origin();
        let call = post("/studio", &form.fields).header("origin", &origin);
        let cookies: Vec<String> = ada.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        drop(call.header("cookie", &cookies.join("; ")).dispatch(gateway.address()).expect("a connection"));
    }
    let paths = send_at_once(vec![ada.clone()], &form);
    assert_eq!((paths.len(), upstream.attempt_count()), (1, 1));
    assert_eq!(ada.get("/keys").text().matches("<bdi>Playground</bdi>").count(), 1, "one key was created");
}
