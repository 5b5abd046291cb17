//! `imagate login` at a terminal: the token is typed unseen, and only a token that the gateway accepts is saved.

use super::{AdminMachine, FAILED, TOKEN, USAGE, open, url};
use crate::kit::{TerminalSession, answer_in_pseudo_terminal};

/// The number of the signal that Ctrl-C sends.
const INTERRUPT: i32 = 2;
const PROMPT: &str = "admin token (it is not shown):";

/// `login` at a terminal, as soon as it asks for the token.
#[track_caller]
fn prompted(desk: &AdminMachine, url: &str) -> TerminalSession {
    let session = TerminalSession::start(&["login", url, "--profile", "studio"], desk.0.path());
    session.wait_for(PROMPT);
    assert!(!session.has_echo(), "nothing that is typed from now on is shown");
    session
}

/// The files in the folder of the profiles, also hidden ones.
fn profile_files(desk: &AdminMachine) -> Vec<String> {
    let folder = desk.profile_file("studio").parent().expect("a folder").to_owned();
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect()
}

#[test]
fn a_token_is_typed_unseen_and_saved_for_its_owner_alone() {
    let (_upstream, gateway) = open();
    let (desk, url) = (AdminMachine::new(), url(&gateway));
    let session = prompted(&desk, &url);
    session.type_text(&format!("  {TOKEN} \n"));
    let end = session.end();
    assert_eq!((end.code, end.has_echo), (Some(0), true), "{end:?}");
    assert!(end.output.contains("saved in") && !end.output.contains(TOKEN), "{end:?}");
    assert_eq!(profile_files(&desk), ["studio.toml"]);
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(desk.profile_file("studio")).expect("the profile").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    desk.program(&["key", "list", "--profile", "studio"]).run().ok_stdout();
}

#[test]
fn an_empty_line_and_a_wrong_token_are_refused_and_nothing_is_saved() {
    let (_upstream, gateway) = open();
    let (desk, url) = (AdminMachine::new(), url(&gateway));
    for (typed, code, message) in [
        ("\n", USAGE, "the admin token is empty"),
        ("  \t \n", USAGE, "the admin token is empty"),
        // Ctrl-D ends the input.
        ("\u{4}", USAGE, "the admin token is empty"),
        ("sk-adm-wrong-0123456789\n", FAILED, "imagate token create"),
        ("größe\n", FAILED, "imagate token create"),
    ] {
        let session = prompted(&desk, &url);
        session.type_text(typed);
        let end = session.end();
        assert_eq!((end.code, end.has_echo), (code, true), "{typed:?}: {end:?}");
        assert!(end.output.contains(message) && !end.output.contains("wrong-0123"), "{typed:?}: {end:?}");
        assert_eq!(profile_files(&desk), [""; 0], "{typed:?}");
    }
}

#[test]
fn control_c_at_the_prompt_leaves_the_terminal_and_the_profile_as_they_were() {
    let (_upstream, gateway) = open();
    let (desk, url) = (AdminMachine::new(), url(&gateway));
    for saved_before in [false, true] {
        if saved_before {
            let session = prompted(&desk, &url);
            session.type_text(&format!("{TOKEN}\n"));
            assert_eq!(session.end().code, Some(0));
        }
        let before = std::fs::read_to_string(desk.profile_file("studio")).ok();
        let session = prompted(&desk, &url);
        session.type_text("sk-adm-half\u{3}");
        let end = session.end();
        assert_eq!((end.signal, end.has_echo), (Some(INTERRUPT), true), "{end:?}");
        assert!(!end.output.contains("sk-adm-half"), "{end:?}");
        assert_eq!(std::fs::read_to_string(desk.profile_file("studio")).ok(), before);
        assert_eq!(profile_files(&desk).len(), usize::from(saved_before));
    }
}

#[test]
fn a_deletion_names_the_gateway_before_it_asks() {
    let (_upstream, gateway) = open();
    let (desk, url) = (AdminMachine::new(), url(&gateway));
    gateway.run_command(&["price", "set", "drawn-1", "--from", "2026-01-01", "--per-image", "2"]).ok_stdout();
    gateway.run_command(&["group", "create", "team"]).ok_stdout();
    let made = gateway.make_key("old");
    for words in [
        &["key", "delete", made["id"].as_str().expect("an id")][..],
        &["group", "delete", "team"],
        &["token", "delete", "adm_1"],
        &["account", "delete", "drawn"],
        &["price", "delete", "drawn-1", "--from", "2026-01-01"],
    ] {
        let program = desk.program(words).env("IMAGATE_ADMIN_URL", &url).env("IMAGATE_ADMIN_TOKEN", TOKEN);
        let (code, output) = answer_in_pseudo_terminal(program, 200, "n\n");
        let output = String::from_utf8_lossy(&output).into_owned();
        let (name, question) = (output.find(&format!("gateway: {url}")), output.find("Delete the "));
        assert!(code == USAGE && name.is_some() && name < question, "{words:?}: {output}");
    }
    assert_eq!(gateway.run_command(&["price", "list", "--json"]).ok_stdout().matches("drawn-1\"").count(), 1);
}
