//! Sessions of the commands as a person sees them: in terminals of 80 and 140 columns, with colors and without, and
//! in pipes, compared with the files in `tests/golden/terminal`.
//!
//! `IMAGATE_BLESS=1 cargo test --features cli --test it -- terminal_sessions` writes the files again; then read them.
//! Ids, times and ports are replaced, with texts of the same length where they stand in columns.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use regex::Regex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{
    CommandOutput, Program, Server, TEST_TIMEOUT, answer_in_pseudo_terminal, ends_within, env_setting, eventually,
    piped_text, run_in_pseudo_terminal, run_in_terminal, signal,
};

/// The commands of a session. Everything that fails here has an error that says what to do.
const COMMANDS: &[&[&str]] = &[
    &["generate", "a fox in the snow", "--size", "1024x1024", "--quality", "low", "-o", "fox.png"],
    &["generate", "a fox in the snow", "-o", "fox.png"],
    &["generate", "a boat", "--stream", "--partials", "2", "--size", "1024x1024", "-o", "boat.jpg"],
    &["generate", "a fox", "--size", "1000x1000"],
    &["generate", "a fox", "--estimate", "--size", "1024x1024"],
    &["generate", "a fox", "--base-url", "http://127.0.0.1:1/v1", "--api-key", "sk-img-none"],
    &["edit", "a red hat", "--image", "fox.png", "--size", "1024x1024", "-o", "hat.png"],
    &["edit", "a red hat", "--image", "none.png"],
    &["usage"],
    &["usage", "--cost"],
    &["usage", "--by", "key"],
    &["usage", "--by", "model", "--cost"],
    &["usage", "--state", "failed"],
    &["key", "create", "--name", "灯台の絵を描くためのとても長い名前の鍵", "--user", "ada", "--expires", "29d"],
    &["key", "list"],
    &["key", "disable", "key_unknown"],
    &["user", "list"],
    &["token", "list"],
    &["group", "list"],
    &["audit", "--action", "key"],
    &["limits"],
    &["account", "list"],
    &["account", "explain"],
    &["account", "test", "unknown"],
    // After the commands with counts: refusals are counted some time later.
    &["generate", "a fox", "--api-key", "sk-img-unknown"],
    &["batch", "requests.jsonl", "-o", "images", "--concurrency", "1"],
    &["batch", "requests.jsonl", "-o", "images", "--concurrency", "1"],
    &["skills", "new", "image-generation", "--description", "Makes images."],
    &[
        "skills",
        "build",
        "--repository",
        "https://github.com/example/skills",
        "--git-url",
        "https://github.com/example/skills.git",
        "--raw-base-url",
        "https://raw.githubusercontent.com/example/skills/main",
        "--branch",
        "main",
    ],
    &["skills", "list"],
    &["skills", "validate"],
    &["skills", "explain", "M001"],
    &["doctor"],
    &["doctor", "--service"],
    &["doctor", "--base-url", "http://127.0.0.1:1/v1", "--api-key", "sk-img-none"],
    &["config", "check"],
];

/// An installation with a server, whose commands need no options.
struct Installation {
    home: TempDir,
    server: Server,
    secret: String,
}

// === impl Installation ===

impl Installation {
    fn start() -> Self {
        let home = TempDir::new().expect("a directory");
        let accounts = "[[accounts]]\nname = \"drawing\"\nkind = \"simulator\"\n\
                        [[accounts]]\nname = \"second-account-with-a-long-name\"\nkind = \"simulator\"\npriority = -5\n\
                        groups = [\"team\"]\n[[groups]]\nname = \"team\"\nlimits = { images_per_day = 50 }\n";
        let settings = format!("data_dir = \"data\"\nlisten = \"127.0.0.1:0\"\n{accounts}");
        std::fs::write(home.path().join("imagate.toml"), settings).expect("a file");
        let lines =
            [json!({"prompt": "a lake", "quality": "low", "size": "1024x1024"}), json!({"prompt": "b", "size": "1x1"})];
        let lines = lines.map(|line| line.to_string()).join("\n");
        std::fs::write(home.path().join("requests.jsonl"), lines).expect("a file");
        let program = |words: &[&str]| Program::new(home.path()).env("IMAGATE_CONFIG", "imagate.toml").args(words);
        let key: Value = program(&["key", "create", "--name", "laptop", "--user", "ada", "--json"]).run().json();
        let secret = key["secret"].as_str().expect("a secret").to_owned();
        let server = program(&["serve"]).serve();
        Self { home, server, secret }
    }

