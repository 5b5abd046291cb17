//! Real clients, unchanged, as callers: the checks stand in `tests/clients/`; here are the two gateways they talk to, the
//! files they edit, and the judgement of the ledger on what they did.
//!
//! The tours in [`kept`] need much to be installed, or take long: `cargo xtask tours` runs them.

mod fuzz;
pub(crate) mod install;
mod kept;
mod reused;

use std::collections::BTreeMap;
use std::process::Command;

use tempfile::TempDir;

use crate::kit::{Account, FakeUpstream, Gateway, RecordingProxy, Turn, image_specimen};
use install::{node, python, script};

/// The files that the tours edit: `mask.png` fits `first.png`, the last two do not.
const PICTURES: [(&str, &str); 6] = [
    ("first.png", "png 96x64"),
    ("second.jpeg", "jpeg 80x80"),
    ("third.webp", "webp 64x96"),
    ("mask.png", "png alpha 96x64"),
    ("opaque.png", "png 96x64"),
    ("small.png", "png alpha 64x64"),
];

/// Groups with an account of their own: one that is told to rest is of no use to the next call.
const RESTING: [&str; 3] = ["RESTING1", "RESTING2", "RESTING3"];

/// What the accounts of the scripted gateway speak.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speak {
    Images,
    Responses,
}

fn scripted(upstream: &FakeUpstream, speak: Speak) -> Gateway {
    let groups: String = RESTING.iter().map(|name| format!("[[groups]]\nname = \"{name}\"\n")).collect();
    let account = |name: &str| match speak {
        Speak::Images => Account::for_upstream(name, upstream),
        Speak::Responses => Account::for_upstream(name, upstream).with_responses_protocol(),
    };
    let mut accounts = vec![account("only")];
    accounts.extend(RESTING.iter().map(|name| account(name).with_line(&format!("groups = [\"{name}\"]"))));
    Gateway::with(&groups, &accounts)
}

fn pictures() -> TempDir {
    let folder = TempDir::new().expect("a directory");
    for (name, kind) in PICTURES {
        std::fs::write(folder.path().join(name), &*image_specimen(kind)).expect("a picture");
    }
    folder
}

/// The ways in which a tour makes its clients: a fresh one for each call, or one for all calls, over one pool of
/// connections.
const CLIENTS: [&str; 2] = ["fresh", "one"];

/// The attempts that a tour cost in each way, by the `user` of the call.
struct Cost([BTreeMap<String, usize>; CLIENTS.len()]);

/// Runs a tour with each kind of clients; panics with everything it printed when a check failed.
#[track_caller]
fn tour(command: &mut Command) -> Cost {
    tour_before(Speak::Images, command)
}

/// The same where every account speaks `/responses` only.
#[track_caller]
fn tour_over(command: &mut Command) -> Cost {
    tour_before(Speak::Responses, command)
}

#[track_caller]
fn tour_before(speak: Speak, command: &mut Command) -> Cost {
    Cost(CLIENTS.map(|clients| attempts_of(speak, command.env("CLIENTS", clients))))
}

