//! The demand LEAK for the whole program: distinct secrets (canaries) go in by every input, at the most verbose level
//! of the log, and must not be in any output.
//!
//! The search covers every byte that callers receive, standard output and standard error of every process and command,
//! and every file below the data directory. Each canary is searched for as it is, in hex, and in base64 at every
//! offset.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{
    Account, Answer, Call, Canary, CapturedOutput, FLAGGED, FakeModerator, FakeTokens, FakeUpstream, Form, Gateway,
    OutputChannel, alpha_png, eventually, hex,
};

/// A feature of the program, whose inputs and outputs the test includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feature {
    /// Accounts of kind `oauth`.
    Oauth,
    /// Moderation before anything is spent.
    Moderation,
    /// `Idempotency-Key` and stored answers.
    Replays,
    /// A master key from outside, and its rotation.
    MasterKey,
    /// `account add`, `disable`, `enable`, `test`, `explain`, `delete`.
    Commands,
}

/// The features of this version.
const FEATURES: [Feature; 5] =
    [Feature::Oauth, Feature::Moderation, Feature::Replays, Feature::MasterKey, Feature::Commands];

const TOKEN: &str = "sk-canary-upstream-token-9f2c41d7";
const ADDED_TOKEN: &str = "sk-canary-added-by-command-77ab03";
const PATH: &str = "canary-path-of-the-upstream-1b7e";
const PLAIN_HEADER: &str = "canary-plain-header-5c20e9";
const SECRET_HEADER: &str = "canary-secret-header-a81d36";
const PROMPT: &str = "a canary on a branch, prompt-c4n4ry-62fd";
const STRANGER: &str = "sk-img-strangercanary-aGVsbG8gd29ybGQgdGhpcyBpcyBub3QgYSBrZXk";
const IDEMPOTENCY_KEY: &str = "idempotency-canary-3e9f4b1c";
const MODERATION: &str = "sk-canary-moderation-key-c35a90";
const FILE: &[u8] = b"canary-inside-an-uploaded-file-d0c7";
/// 32 bytes of text, so that the search finds the key itself as well as its hexadecimal form.
const MASTER: &[u8; 32] = b"canary-master-key-0123456789abcd";
const NEXT_MASTER: &[u8; 32] = b"canary-next-master-9876543210fed";
/// The name of the OAuth account. The fake token endpoint derives its secrets from this name.
const OAUTH_ACCOUNT: &str = "orchidbird";

/// A gateway with all its upstreams, and the collected output.
struct LeakFixture {
    upstream: FakeUpstream,
    tokens: FakeTokens,
    moderator: FakeModerator,
    gateway: Gateway,
    captured: CapturedOutput,
}

// === impl LeakFixture ===

impl LeakFixture {
    #[track_caller]
    fn open() -> Self {
        let (upstream, tokens, moderator) = (FakeUpstream::start(), FakeTokens::start(), FakeModerator::start());
        let base_url = format!("http://{}/{PATH}/v1", upstream.address());
        let mut account = Account::with_base_url("finch", base_url.clone())
            .with_line(&format!("headers = {{ x-plain = \"{PLAIN_HEADER}\", x-api-key = {{ env = \"IT_HEADER\" }} }}"));
        account.token = TOKEN.to_owned();
        let mut accounts =
            vec![account, Account::with_base_url("sparrow", "http://127.0.0.1:9/v1".to_owned()).with_free_tier()];
        if has(Feature::Oauth) {
            accounts.push(Account::oauth(OAUTH_ACCOUNT, &upstream, &tokens));
        }
        let mut settings = String::new();
        if has(Feature::MasterKey) {
            settings.push_str("master_key = { env = \"IT_MASTER\" }\n");
        }
        settings.push_str("[deadlines]\nconnect = \"1s\"\nimage = \"2s\"\n");
        if has(Feature::Moderation) {
            settings.push_str(&filter(&moderator));
        }
        let (master, next) = (hex(MASTER), hex(NEXT_MASTER));
        let secrets = [
            ("IT_HEADER", SECRET_HEADER),
            ("IT_MODERATION", MODERATION),
            ("IT_MASTER", &master),
            ("IT_NEXT_MASTER", &next),
            ("IT_ADDED", ADDED_TOKEN),
            ("IMAGATE_LOG", "trace"),
            ("RUST_LOG", "trace"),
            ("RUST_BACKTRACE", "1"),
        ];
        let gateway = Gateway::with_secrets(&settings, &accounts, &secrets);
        Self { upstream, tokens, moderator, gateway, captured: CapturedOutput::default() }
    }