    fn program(&self, words: &[&str], variables: &[(&str, &str)]) -> Program {
        let base_url = format!("http://{}/v1", self.server.address());
        let program = Program::new(self.home.path()).env("IMAGATE_CONFIG", "imagate.toml").args(words);
        let program = program.env("IMAGATE_BASE_URL", base_url).env("IMAGATE_API_KEY", &self.secret);
        variables.iter().fold(program, |program, (name, value)| program.env(name, value))
    }

    /// Runs the commands, and compares the session with its file.
    #[track_caller]
    fn compare(&self, file: &str, run: impl Fn(&Self, &[&str]) -> (Option<i32>, String)) {
        let mut session = String::new();
        for words in COMMANDS {
            let (code, text) = run(self, words);
            session.push_str(&format!("$ imagate {}\n{text}", shell_words(words)));
            if code != Some(0) {
                session.push_str(&format!(
                    "(exit code {})\n",
                    code.map_or_else(|| "-".to_owned(), |code| code.to_string())
                ));
            }
            session.push('\n');
        }
        let session = self.normalized(&session);
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/terminal").join(file);
        if env_setting("IMAGATE_BLESS").is_some() {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, &session).expect("a session");
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        let differing = expected.lines().zip(session.lines()).find(|(expected, shown)| expected != shown);
        assert!(expected == session, "{file} differs: {differing:#?}\nit is now:\n{session}");
    }