#[track_caller]
fn attempts_of(speak: Speak, command: &mut Command) -> BTreeMap<String, usize> {
    let upstream = FakeUpstream::start();
    upstream.set_conversation(&[Turn::Draws]);
    let (simulated, scripted) = (Gateway::simulated(), scripted(&upstream, speak));
    let (tap, pictures) = (RecordingProxy::in_front_of(scripted.address()), pictures());
    for name in ["OPENAI_API_KEY", "OPENAI_BASE_URL"] {
        command.env_remove(name);
    }
    for name in ["OPENAI_ORG_ID", "OPENAI_PROJECT_ID"] {
        command.env(name, "caller-canary");
    }
    for (which, gateway, base_url) in
        [("SIMULATED", &simulated, simulated.base_url()), ("SCRIPTED", &scripted, tap.base_url())]
    {
        command.env(format!("{which}_BASE_URL"), base_url).env(format!("{which}_API_KEY"), gateway.secret());
    }
    for which in RESTING {
        let key = scripted.run_command(&["key", "create", "--name", which, "--group", which, "--json"]).json();
        command.env(format!("{which}_BASE_URL"), tap.base_url());
        command.env(format!("{which}_API_KEY"), key["secret"].as_str().expect("a secret"));
    }
    command.env("PICTURES", pictures.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().expect("the tour starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}");
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    tap.nothing_changed_or_leaked(&upstream.ledger(), &[scripted.secret()]);
    let mut cost = BTreeMap::new();
    for attempt in upstream.ledger() {
        *cost.entry(attempt.user()).or_default() += 1;
    }
    cost
}

impl Cost {
    /// So many calls went upstream, and each was paid once; those named were repeated by the client, as it may where
    /// nothing can have been made.
    #[track_caller]
    fn is_one_attempt_each(&self, calls: usize, repeated: &[&str]) {
        for (clients, cost) in CLIENTS.iter().zip(&self.0) {
            assert_eq!(cost.len(), calls, "{clients}: {cost:?}");
            let most = |user: &String| if repeated.contains(&user.as_str()) { 4 } else { 1 };
            let excess: Vec<_> = cost.iter().filter(|(user, count)| **count > most(user)).collect();
            assert!(excess.is_empty(), "{clients}: more than one attempt for one call of the client: {excess:?}");
        }
    }
}

#[test]
fn the_newest_python_release_is_content_with_every_answer() {
    let interpreter = python("IMAGATE_PY_NEWEST", "openai-newest", "openai");
    tour(Command::new(interpreter).arg(script("openai_tour.py"))).is_one_attempt_each(20, &[]);
}

#[test]
fn the_newest_2x_python_release_is_content_with_every_answer() {
    let interpreter = python("IMAGATE_PY_2", "openai-2", "openai<3");
    tour(Command::new(interpreter).arg(script("openai_tour.py"))).is_one_attempt_each(20, &[]);
}

#[test]
fn the_newest_node_release_is_content_with_every_answer() {
    let place = node("IMAGATE_NODE_OPENAI", "openai", &["openai"], &["kit.mjs", "openai_tour.mjs"]);
    let cost = tour(Command::new("node").arg("openai_tour.mjs").current_dir(place));
    cost.is_one_attempt_each(22, &["key-of-the-account", "plain-failure", "throttled"]);
}

#[test]
fn the_newest_python_release_is_content_with_every_response() {
    let interpreter = python("IMAGATE_PY_NEWEST", "openai-newest", "openai");
    tour_over(Command::new(interpreter).arg(script("responses_tour.py"))).is_one_attempt_each(11, &[]);
}

#[test]
fn the_newest_2x_python_release_is_content_with_every_response() {
    let interpreter = python("IMAGATE_PY_2", "openai-2", "openai<3");
    tour_over(Command::new(interpreter).arg(script("responses_tour.py"))).is_one_attempt_each(11, &[]);
}

#[test]
fn the_newest_node_release_is_content_with_every_response() {
    let place = node("IMAGATE_NODE_OPENAI", "openai", &["openai"], &["kit.mjs", "responses_tour.mjs"]);
    tour_over(Command::new("node").arg("responses_tour.mjs").current_dir(place)).is_one_attempt_each(11, &[]);
}

#[test]
fn langchain_and_the_agents_sdk_are_content_with_every_response() {
    let interpreter = python("IMAGATE_PY_AGENTS", "agents", "langchain-openai openai-agents");
    tour_over(Command::new(interpreter).arg(script("agents_tour.py"))).is_one_attempt_each(8, &[]);
}

#[test]
fn the_newest_python_release_is_content_with_images_out_of_responses() {
    let interpreter = python("IMAGATE_PY_NEWEST", "openai-newest", "openai");
    tour_over(Command::new(interpreter).arg(script("openai_tour.py"))).is_one_attempt_each(20, &[]);
}

#[test]
fn the_newest_2x_python_release_is_content_with_images_out_of_responses() {
    let interpreter = python("IMAGATE_PY_2", "openai-2", "openai<3");
    tour_over(Command::new(interpreter).arg(script("openai_tour.py"))).is_one_attempt_each(20, &[]);
}

#[test]
fn the_newest_node_release_is_content_with_images_out_of_responses() {
    let place = node("IMAGATE_NODE_OPENAI", "openai", &["openai"], &["kit.mjs", "openai_tour.mjs"]);
    let cost = tour_over(Command::new("node").arg("openai_tour.mjs").current_dir(place));
    cost.is_one_attempt_each(22, &["key-of-the-account", "plain-failure", "throttled"]);
}

#[test]
fn curl_is_content_with_images_out_of_responses() {
    tour_over(Command::new("sh").arg(script("curl_tour.sh"))).is_one_attempt_each(3, &[]);
}

#[test]
fn curl_is_content_with_every_answer() {
    tour(Command::new("sh").arg(script("curl_tour.sh"))).is_one_attempt_each(3, &[]);
}
