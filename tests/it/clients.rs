//! Real, unmodified clients as callers. `tests/clients/` has the scripts, called tours, which call the gateway and
//! check its answers. This module starts two gateways for each tour, makes the files for edits, and checks the ledger
//! of the upstream after the tour.
//!
//! `cargo xtask tours` runs the tours in [`kept`], which install many packages or take long.

mod broken_events;
mod early_answers;
mod fuzz;
pub(crate) mod install;
mod kept;
mod reused;

use std::collections::BTreeMap;
use std::process::Command;

use tempfile::TempDir;

use crate::kit::{Account, FakeUpstream, Gateway, ModelStep, RecordingProxy, image_specimen};
use install::{node, python, script};

/// The files that the tours edit. `mask.png` is a mask for `first.png`; `opaque.png` and `small.png` are no masks for
/// it.
const PICTURES: [(&str, &str); 6] = [
    ("first.png", "png 96x64"),
    ("second.jpeg", "jpeg 80x80"),
    ("third.webp", "webp 64x96"),
    ("mask.png", "png alpha 96x64"),
    ("opaque.png", "png 96x64"),
    ("small.png", "png alpha 64x64"),
];

/// Groups with an account of their own, for calls that put their account into cooldown.
const COOLDOWN_GROUPS: [&str; 3] = ["RESTING1", "RESTING2", "RESTING3"];

/// The protocol of the accounts of the scripted gateway.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Images,
    Responses,
}

fn scripted(upstream: &FakeUpstream, protocol: Protocol) -> Gateway {
    let groups: String = COOLDOWN_GROUPS.iter().map(|name| format!("[[groups]]\nname = \"{name}\"\n")).collect();
    let account = |name: &str| match protocol {
        Protocol::Images => Account::for_upstream(name, upstream),
        Protocol::Responses => Account::for_upstream(name, upstream).with_responses_protocol(),
    };
    let mut accounts = vec![account("only")];
    accounts.extend(COOLDOWN_GROUPS.iter().map(|name| account(name).with_line(&format!("groups = [\"{name}\"]"))));
    Gateway::with(&groups, &accounts)
}

fn pictures() -> TempDir {
    let folder = TempDir::new().expect("a directory");
    for (name, kind) in PICTURES {
        std::fs::write(folder.path().join(name), &*image_specimen(kind)).expect("a picture");
    }
    folder
}

/// The ways in which a tour makes its clients: a new client for each call, or one client for all calls, with one pool
/// of connections.
const CLIENTS: [&str; 2] = ["fresh", "one"];

/// The number of attempts for each `user` of a call, for each entry of [`CLIENTS`].
struct AttemptCounts([BTreeMap<String, usize>; CLIENTS.len()]);

/// Runs a tour with each entry of [`CLIENTS`]. Panics with its output if a check fails.
#[track_caller]
fn tour(command: &mut Command) -> AttemptCounts {
    tour_with(Protocol::Images, command)
}

/// Like [`tour`], but every account has the responses protocol.
#[track_caller]
fn tour_with_responses(command: &mut Command) -> AttemptCounts {
    tour_with(Protocol::Responses, command)
}

#[track_caller]
fn tour_with(protocol: Protocol, command: &mut Command) -> AttemptCounts {
    AttemptCounts(CLIENTS.map(|clients| attempts_of(protocol, command.env("CLIENTS", clients))))
}

