//! A machine for the guides: the paths and addresses of a page lie in a folder of the test, and `sudo`, `systemctl` and
//! the like are scripts.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::kit::{Call, CommandOutput, FakeUpstream, Program, env_setting, eventually, request};

/// The addresses on the pages: of the gateway and of its metrics, and of two nodes.
const ADDRESSES: [&str; 7] = [
    "127.0.0.1:8080",
    "127.0.0.1:9464",
    "127.0.0.1:8081",
    "127.0.0.1:9465",
    "127.0.0.1:8082",
    "127.0.0.1:9466",
    "127.0.0.1:8090",
];
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
pub(super) struct TestMachine {
    home: TempDir,
    upstream: FakeUpstream,
    addresses: [SocketAddr; ADDRESSES.len()],
    /// The words of pages that stand for something of this machine.
    replacements: Vec<(String, String)>,
}

// === impl TestMachine ===

impl TestMachine {
    pub(super) fn new() -> Self {
        let free = || TcpListener::bind("127.0.0.1:0").expect("a port");
        let listeners = ADDRESSES.map(|_| free());
        let addresses = listeners.each_ref().map(|listener| listener.local_addr().expect("an address"));
        let (home, upstream) = (TempDir::new().expect("a directory"), FakeUpstream::start());
        let machine = Self { home, upstream, addresses, replacements: Vec::new() };
        for folder in ["bin", "usr/local/bin", "var/lib", "var/backups"] {
            std::fs::create_dir_all(machine.path(folder)).expect("a folder");
        }
        SCRIPTS.into_iter().for_each(|(name, text)| machine.add_script(name, text));
        std::fs::write(machine.path("openai.key"), "sk-upstream-main\n").expect("a file");
        machine
    }

    /// Puts a script in the place of a program.
    pub(super) fn add_script(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\nset -e\n{text}\n")).expect("a script");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    }

    /// Installs the program, for pages that do not say how.
    pub(super) fn install_program(&self) {
        self.run("cp \"$IT_PROGRAM\" /usr/local/bin/imagate");
    }

    /// Waits until the gateway at an address of a page is ready.
    pub(super) fn wait_until_ready(&self, written: &str) {
        let address = self.address(written);
        eventually("the gateway is ready", || {
            Call::get("/readyz").try_send(address).ok().filter(|answer| answer.status == 200).map(drop)
        });
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The text with the paths and addresses of this machine.
    pub(super) fn localize(&self, text: &str) -> String {
        let home = self.home.path().display().to_string();
        let text =
            FOLDERS.iter().fold(text.to_owned(), |text, folder| text.replace(folder, &format!("{home}{folder}")));
        let addresses = ADDRESSES.into_iter().zip(self.addresses);
        let text = addresses.fold(text, |text, (written, own)| text.replace(written, &own.to_string()));
        let text = text.replace(UPSTREAM, &self.upstream.base_url());
        self.replacements.iter().fold(text, |text, (word, own)| text.replace(word, own))
    }

    /// Replaces a word of the page in all further blocks.
    pub(super) fn replace(&mut self, word: &str, own: &str) {
        self.replacements.push((word.to_owned(), own.to_owned()));
    }

    /// Runs a block that leaves processes behind. They end with the machine.
    #[track_caller]
    pub(super) fn run_services(&self, block: &str) {
        // One line for each process that the block leaves behind.
        let is_service = |line: &&str| line.ends_with(" &");
        assert!(block.lines().any(|line| is_service(&line)), "the block leaves no process behind");
        let noted = block.lines().map(|line| {
            let note = if is_service(&line) { "\necho $! >> services.pid" } else { "" };
            format!("{line}{note}\n")
        });
        let noted: String = noted.collect();
        self.run(&format!("exec >> service.log 2>&1\n{noted}"));
    }

    /// Ends the processes of [`TestMachine::run_services`].
    pub(super) fn end_services(&self) {
        let Ok(processes) = std::fs::read_to_string(self.path("services.pid")) else { return };
        for process in processes.lines() {
            drop(Command::new("sh").args(["-c", &format!("kill -9 {process}")]).output());
        }
        drop(std::fs::remove_file(self.path("services.pid")));
    }

    /// The address of this machine for an address of a page.
    #[track_caller]
    pub(super) fn address(&self, written: &str) -> SocketAddr {
        let index = ADDRESSES.iter().position(|address| *address == written).expect("an address of the pages");
        self.addresses[index]
    }

    pub(super) fn program(&self, program: &Path) -> Program {
        let path = env_setting("PATH").expect("a path").to_string_lossy().into_owned();
        let own = [self.path("usr/local/bin"), self.path("bin")].map(|folder| folder.display().to_string());
        let program = Program::for_program(program, self.home.path()).env("PATH", format!("{}:{path}", own.join(":")));
        program.env("IT_PATH", path).env("IT_PROGRAM", env!("CARGO_BIN_EXE_imagate"))
    }

    /// Runs a block of commands, all of which must succeed.
    #[track_caller]
    pub(super) fn run(&self, block: &str) -> CommandOutput {
        let output = self.program(Path::new("sh")).args(["-euc", &self.localize(block)]).run();
        assert_eq!(output.code, Some(0), "{block}\n{output:#?}");
        output
    }

    /// Asks the gateway at an address of a page for an image, and returns the status.
    pub(super) fn status_of_image(&self, written: &str, key: &str) -> u16 {
        let body = request(json!({"size": "1024x1024", "quality": "low"}));
        Call::generation().key(key).json(&body).send(self.address(written)).status
    }
}

impl Drop for TestMachine {
    fn drop(&mut self) {
        self.end_services();
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

/// The blocks of a page in this language.
pub(super) fn blocks_of(page: &'static str, language: &str) -> Vec<&'static str> {
    let blocks = page.split("\n```").filter_map(|part| part.split_once('\n'));
    blocks.filter(|(info, _)| *info == language).map(|(_, block)| block).collect()
}
