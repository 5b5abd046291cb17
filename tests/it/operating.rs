//! docs/operating.md as an operator follows it: every block of commands is run from top to bottom, as it is written, on
//! a machine whose paths lie in a folder of the test. `sudo`, `systemctl` and the like are scripts.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{Call, CommandOutput, FakeUpstream, Program, env_setting, request};

/// The source that names the metrics.
const METRICS: &str = include_str!("../../src/gateway/telemetry/metrics.rs");
const PAGE: &str = include_str!("../../docs/operating.md");
/// The address of the gateway and that of its metrics on the page.
const ADDRESSES: [&str; 2] = ["127.0.0.1:8080", "127.0.0.1:9464"];
/// The address of the upstream on the page.
const UPSTREAM: &str = "https://api.openai.com/v1";
/// The folders of the page that lie in the folder of the test.
const FOLDERS: [&str; 4] = ["/usr/local/bin", "/etc/imagate", "/var/lib/imagate", "/var/backups/imagate"];

/// Scripts in the place of programs that need root, systemd or a network.
const SCRIPTS: [(&str, &str); 6] = [
    ("sudo", "if [ \"$1\" = -u ]; then test \"$2\" = imagate; shift 2; fi\nexec \"$@\""),
    ("useradd", "test \"$1\" = --system"),
    (
        "install",
        "set -- \"$@\" --end\nwhile [ \"$1\" != --end ]; do\n  case \"$1\" in -o|-g) shift 2 ;; *) set -- \"$@\" \"$1\"; shift ;; esac\n\
         done\nshift\nPATH=$IT_PATH exec install \"$@\"",
    ),
    (
        "cargo",
        "test \"$*\" = 'build --release --locked --features cli'\nmkdir -p target/release\n\
         cp \"$IT_PROGRAM\" target/release/imagate",
    ),
    (
        "systemctl",
        "start() {\n  imagate serve --config \"$HOME/etc/imagate/imagate.toml\" >> \"$HOME/service.log\" 2>&1 &\n\
         \x20 echo $! > \"$HOME/service.pid\"\n}\n\
         stop() {\n  pid=$(cat \"$HOME/service.pid\")\n  kill -TERM \"$pid\"\n\
         \x20 while kill -0 \"$pid\" 2> /dev/null; do sleep 0.05; done\n}\n\
         case \"$*\" in\n\
         'enable --now imagate'|'start imagate') start ;;\n\
         'stop imagate') stop ;;\n\
         'restart imagate') stop; start ;;\n\
         *) echo \"systemctl $*\" >&2; exit 2 ;;\nesac",
    ),
    ("journalctl", "cat \"$HOME/service.log\""),
];

/// A machine for the page.
struct TestMachine {
    home: TempDir,
    upstream: FakeUpstream,
    addresses: [SocketAddr; 2],
}

// === impl TestMachine ===

impl TestMachine {
    fn new() -> Self {
        let free = || TcpListener::bind("127.0.0.1:0").expect("a port");
        let listeners = [free(), free()];
        let addresses = listeners.each_ref().map(|listener| listener.local_addr().expect("an address"));
        let machine = Self { home: TempDir::new().expect("a directory"), upstream: FakeUpstream::start(), addresses };
        for folder in ["bin", "usr/local/bin", "var/lib", "var/backups"] {
            std::fs::create_dir_all(machine.path(folder)).expect("a folder");
        }
        for (name, text) in SCRIPTS {
            let path = machine.path("bin").join(name);
            std::fs::write(&path, format!("#!/bin/sh\nset -e\n{text}\n")).expect("a script");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        }
        std::fs::write(machine.path("openai.key"), "sk-upstream-main\n").expect("a file");
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The text with the paths and addresses of this machine.
    fn localize(&self, text: &str) -> String {
        let home = self.home.path().display().to_string();
        let text =
            FOLDERS.iter().fold(text.to_owned(), |text, folder| text.replace(folder, &format!("{home}{folder}")));
        let addresses = ADDRESSES.into_iter().zip(self.addresses);
        let text = addresses.fold(text, |text, (written, own)| text.replace(written, &own.to_string()));
        text.replace(UPSTREAM, &self.upstream.base_url())
    }

    fn program(&self, program: &Path) -> Program {
        let path = env_setting("PATH").expect("a path").to_string_lossy().into_owned();
        let own = [self.path("usr/local/bin"), self.path("bin")].map(|folder| folder.display().to_string());
        let program = Program::for_program(program, self.home.path()).env("PATH", format!("{}:{path}", own.join(":")));
        program.env("IT_PATH", path).env("IT_PROGRAM", env!("CARGO_BIN_EXE_imagate"))
    }

    /// Runs a block of commands, all of which must succeed.
    #[track_caller]
    fn run(&self, block: &str) -> CommandOutput {
        let output = self.program(Path::new("sh")).args(["-euc", &self.localize(block)]).run();
        assert_eq!(output.code, Some(0), "{block}\n{output:#?}");
        output
    }

    fn status_of_image(&self, key: &str) -> u16 {
        let body = request(json!({"size": "1024x1024", "quality": "low"}));
        Call::generation().key(key).json(&body).send(self.addresses[0]).status
    }
}

impl Drop for TestMachine {
    fn drop(&mut self) {
        // The service is no child of this process, but of a script.
        if let Ok(process) = std::fs::read_to_string(self.path("service.pid")) {
            drop(Command::new("sh").args(["-c", &format!("kill -9 {}", process.trim())]).output());
        }
        if std::thread::panicking() {
            eprintln!(
                "--- the log of the service\n{}",
                std::fs::read_to_string(self.path("service.log")).unwrap_or_default()
            );
        }
    }
}

/// The blocks of the page in this language.
fn blocks(language: &str) -> Vec<&'static str> {
    let blocks = PAGE.split("\n```").filter_map(|part| part.split_once('\n'));
    blocks.filter(|(info, _)| *info == language).map(|(_, block)| block).collect()
}