#[track_caller]
fn attempts_of(protocol: Protocol, command: &mut Command) -> BTreeMap<String, usize> {
    let upstream = FakeUpstream::start();
    upstream.set_conversation(&[ModelStep::Draws]);
    let (simulated, scripted) = (Gateway::simulated(), scripted(&upstream, protocol));
    let (proxy, pictures) = (RecordingProxy::in_front_of(scripted.address()), pictures());
    for name in ["OPENAI_API_KEY", "OPENAI_BASE_URL"] {
        command.env_remove(name);
    }
    for name in ["OPENAI_ORG_ID", "OPENAI_PROJECT_ID"] {
        command.env(name, "caller-canary");
    }
    for (prefix, gateway, base_url) in
        [("SIMULATED", &simulated, simulated.base_url()), ("SCRIPTED", &scripted, proxy.base_url())]
    {
        command.env(format!("{prefix}_BASE_URL"), base_url).env(format!("{prefix}_API_KEY"), gateway.secret());
    }
    for group in COOLDOWN_GROUPS {
        let key = scripted.run_command(&["key", "create", "--name", group, "--group", group, "--json"]).json();
        command.env(format!("{group}_BASE_URL"), proxy.base_url());
        command.env(format!("{group}_API_KEY"), key["secret"].as_str().expect("a secret"));
    }
    command.env("PICTURES", pictures.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().expect("the tour starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}");
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    proxy.check_nothing_changed_or_leaked(&upstream.received_attempts(), &[scripted.secret()]);
    let mut cost = BTreeMap::new();
    for attempt in upstream.received_attempts() {
        *cost.entry(attempt.user()).or_default() += 1;
    }
    cost
}

impl AttemptCounts {
    /// This many calls went upstream, with one attempt each. The calls of the users in `repeated` may have up to four:
    /// their clients retry failures after which no image can have been made.
    #[track_caller]
    fn check_one_attempt_each(&self, calls: usize, repeated: &[&str]) {
        for (clients, cost) in CLIENTS.iter().zip(&self.0) {
            assert_eq!(cost.len(), calls, "{clients}: {cost:?}");
            let max_attempts = |user: &String| if repeated.contains(&user.as_str()) { 4 } else { 1 };
            let excess: Vec<_> = cost.iter().filter(|(user, count)| **count > max_attempts(user)).collect();
            assert!(excess.is_empty(), "{clients}: more than one attempt for one call of the client: {excess:?}");
        }
    }
}

#[test]
fn the_newest_python_release_accepts_every_answer() {
    let interpreter = python("IMAGATE_PY_NEWEST", "openai-newest", "openai");
    tour(Command::new(interpreter).arg(script("openai_tour.py"))).check_one_attempt_each(20, &[]);
}

#[test]
fn the_newest_2x_python_release_accepts_every_answer() {
    let interpreter = python("IMAGATE_PY_2", "openai-2", "openai<3");
    tour(Command::new(interpreter).arg(script("openai_tour.py"))).check_one_attempt_each(20, &[]);
}

#[test]
fn the_newest_node_release_accepts_every_answer() {
    let folder = node("IMAGATE_NODE_OPENAI", "openai", &["openai"], &["kit.mjs", "openai_tour.mjs"]);
    let cost = tour(Command::new("node").arg("openai_tour.mjs").current_dir(folder));
    cost.check_one_attempt_each(22, &["key-of-the-account", "plain-failure", "throttled"]);
}

#[test]
fn the_newest_python_release_accepts_every_response() {
    let interpreter = python("IMAGATE_PY_NEWEST", "openai-newest", "openai");
    tour_with_responses(Command::new(interpreter).arg(script("responses_tour.py"))).check_one_attempt_each(11, &[]);
}

#[test]
fn the_newest_2x_python_release_accepts_every_response() {
    let interpreter = python("IMAGATE_PY_2", "openai-2", "openai<3");
    tour_with_responses(Command::new(interpreter).arg(script("responses_tour.py"))).check_one_attempt_each(11, &[]);
}

#[test]
fn the_newest_node_release_accepts_every_response() {
    let folder = node("IMAGATE_NODE_OPENAI", "openai", &["openai"], &["kit.mjs", "responses_tour.mjs"]);
    tour_with_responses(Command::new("node").arg("responses_tour.mjs").current_dir(folder))
        .check_one_attempt_each(11, &[]);
}

#[test]
fn langchain_and_the_agents_sdk_accept_every_response() {
    let interpreter = python("IMAGATE_PY_AGENTS", "agents", "langchain-openai openai-agents");
    tour_with_responses(Command::new(interpreter).arg(script("agents_tour.py"))).check_one_attempt_each(8, &[]);
}

#[test]
fn the_newest_python_release_accepts_images_out_of_responses() {
    let interpreter = python("IMAGATE_PY_NEWEST", "openai-newest", "openai");
    tour_with_responses(Command::new(interpreter).arg(script("openai_tour.py"))).check_one_attempt_each(20, &[]);
}

#[test]
fn the_newest_2x_python_release_accepts_images_out_of_responses() {
    let interpreter = python("IMAGATE_PY_2", "openai-2", "openai<3");
    tour_with_responses(Command::new(interpreter).arg(script("openai_tour.py"))).check_one_attempt_each(20, &[]);
}

#[test]
fn the_newest_node_release_accepts_images_out_of_responses() {
    let folder = node("IMAGATE_NODE_OPENAI", "openai", &["openai"], &["kit.mjs", "openai_tour.mjs"]);
    let cost = tour_with_responses(Command::new("node").arg("openai_tour.mjs").current_dir(folder));
    cost.check_one_attempt_each(22, &["key-of-the-account", "plain-failure", "throttled"]);
}

#[test]
fn curl_accepts_images_out_of_responses() {
    tour_with_responses(Command::new("sh").arg(script("curl_tour.sh"))).check_one_attempt_each(3, &[]);
}

#[test]
fn curl_accepts_every_answer() {
    tour(Command::new("sh").arg(script("curl_tour.sh"))).check_one_attempt_each(3, &[]);
}