    /// Replaces everything that differs from run to run.
    fn normalized(&self, session: &str) -> String {
        let mut text = session.replace(&self.home.path().display().to_string(), "HOME");
        let keys: Value = self.program(&["key", "list", "--json"], &[]).run().json();
        for key in keys.as_array().expect("a list") {
            text = text.replace(key["public_id"].as_str().expect("an id"), "000000000000");
        }
        for (pattern, replacement) in [
            ("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "00000000-0000-0000-0000-000000000000"),
            (r"\b(key|usr|tok)_[0-9A-Za-z]{20}\b", "${1}_00000000000000000000"),
            (r"\bsk-img-[0-9A-Za-z]{12}-[0-9A-Za-z]+", "sk-img-SECRET"),
            (r"127\.0\.0\.1:\d{2,}", "127.0.0.1:PORT"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "2026-01-01T00:00:00.000Z"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "2026-01-01T00:00:00Z"),
            (r"20\d\d-\d\d-\d\d\b", "2026-01-01"),
            // The beginning of a time that was shortened.
            (r#""20[-0-9T:.]+…"#, "\"2026…"),
            (r"\bin \d+\.\d s\b", "in 0.0 s"),
            (r" \d+\.\d(  |\n)", " 0.0$1"),
            (r"\bprocess \d+", "process 1"),
            (r"\bschema version \d+", "schema version 1"),
        ] {
            text = Regex::new(pattern).expect("a pattern").replace_all(&text, replacement).into_owned();
        }
        text
    }
}

fn shell_words(words: &[&str]) -> String {
    let quoted = |word: &&str| if word.contains(' ') { format!("'{word}'") } else { (*word).to_owned() };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn compare_in_terminal(width: u16, file: &str, variables: &[(&str, &str)]) {
    let variables = [&[("TERM", "xterm-256color")], variables].concat();
    Installation::start().compare(file, |installation, words| {
        let (code, screen) = run_in_terminal(installation.program(words, &variables), width);
        assert_eq!(screen.wrapped, Vec::<String>::new(), "{words:?}: a line is longer than the terminal is wide");
        (code, screen.text())
    });
}

#[test]
fn sessions_at_80_columns() {
    compare_in_terminal(80, "80-plain.txt", &[("NO_COLOR", "1")]);
}

#[test]
fn sessions_at_80_columns_with_colors() {
    compare_in_terminal(80, "80-color.txt", &[]);
}

#[test]
fn sessions_at_140_columns() {
    compare_in_terminal(140, "140-plain.txt", &[("NO_COLOR", "1")]);
}

#[test]
fn sessions_at_140_columns_with_colors() {
    compare_in_terminal(140, "140-color.txt", &[]);
}

#[test]
fn sessions_in_pipes_are_complete_and_have_no_colors() {
    Installation::start().compare("piped.txt", |installation, words| {
        let done: CommandOutput = installation.program(words, &[("TERM", "xterm-256color")]).run();
        assert!(!done.stdout.contains('\u{1b}') && !done.stderr.contains('\u{1b}'), "{done:#?}");
        (done.code, piped_text(&done))
    });
}

/// The picture in the sequences of kitty within an output.
#[track_caller]
fn kitty_picture(output: &str) -> Vec<u8> {
    let sequences = output.split("\u{1b}_G").skip(1).filter_map(|rest| rest.split_once("\u{1b}\\"));
    let data: String = sequences.filter_map(|(sequence, _)| sequence.split_once(';')).map(|(_, data)| data).collect();
    BASE64.decode(data).expect("base64")
}

#[test]
fn a_picture_is_shown_where_it_is_wanted() {
    let installation = Installation::start();
    let words = |show: &'static str, file: &'static str| ["generate", "a fox", "--size", "1536x1024", show, "-o", file];
    let size = |picture: &[u8]| imagesize::blob_size(picture).map(|size| (size.width, size.height)).expect("a picture");
    let kitty = [("TERM", "xterm-kitty")];
    let done = installation.program(&words("--show=kitty", "1.jpg"), &[]).run();
    assert_eq!((done.ok_stdout(), size(&kitty_picture(&done.stderr))), ("1.jpg\n", (640, 426)), "on standard error");
    let done = installation.program(&words("--show", "2.jpg"), &kitty).run();
    assert!(done.ok_stdout() == "2.jpg\n" && !done.stderr.contains('\u{1b}'), "no picture in a pipe: {done:#?}");
    let done = installation.program(&words("--show=sixel", "3.png"), &[]).run();
    assert!(done.ok_stdout() == "3.png\n" && done.stderr.contains("\u{1b}P0;1;0q\"1;1;640;426#"), "{:?}", done.code);
    let output = |program| {
        let (code, bytes) = run_in_pseudo_terminal(program, 80);
        assert_eq!(code, Some(0));
        String::from_utf8(bytes).expect("text")
    };
    let stream = ["--stream", "--partials", "2"];
    let shown = output(installation.program(&[&words("--show", "4.png")[..], &stream].concat(), &kitty));
    assert_eq!(shown.matches("a=T,f=100,q=2,").count(), 3, "two intermediate images and the final one");
    let shown = output(installation.program(&words("--show", "5.png"), &[("TERM", "xterm-256color")]));
    assert!(shown.contains("not known to show pictures") && !shown.contains("\u{1b}_G"), "{shown:?}");
}

#[test]
fn a_program_gets_events_instead_of_messages() {
    let installation = Installation::start();
    let events = |words: &[&str]| {
        let done = installation.program(words, &[]).run();
        let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        (done.code, done.stderr.lines().map(parse).collect::<Vec<_>>())
    };
    let names = |events: &[Value]| -> Vec<String> {
        events.iter().map(|event| event["event"].as_str().expect("a name").to_owned()).collect()
    };
    let words = ["generate", "a fox", "--stream", "--partials", "1", "-o", "fox.png", "--progress", "jsonl"];
    let (code, seen) = events(&words);
    assert_eq!((code, names(&seen).join(" ").as_str()), (Some(0), "started partial arrived note saved summary"));
    assert_eq!((&seen[4]["file"], &seen[5]["files"], &seen[5]["attempts"]), (&json!("fox.png"), &json!(1), &json!(1)));
    let service = json!(format!("http://{}", installation.server.address()));
    assert_eq!(seen[0]["service"], service);
    let length = std::fs::metadata(installation.home.path().join("fox.png")).expect("a file").len();
    assert_eq!(seen[4]["bytes"], json!(length));
    let (code, seen) = events(&words);
    assert_eq!((code, names(&seen).join(" ").as_str()), (Some(2), "failed"), "{seen:?}");
    assert!(seen[0]["problems"][0].as_str().is_some_and(|problem| problem.contains("already exists")), "{seen:?}");
    let (code, seen) = events(&["batch", "requests.jsonl", "-o", "images", "-c", "1", "--progress", "jsonl"]);
    assert_eq!((code, names(&seen).join(" ").as_str()), (Some(3), "started line line summary failed"), "{seen:?}");
    assert_eq!((&seen[3]["made"], &seen[3]["failed"]), (&json!(1), &json!(1)));
    assert_eq!(seen[0]["service"], service);
}

#[test]
fn new_records_are_printed_as_their_requests_end() {
    let installation = Installation::start();
    let file = installation.home.path().join("followed.jsonl");
    let output = std::fs::File::create(&file).expect("a file");
    let mut child = installation.program(&["usage", "--follow", "--json"], &[]).spawn_printing_to(output);
    let lines = || std::fs::read_to_string(&file).expect("the output").lines().count();
    for count in 1..=2 {
        let name = format!("{count}.png");
        installation.program(&["generate", "a fox", "-o", &name], &[]).run().ok_stdout();
        eventually("the record is printed", || (lines() == count).then_some(()));
    }
    signal(&child, "INT");
    assert!(ends_within(&mut child, TEST_TIMEOUT));
    assert_eq!(child.wait().expect("a status").code(), Some(0));
    assert_eq!(lines(), 2, "no record is printed twice");
}

#[test]
fn a_deletion_asks_only_on_a_terminal() {
    let installation = Installation::start();
    let new_key = || {
        let created =
            installation.program(&["key", "create", "--name", "old", "--user", "ada", "--json"], &[]).run().json();
        created["id"].as_str().expect("an id").to_owned()
    };
    let key = new_key();
    for (typed, words, expected) in [
        ("n\n", &["key", "delete", &key][..], (Some(2), true)),
        ("\n", &["key", "delete", &key], (Some(2), true)),
        ("y\n", &["key", "delete", &key], (Some(0), true)),
        ("", &["key", "delete", &new_key(), "--yes"], (Some(0), false)),
    ] {
        let (code, output) = answer_in_pseudo_terminal(installation.program(words, &[]), 80, typed);
        let asks = String::from_utf8_lossy(&output).contains("Delete the key");
        assert_eq!((code, asks), expected, "{typed:?}");
    }
    installation.program(&["key", "delete", &new_key()], &[]).run().ok_stdout();
}

#[test]
fn every_command_that_deletes_for_good_asks_on_a_terminal() {
    let installation = Installation::start();
    let run = |words: &[&str]| installation.program(words, &[]).run().ok_stdout().trim().to_owned();
    let id = |words: &[&str]| {
        let made: Value = serde_json::from_str(&run(&[words, &["--json"]].concat())).expect("JSON");
        made["id"].as_str().expect("an id").to_owned()
    };
    let make = |kind: &str| -> Vec<String> {
        match kind {
            "key" => vec![id(&["key", "create", "--name", "old", "--user", "ada"])],
            "token" => vec![id(&["token", "create", "--name", "old", "--user", "ada"])],
            "group" => {
                run(&["group", "create", "old"]);
                vec!["old".to_owned()]
            }
            "account" => vec![id(&["account", "add", "--name", "old", "--kind", "simulator"])],
            _ => {
                run(&["price", "set", "drawn-1", "--from", "2026-01-01", "--per-image", "2"]);
                ["drawn-1", "--from", "2026-01-01"].map(str::to_owned).to_vec()
            }
        }
    };
    for (kind, object) in [
        ("key", "the key key_"),
        ("token", "the token "),
        ("group", "the group old?"),
        ("account", "the account "),
        ("price", "the price of drawn-1 from 2026-01-01?"),
    ] {
        let made = make(kind);
        let words: Vec<&str> = [kind, "delete"].into_iter().chain(made.iter().map(String::as_str)).collect();
        let answered = |words: &[&str], typed| answer_in_pseudo_terminal(installation.program(words, &[]), 200, typed);
        for (typed, code) in [("n\n", Some(2)), ("y\n", Some(0))] {
            let (ended, output) = answered(&words, typed);
            let output = String::from_utf8_lossy(&output).into_owned();
            assert!(ended == code && output.contains(&format!("Delete {object}")), "{kind} {typed:?}: {output}");
        }
        let made = make(kind);
        let words: Vec<&str> = [kind, "delete"].into_iter().chain(made.iter().map(String::as_str)).collect();
        let (ended, output) = answered(&[&words[..], &["--yes"]].concat(), "");
        assert!(ended == Some(0) && !String::from_utf8_lossy(&output).contains("Delete"), "{kind}: {output:?}");
        let made = make(kind);
        run(&[kind, "delete"].into_iter().chain(made.iter().map(String::as_str)).collect::<Vec<_>>());
    }
}