    /// Every secret, with the outputs that may contain it.
    fn canaries(&self) -> Vec<Canary> {
        let key = self.gateway.secret();
        let private = key.rsplit('-').next().expect("the private part of a key");
        vec![
            Canary::new("upstream token", TOKEN, &[]),
            Canary::new("token of an added account", ADDED_TOKEN, &[]),
            Canary::new("address of the upstream", PATH, &[OutputChannel::Accounts, OutputChannel::Settings]),
            Canary::new("plain header of an account", PLAIN_HEADER, &[OutputChannel::Settings]),
            Canary::new("secret header of an account", SECRET_HEADER, &[]),
            Canary::new("refresh token", format!("refresh-{OAUTH_ACCOUNT}"), &[]),
            Canary::new("client secret", format!("secret-{OAUTH_ACCOUNT}"), &[]),
            Canary::new("access token", format!("access-{OAUTH_ACCOUNT}"), &[]),
            Canary::new("moderation key", MODERATION, &[]),
            Canary::new("key of a caller", key, &[]),
            Canary::new("private part of that key", private, &[]),
            Canary::new("key of a stranger", STRANGER, &[]),
            Canary::new("idempotency key", IDEMPOTENCY_KEY, &[]),
            // A caller may read its own prompt, for instance as the revised one.
            Canary::new("prompt", PROMPT, &[OutputChannel::Answer]),
            Canary::new("uploaded file", FILE, &[]),
            Canary::new("master key", MASTER, &[]),
            Canary::new("master key as written", hex(MASTER), &[]),
            Canary::new("next master key", NEXT_MASTER, &[]),
            Canary::new("next master key as written", hex(NEXT_MASTER), &[]),
        ]
    }

    /// Sends a call, and captures every byte of the answer, even if the answer is incomplete.
    fn send(&mut self, call: Call) -> Option<Answer> {
        let answer = call.try_send(self.gateway.address());
        if let Ok(answer) = &answer {
            let heads = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect::<String>();
            self.captured.add(OutputChannel::Answer, "an answer", [heads.as_bytes(), &answer.body].concat());
        }
        answer.ok()
    }

    /// Like [`LeakFixture::send`], but the call must reach an upstream. Accounts are enabled again for it if necessary.
    #[track_caller]
    fn send_upstream(&mut self, call: &Call) {
        let before = self.upstream.attempt_count();
        self.send(call.clone());
        if self.upstream.attempt_count() == before {
            self.enable_accounts();
            self.send(call.clone());
            assert!(self.upstream.attempt_count() > before, "the call reached no upstream");
        }
    }

    /// Enables the accounts, which also ends their cooldowns, and waits until one of them serves.
    #[track_caller]
    fn enable_accounts(&mut self) {
        for name in ["finch", OAUTH_ACCOUNT] {
            self.command(OutputChannel::Output, &["account", "enable", name]);
        }
        eventually("the accounts serve again", || {
            let call = self.generation("", json!({}));
            self.send(call).filter(|answer| answer.status == 200)
        });
    }

    fn generation(&self, script: &str, mut fields: Value) -> Call {
        fields["prompt"] = json!(format!("{PROMPT} [[{script}]]"));
        self.gateway.call(fields)
    }

    fn edit(&self, script: &str) -> Call {
        let prompt = format!("{PROMPT} [[{script}]]");
        let file = [alpha_png(64, 64).as_slice(), FILE].concat();
        let form = Form::new().text("model", "gpt-image-2").text("prompt", &prompt).file("image[]", &file);
        form.call().key(self.gateway.secret())
    }

    /// Runs a command, and captures its standard output and standard error.
    #[track_caller]
    fn command(&mut self, channel: OutputChannel, words: &[&str]) {
        let output = self.gateway.run_command(words);
        assert!(output.code.is_some(), "{words:?} did not end");
        self.captured.add(channel, &words.join(" "), format!("{}\n{}", output.stdout, output.stderr).into_bytes());
    }

    fn capture_log(&mut self) {
        let log = self.gateway.output();
        self.captured.add(OutputChannel::Log, "the log", log.into_bytes());
    }

