//! The console on two nodes: forms, one-time links, and the limits of refused sign-ins.

use std::thread;
use std::time::{Duration, Instant};

use super::NodePair;
use crate::kit::{FakeUpstream, Gateway, eventually};
use crate::pages::first_form::send_at_once;
use crate::pages::users::{
    ADA, ADAS_PASSWORD, BEN, invite, secret_in, setup_path, sign_in, sign_in_ada, watch_cookies,
};
use crate::pages::visitor::{Form, Visitor};

/// The form for a new key of this name.
fn key_form(visitor: &mut Visitor<'_>, name: &str) -> Form {
    visitor.form("/keys", "/keys").with(&[("name", name)])
}

/// Sends a form for a new key for the first time, and then again to each of these nodes.
#[track_caller]
fn check_used_once(visitor: &mut Visitor<'_>, form: &Form, gateways: &[&Gateway]) {
    let created = visitor.post("/keys", &form.fields);
    assert_eq!(created.status, 200, "{}", created.text());
    assert!(secret_in(&created.text()).is_some(), "the answer shows the secret");
    for gateway in gateways {
        let repeated = visitor.at_gateway(gateway).post("/keys", &form.fields);
        assert_eq!(repeated.status, 409, "{}", repeated.text());
        assert!(repeated.text().contains("href=\"/keys/key_"), "the page links to the key: {}", repeated.text());
    }
}

#[test]
fn a_form_of_one_node_is_accepted_once_by_all_nodes() {
    let upstream = FakeUpstream::start();
    let Some(mut nodes) = NodePair::open(&upstream, "") else { return };
    // The link of the node that started last is the valid one.
    let mut ada = sign_in_ada(&nodes.second);
    let form = key_form(&mut ada.at_gateway(&nodes.first), "of the first node");
    check_used_once(&mut ada, &form, &[&nodes.first, &nodes.second]);

    let (form, cookies) = (key_form(&mut ada, "of a killed node"), ada.cookies);
    nodes.second.kill();
    nodes.second.start();
    let mut ada = Visitor::with_cookies(&nodes.first, &cookies);
    check_used_once(&mut ada, &form, &[&nodes.second, &nodes.first]);
}

#[test]
fn the_first_form_of_a_new_user_makes_one_key_and_one_payment_on_two_nodes() {
    let upstream = FakeUpstream::start();
    let Some(nodes) = NodePair::open(&upstream, "") else { return };
    let mut ada = sign_in_ada(&nodes.second);
    for name in ["ben", "cora", "dora"] {
        let invitation = invite(&mut ada, name, "member");
        let mut member = Visitor::new(&nodes.first);
        let password = [("password", ADAS_PASSWORD), ("again", ADAS_PASSWORD)];
        assert_eq!(member.submit(&invitation, &invitation, &password).status, 303);
        watch_cookies(&nodes.first, &member.cookies);
        let form = member.form("/studio", "/studio").with(&[("prompt", "a fox")]);
        let before = upstream.attempt_count();
        let there = member.at_gateway(&nodes.second);
        let visitors = vec![member.clone(), there.clone(), member.clone(), there.clone(), member.clone()];
        let paths = send_at_once(visitors, &form);
        assert!(paths.iter().all(|path| *path == paths[0]), "{paths:?}");
        assert_eq!(upstream.attempt_count(), before + 1, "{name} pays once");
        assert_eq!(member.get("/keys").text().matches("<bdi>Playground</bdi>").count(), 1, "one key was created");
        for mut visitor in [member, there] {
            assert_eq!(visitor.get(&format!("{}/0", paths[0])).status, 200, "each node shows the picture");
        }
    }
}

#[test]
fn a_request_of_one_node_is_found_on_the_other_while_it_runs_and_afterwards() {
    let upstream = FakeUpstream::start();
    let Some(nodes) = NodePair::open(&upstream, "") else { return };
    let ada = sign_in_ada(&nodes.second);
    let (mut here, mut there) = (ada.at_gateway(&nodes.first), ada);
    let form = here.form("/studio", "/studio").with(&[("prompt", "a fox [[gate=open]]")]);
    let answer = here.post("/studio", &form.fields);
    let address = answer.header("location").expect("a path").to_owned();
    for visitor in [&mut here, &mut there] {
        let page = visitor.get(&address).text();
        assert!(page.contains("data-state=\"running\""), "{page}");
    }
    upstream.open_gate("open");
    for visitor in [&mut there, &mut here] {
        eventually("the picture is there", || (visitor.get(&format!("{address}/0")).status == 200).then_some(()));
        let page = visitor.get("/studio").text();
        let record = page.split("href=\"/records/").nth(1).and_then(|rest| rest.split('"').next()).expect("a record");
        assert_eq!(visitor.get(&format!("/records/{record}/images/0")).status, 200, "the record has it, too");
    }
    assert_eq!(upstream.attempt_count(), 1);
}

