//! Runs the unmodified Codex CLI with a home folder of its own, in each configuration that leads it to the gateway.
//!
//! Codex reaches only the gateway: the proxy setting sends all its other connections to a port that refuses them.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::clients::install::node;
use crate::kit::{CommandOutput, Program, RecordingProxy, RefusingPort, TEST_TIMEOUT};

/// Headers that Codex sends beside its key and that must not go upstream.
const CANARIES: &str = "http_headers = { cookie = \"caller-canary=1\", openai-organization = \"caller-canary\" }\n";

/// Settings that stop Codex from making other requests.
const QUIET: &str = "\n[analytics]\nenabled = false\n\n[features]\napps = false\nplugins = false\n";

/// A release of Codex.
#[derive(Clone, Copy)]
pub(super) enum Release {
    Newest,
    /// The last release line with the hosted image tool.
    V0_125,
}

pub(super) struct Codex {
    release: Release,
    home: TempDir,
    nowhere: RefusingPort,
    key: String,
}

/// The output of a run of Codex.
pub(super) struct CodexOutput {
    output: CommandOutput,
    events: Vec<Value>,
}

// === impl Release ===

impl Release {
    /// The path of the program. The npm package starts it through Node, and killing Node would not end the program.
    fn binary(self) -> PathBuf {
        let folder = match self {
            Self::Newest => node("IMAGATE_NODE_CODEX", "codex", &["@openai/codex"], &[]),
            Self::V0_125 => node("IMAGATE_NODE_CODEX_0_125", "codex-0.125", &["@openai/codex@0.125.0"], &[]),
        };
        let packages = files(&folder.join("node_modules/@openai"));
        let targets = packages.iter().flat_map(|package| files(&package.join("vendor")));
        let mut programs = targets.flat_map(|target| files(&target)).map(|target| target.join("codex"));
        programs.find(|program| program.is_file()).expect("the program of the package")
    }
}

// === impl Codex ===

impl Codex {
    /// With a custom provider, as README.md describes it.
    pub(super) fn with_provider(tap: &RecordingProxy, key: &str) -> Self {
        Self::with(key, &(provider(tap) + CANARIES))
    }

    /// With a custom provider and fewer retries.
    pub(super) fn with_few_retries(tap: &RecordingProxy, key: &str) -> Self {
        let retries = "request_max_retries = 1\nstream_max_retries = 1\n";
        Self::with(key, &(provider(tap) + CANARIES + retries))
    }

    /// With a custom provider that treats a stream as broken after this many silent seconds.
    pub(super) fn with_idle_timeout(tap: &RecordingProxy, key: &str, seconds: u64) -> Self {
        Self::with(key, &format!("{}stream_idle_timeout_ms = {}\n", provider(tap), seconds * 1000))
    }

    /// With a ChatGPT login, which makes Codex offer its own image tool to the model. The key is still the gateway's.
    pub(super) fn with_chatgpt_login(tap: &RecordingProxy, key: &str) -> Self {
        let lines = provider(tap).replace("name = \"imagate\"", "name = \"OpenAI\"\nrequires_openai_auth = true");
        let codex = Self::with(key, &(lines + CANARIES));
        std::fs::write(codex.home.path().join("auth.json"), login().to_string()).expect("a login");
        codex
    }

    /// With the built-in provider, another base URL, and a key of the gateway.
    #[track_caller]
    pub(super) fn with_built_in_provider(tap: &RecordingProxy, key: &str) -> Self {
        let codex = Self::with(key, &format!("model = \"gpt-5.5\"\nopenai_base_url = \"{}\"\n", tap.base_url()));
        let secret = codex.home.path().join("secret");
        std::fs::write(&secret, key).expect("a secret");
        assert_eq!(codex.program().args(["login", "--with-api-key"]).stdin(&secret).run().code, Some(0));
        codex
    }

    fn with(key: &str, config: &str) -> Self {
        let home = TempDir::new().expect("a directory");
        let config = format!("check_for_update_on_startup = false\n{config}{QUIET}");
        std::fs::write(home.path().join("config.toml"), config).expect("a configuration");
        Self { release: Release::Newest, home, nowhere: RefusingPort::new(), key: key.to_owned() }
    }

    pub(super) fn with_release(self, release: Release) -> Self {
        Self { release, ..self }
    }

    pub(super) fn with_model(self, model: &str) -> Self {
        self.replace_in_config("gpt-5.5", model)
    }

    pub(super) fn without_compression(self) -> Self {
        self.replace_in_config("[features]", "[features]\nenable_request_compression = false")
    }