    /// Sends plain and streamed generations and edits, each with every behaviour of an upstream.
    fn send_caller_requests(&mut self) {
        let echo = format!("say=Incorrect_key_{TOKEN}_at_http://{}/{PATH}/v1", self.upstream.address());
        let scripts = [
            "".to_owned(),
            "status=400 body=policy".to_owned(),
            "status=400 body=parameter".to_owned(),
            format!("status=400 body=parameter {echo}"),
            format!("status=500 {echo}"),
            "body=html".to_owned(),
            "cut=50%".to_owned(),
            "hang-up how=reset".to_owned(),
            "data=empty".to_owned(),
            "stall=head".to_owned(),
            format!("status=307 body=none location=http://{}/{PATH}", self.upstream.address()),
            "usage=float size=64x64 revised=escapes".to_owned(),
            "flood=10000".to_owned(),
            format!("status=429 retry-after=1 {echo}"),
            format!("status=401 {echo}"),
            format!("status=403 body=revoked {echo}"),
        ];
        for script in &scripts {
            for call in [
                self.generation(script, json!({})),
                self.generation(script, json!({"stream": true, "partial_images": 1})),
                self.edit(script),
            ] {
                self.send_upstream(&call);
            }
        }
        for events in ["p,cut", "p,e", "e-policy", "p,half,eof", "junk", "twin"] {
            let call = self.generation(&format!("events={events}"), json!({"stream": true, "partial_images": 1}));
            self.send_upstream(&call);
        }
        self.enable_accounts();
    }

    /// Sends requests that never become jobs, with wrong and with valid keys.
    fn send_refused_requests(&mut self) {
        let secret = self.gateway.secret().to_owned();
        let fields = |fields: Value| crate::kit::request(fields);
        let calls = [
            Call::generation().key(STRANGER).json(&fields(json!({"prompt": PROMPT}))),
            Call::generation().header("authorization", &format!("Basic {STRANGER}")).json(&fields(json!({}))),
            Call::generation().header("x-api-key", &secret).json(&fields(json!({}))),
            Call::post(&format!("/v1/images/generations?api_key={secret}")).key(&secret).json(&fields(json!({}))),
            Call::get("/v1/models").key(&format!("{secret}x")),
            Call::generation().key(&secret).json(&fields(json!({"prompt": [PROMPT]}))),
            Call::generation().key(&secret).json(&fields(json!({"prompt": PROMPT, "n": 99}))),
            Call::generation()
                .key(&secret)
                .header("content-type", "application/json")
                .bytes(format!("{{\"prompt\":\"{PROMPT}\"")),
            Call::edit().key(&secret).header("content-type", "multipart/form-data; boundary=x").bytes(FILE.to_vec()),
            Call::edit()
                .key(&secret)
                .json(&fields(json!({"prompt": PROMPT, "images": [{"image_url": "data:image/png;base64,AAAA"}]}))),
            Call::get("/metrics").key(&secret),
            Call::get("/healthz"),
        ];
        for call in calls {
            self.send(call);
        }
        // Callers who disconnect: in the middle of the body, and while the upstream works.
        let half = Call::generation().key(&secret).header("content-type", "application/json").announcing_only(10_000);
        drop(half.dispatch(self.gateway.address()));
        let attempts = self.upstream.attempt_count();
        let call = self.generation("delay=300", json!({}));
        let connection = call.dispatch(self.gateway.address());
        eventually("the attempt runs", || (self.upstream.attempt_count() > attempts).then_some(()));
        drop(connection);
    }

    /// Sends the same request twice with one idempotency key, and then another request with that key.
    fn send_with_same_key(&mut self, script: &str) {
        let name = format!("{IDEMPOTENCY_KEY}-{}", script.len());
        for count in [1, 1, 2] {
            let call = self.generation(script, json!({"n": count})).header("idempotency-key", &name);
            self.send(call);
        }
    }

    /// Sends requests whose answers are stored, and requests that are moderated.
    fn send_replayed_and_moderated_requests(&mut self) {
        if has(Feature::Replays) {
            for script in ["", "b64=200000", "status=400 body=policy"] {
                self.send_with_same_key(script);
            }
        }
        if has(Feature::Moderation) {
            for prompt in [format!("{PROMPT} {FLAGGED}"), format!("{PROMPT} verboten"), PROMPT.to_owned()] {
                let call = self.gateway.call(json!({"prompt": prompt}));
                self.send(call);
            }
            self.moderator.hang_up();
            let call = self.gateway.call(json!({"prompt": PROMPT}));
            self.send(call);
        }
    }

    #[track_caller]
    fn run_operator_commands(&mut self) {
        if has(Feature::Commands) {
            let base_url = format!("http://{}/v1", self.upstream.address());
            let add =
                ["account", "add", "--name", "wren", "--base-url", &base_url, "--api-key-env", "IT_ADDED", "--json"];
            self.command(OutputChannel::Accounts, &add);
            for name in ["finch", "wren", "sparrow", OAUTH_ACCOUNT] {
                self.command(OutputChannel::Accounts, &["account", "disable", name, "--json"]);
                self.command(OutputChannel::Accounts, &["account", "enable", name]);
                self.command(OutputChannel::Accounts, &["account", "test", name, "--json"]);
            }
            self.command(OutputChannel::Accounts, &["account", "explain", "--json"]);
        }
        for words in [&["account", "list", "--json"][..], &["account", "list"]] {
            self.command(OutputChannel::Accounts, words);
        }
        for words in [&["config", "show"][..], &["config", "check"]] {
            self.command(OutputChannel::Settings, words);
        }
        for words in [&["usage", "--json"][..], &["usage", "--csv"], &["usage"], &["key", "list", "--json"]] {
            self.command(OutputChannel::Output, words);
        }
    }