#[test]
fn a_form_is_accepted_once_after_a_restart() {
    let mut gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let used = key_form(&mut ada, "before");
    check_used_once(&mut ada, &used, &[]);
    let (open, cookies) = (key_form(&mut ada, "after"), ada.cookies);
    gateway.kill();
    gateway.start();
    let mut ada = Visitor::with_cookies(&gateway, &cookies);
    let repeated = ada.post("/keys", &used.fields);
    assert_eq!(repeated.status, 409, "{}", repeated.text());
    check_used_once(&mut ada, &open, &[&gateway]);
}

#[test]
fn a_form_whose_key_was_refused_can_be_sent_to_another_node() {
    let upstream = FakeUpstream::start();
    let Some(nodes) = NodePair::open(&upstream, "") else { return };
    let mut ada = sign_in_ada(&nodes.second);
    let form = key_form(&mut ada, "");
    let refused = ada.post("/keys", &form.fields);
    assert_eq!(refused.status, 422, "{}", refused.text());
    let form = form.with(&[("name", "with a name")]);
    check_used_once(&mut ada.at_gateway(&nodes.first), &form, &[&nodes.second]);
}

#[test]
fn a_one_time_link_works_once_on_two_nodes() {
    let upstream = FakeUpstream::start();
    let Some(nodes) = NodePair::open(&upstream, "") else { return };
    let path = setup_path(&nodes.second);
    let mut visitors = [Visitor::new(&nodes.first), Visitor::new(&nodes.second)];
    let winner = race(&mut visitors, &path, &[("name", ADA)]);
    let invitation = invite(&mut visitors[winner], BEN, "member");
    race(&mut [Visitor::new(&nodes.first), Visitor::new(&nodes.second)], &invitation, &[]);
    for node in [&nodes.first, &nodes.second] {
        for path in [&path, &invitation] {
            let late = Visitor::new(node).get(path);
            assert!([404, 410].contains(&late.status), "{late:?}");
        }
    }
}

/// Lets the visitors send the form of a link at once, each to its node, and returns the index of the only one who
/// succeeds.
#[track_caller]
fn race(visitors: &mut [Visitor<'_>; 2], path: &str, fields: &[(&str, &str)]) -> usize {
    let password = [("password", ADAS_PASSWORD), ("again", ADAS_PASSWORD)];
    let forms = visitors.each_mut().map(|visitor| visitor.form(path, path).with(&password).with(fields));
    let statuses: Vec<u16> = thread::scope(|scope| {
        let send = |(visitor, form): (&mut Visitor<'_>, &Form)| visitor.post(path, &form.fields).status;
        let threads: Vec<_> = visitors.iter_mut().zip(&forms).map(|pair| scope.spawn(move || send(pair))).collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    for visitor in visitors.iter() {
        watch_cookies(visitor.gateway, &visitor.cookies);
    }
    assert_eq!(statuses.iter().filter(|status| **status == 303).count(), 1, "{statuses:?}");
    statuses.iter().position(|status| *status == 303).expect("a winner")
}

/// The limit of a name at one address: five attempts at once, and then one in this time.
const PAIR_BURST: usize = 5;
const PAIR_INTERVAL: Duration = Duration::from_secs(30);

#[test]
fn refused_sign_ins_are_counted_on_both_nodes_together() {
    let upstream = FakeUpstream::start();
    let Some(nodes) = NodePair::open(&upstream, "") else { return };
    drop(sign_in_ada(&nodes.second));
    let begin = Instant::now();
    let statuses: Vec<u16> = thread::scope(|scope| {
        let attempt = |gateway| sign_in(&mut Visitor::new(gateway), ADA, "a wrong password").status;
        let threads: Vec<_> = [&nodes.first, &nodes.second]
            .into_iter()
            .cycle()
            .take(16)
            .map(|gateway| scope.spawn(move || attempt(gateway)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    let count = |status: u16| statuses.iter().filter(|found| **found == status).count();
    let intervals = usize::try_from(begin.elapsed().as_secs() / PAIR_INTERVAL.as_secs()).expect("a number");
    assert_eq!(count(422) + count(429), statuses.len(), "{statuses:?}");
    assert!((PAIR_BURST..=PAIR_BURST + intervals).contains(&count(422)), "{statuses:?} in {intervals} intervals");
}

#[test]
fn a_right_password_on_one_node_makes_room_on_the_other() {
    let upstream = FakeUpstream::start();
    let Some(nodes) = NodePair::open(&upstream, "") else { return };
    drop(sign_in_ada(&nodes.second));
    let attempt = |gateway, password| sign_in(&mut Visitor::new(gateway), ADA, password).status;
    for _ in 0..PAIR_BURST - 1 {
        assert_eq!(attempt(&nodes.first, "a wrong password"), 422);
    }
    assert_eq!(attempt(&nodes.second, ADAS_PASSWORD), 303);
    // Without the right password between them, one of these would be refused.
    for _ in 0..PAIR_BURST {
        assert_eq!(attempt(&nodes.second, "a wrong password"), 422);
    }
}