    fn replace_in_config(self, from: &str, to: &str) -> Self {
        let path = self.home.path().join("config.toml");
        let config = std::fs::read_to_string(&path).expect("a configuration");
        std::fs::write(path, config.replace(from, to)).expect("a configuration");
        self
    }

    pub(super) fn home(&self) -> &Path {
        self.home.path()
    }

    fn program(&self) -> Program {
        let nowhere = self.nowhere.base_url();
        Program::for_program(&self.release.binary(), self.home())
            .env("CODEX_HOME", self.home())
            .env("IMAGATE_API_KEY", &self.key)
            .env("HTTPS_PROXY", nowhere.trim_end_matches("/v1"))
            .env("NO_PROXY", "127.0.0.1")
    }

    /// Runs `codex exec`.
    #[track_caller]
    pub(super) fn exec(&self, task: &str) -> CodexOutput {
        self.run(&["exec", "-s", "danger-full-access"], task)
    }

    /// Runs `codex exec resume`: another turn of the last conversation.
    #[track_caller]
    pub(super) fn resume(&self, task: &str) -> CodexOutput {
        self.run(&["exec", "resume", "--last"], task)
    }

    #[track_caller]
    fn run(&self, command: &[&str], task: &str) -> CodexOutput {
        let program = self.program().args(command).args(["--skip-git-repo-check", "--json", task]);
        let output = program.run_within(2 * TEST_TIMEOUT);
        let events = output.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        CodexOutput { output, events }
    }

    /// The files that the image tool of Codex has written, with the ids of their calls.
    pub(super) fn generated_images(&self) -> Vec<(String, Vec<u8>)> {
        let threads = files(&self.home().join("generated_images"));
        let mut images: Vec<PathBuf> = threads.iter().flat_map(|thread| files(thread)).collect();
        images.sort();
        let read = |path: &PathBuf| {
            let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
            (name, std::fs::read(path).expect("an image"))
        };
        images.iter().map(read).collect()
    }
}

/// The provider of README.md, with the address of the recording proxy.
fn provider(tap: &RecordingProxy) -> String {
    let readme = include_str!("../../../README.md");
    let mut blocks = readme.split("```toml\n").skip(1).filter_map(|tail| tail.split_once("```"));
    let (block, _) = blocks.find(|(block, _)| block.contains("[model_providers.")).expect("a provider in README.md");
    block.replace("http://127.0.0.1:8080/v1", &tap.base_url())
}

/// A login with an unsigned token.
fn login() -> Value {
    let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({"chatgpt_plan_type": "plus", "chatgpt_account_id": "acc-canary", "chatgpt_user_id": "user-1"});
    let header = encode(json!({"alg": "none", "typ": "JWT"}));
    let payload = encode(json!({"exp": 4_102_444_800_u64, "https://api.openai.com/auth": claims}));
    let token = format!("{header}.{payload}.{}", encode(json!("login-canary")));
    json!({"auth_mode": "chatgpt", "OPENAI_API_KEY": null, "last_refresh": chrono::Utc::now().to_rfc3339(),
           "tokens": {"id_token": token, "access_token": token, "refresh_token": "login-canary",
                      "account_id": "acc-canary"}})
}

fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
}

// === impl CodexOutput ===

impl CodexOutput {
    /// The last message of the model in a completed turn.
    #[track_caller]
    pub(super) fn message(&self) -> &str {
        assert_eq!(self.output.code, Some(0), "{:#?}", self.output);
        assert!(self.events.iter().any(|event| event["type"] == "turn.completed"), "{:#?}", self.output);
        let items = self.events.iter().map(|event| &event["item"]);
        let mut messages =
            items.filter(|item| item["type"] == "agent_message").filter_map(|item| item["text"].as_str());
        messages.next_back().expect("a message")
    }

    /// The error message that a failed turn shows to the user.
    #[track_caller]
    pub(super) fn failure(&self) -> &str {
        let failed = self.events.iter().find(|event| event["type"] == "turn.failed");
        let failed = failed.unwrap_or_else(|| panic!("the turn did not fail: {:#?}", self.output));
        failed["error"]["message"].as_str().expect("a message")
    }

    pub(super) fn event(&self, kind: &str) -> Option<&Value> {
        self.events.iter().find(|event| event["type"] == kind)
    }

    /// The first completed item of this type.
    #[track_caller]
    pub(super) fn item(&self, kind: &str) -> &Value {
        let completed = self.events.iter().filter(|event| event["type"] == "item.completed");
        let mut items = completed.map(|event| &event["item"]).filter(|item| item["type"] == kind);
        items.next().unwrap_or_else(|| panic!("no {kind}: {:#?}", self.output))
    }

    pub(super) fn command_output(&self) -> &CommandOutput {
        &self.output
    }
}