/// The texts in backticks outside of blocks.
fn inline_code() -> Vec<String> {
    let prose: String = PAGE.split("\n```").step_by(2).collect();
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_commands_of_the_page_run_from_top_to_bottom() {
    let machine = TestMachine::new();
    let settings = blocks("toml");
    let [settings] = settings.as_slice() else { panic!("not one block of settings: {settings:?}") };
    let commands = blocks("sh");
    assert!(commands.len() >= 15, "{}", commands.len());
    for block in commands {
        let is_first_key = block.starts_with("KEY=$(");
        let shown = if is_first_key { format!("{block}\nprintf %s \"$KEY\" > key.txt") } else { block.to_owned() };
        let output = machine.run(&shown);
        if block.contains("/etc/imagate\n") || block.ends_with("/etc/imagate") {
            std::fs::write(machine.path("etc/imagate/imagate.toml"), machine.localize(settings)).expect("a file");
        }
        if block.contains("--online") {
            let report: Value = serde_json::from_str(&output.stdout).expect("JSON");
            assert!(
                report["checks"].as_array().is_some_and(|checks| checks.iter().any(|one| one["check"] == "upstream"))
            );
        }
    }
    let first: Value =
        serde_json::from_slice(&std::fs::read(machine.path("first.json")).expect("a file")).expect("JSON");
    assert!(first["data"][0]["b64_json"].as_str().is_some_and(|image| !image.is_empty()));
    let key = std::fs::read_to_string(machine.path("key.txt")).expect("a file");
    assert_eq!(machine.status_of_image(&key), 200, "the key works after every restore");
}

#[test]
fn the_metrics_in_the_text_exist() {
    let mut checked = 0;
    for code in inline_code() {
        let words = code.split(|letter: char| letter != '_' && !letter.is_ascii_lowercase());
        for metric in words.filter_map(|word| word.strip_prefix("imagate_")) {
            // A metric that has not been counted yet is not in the answer of the gateway.
            let is_registered = METRICS.contains(&format!("\"{}\"", metric.trim_end_matches("_total")));
            assert!(is_registered, "imagate_{metric} is no metric");
            checked += 1;
        }
    }
    assert!(checked > 5, "{checked}");
}

#[test]
fn the_commands_in_the_text_and_their_options_exist() {
    let home = TempDir::new().expect("a directory");
    let mut checked = 0;
    for code in inline_code().iter().filter_map(|code| code.strip_prefix("imagate ")) {
        let words: Vec<&str> = code.split_whitespace().collect();
        let names = words.iter().take_while(|word| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'));
        let names: Vec<&str> = names.copied().take_while(|word| !word.starts_with('-')).collect();
        let help = Program::new(home.path()).args(&names).args(["--help"]).run();
        for option in words.iter().filter(|word| word.starts_with("--")) {
            assert!(help.ok_stdout().contains(option), "`imagate {code}` has no {option}");
        }
        help.ok_stdout();
        checked += 1;
    }
    assert!(checked > 10, "{checked}");
}