    /// Runs commands with invalid settings, whose errors must not show the values.
    fn run_with_invalid_settings(&mut self) {
        let valid = std::fs::read_to_string(self.gateway.config()).expect("a configuration");
        let invalid = valid.replace("{ env = \"IT_HEADER\" }", &format!("[\"{SECRET_HEADER}\"]"));
        let invalid = invalid.replacen("api_key = { env", &format!("api_key = \"{TOKEN}\"\n# {{ env"), 1);
        std::fs::write(self.gateway.config(), invalid).expect("a configuration");
        self.command(OutputChannel::Output, &["config", "check"]);
        self.command(OutputChannel::Output, &["serve"]);
        std::fs::write(self.gateway.config(), valid).expect("a configuration");
    }
}

fn has(feature: Feature) -> bool {
    FEATURES.contains(&feature)
}

fn filter(moderator: &FakeModerator) -> String {
    format!(
        "[[groups]]\nname = \"default\"\n[groups.filter]\nwords = [\"verboten\"]\n[groups.filter.moderation]\n\
         base_url = \"{}\"\napi_key = {{ env = \"IT_MODERATION\" }}\nmodel = \"omni-moderation-latest\"\n\
         on_error = \"open\"\n",
        moderator.base_url()
    )
}

#[test]
fn no_canary_is_in_any_output() {
    let mut fixture = LeakFixture::open();
    fixture.send_caller_requests();
    fixture.send_refused_requests();
    fixture.run_operator_commands();
    fixture.send_caller_requests();
    fixture.send_replayed_and_moderated_requests();
    fixture.capture_log();
    fixture.gateway.kill();
    fixture.captured.add_files(&fixture.gateway.home().join("data"));
    fixture.gateway.start();
    fixture.send_replayed_and_moderated_requests();
    fixture.send_refused_requests();
    fixture.run_with_invalid_settings();
    fixture.run_operator_commands();
    if has(Feature::MasterKey) {
        fixture.command(OutputChannel::Output, &["master-key", "rotate", "--new-key-env", "IT_NEXT_MASTER"]);
    }
    // Files are also captured during an attempt, when temporary files may exist.
    let call = fixture.generation("stall=middle b64=400000", json!({}));
    let attempts = fixture.upstream.attempt_count();
    let running = call.dispatch(fixture.gateway.address());
    eventually("the attempt runs", || (fixture.upstream.attempt_count() > attempts).then_some(()));
    fixture.captured.add_files(&fixture.gateway.home().join("data"));
    drop(running);
    fixture.gateway.terminate();
    fixture.gateway.server().wait(Duration::from_secs(40));
    fixture.capture_log();
    fixture.captured.add_files(&fixture.gateway.home().join("data"));
    check_inputs(&fixture);
    let found = fixture.captured.search(&fixture.canaries());
    println!("{}", fixture.captured.describe());
    assert!(found.is_empty(), "{} leaks:\n{}", found.len(), found.join("\n"));
}

/// Checks that the canaries went in: otherwise a search without a result proves nothing.
#[track_caller]
fn check_inputs(fixture: &LeakFixture) {
    let attempts = fixture.upstream.received_attempts();
    for token in [TOKEN, ADDED_TOKEN] {
        let used = attempts.iter().filter(|attempt| attempt.token == token).count();
        println!("{used} attempts with {token}");
    }
    assert!(attempts.iter().any(|attempt| attempt.token == TOKEN && attempt.path.contains(PATH)));
    assert!(attempts.iter().any(|attempt| attempt.header("x-api-key") == Some(SECRET_HEADER)));
    assert!(
        attempts.iter().any(|attempt| attempt.fields()["prompt"].as_str().is_some_and(|text| text.contains(PROMPT)))
    );
    if has(Feature::Oauth) {
        assert!(fixture.tokens.ledger().iter().any(|exchange| exchange.token.is_some()), "no token was exchanged");
    }
    if has(Feature::Moderation) {
        assert!(!fixture.moderator.calls().is_empty(), "the moderator was never called");
    }
    for level in ["DEBUG", "WARN"] {
        assert!(fixture.captured.logged(level), "the log has no line of level {level}");
    }
}
