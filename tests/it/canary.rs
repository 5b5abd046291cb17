//! LEAK over everything: secrets with names of their own go in by every door, at the most verbose level of the log, and
//! are searched for in every byte that comes out by any.
//!
//! What is searched: every byte that callers got, both outputs of every process, both outputs of every command, and every
//! file below the data directory, raw. Each canary is searched for as it is, in hex, and in base64 wherever it may begin.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::{
    Account, Answer, Call, Canary, CapturedOutput, FLAGGED, FakeModerator, FakeTokens, FakeUpstream, Form, Gateway,
    OutputChannel, alpha_png, eventually, hex,
};

/// A part of the program that can leak only where it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
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

/// What this version has. A piece that comes later is written here when it is there.
const PIECES: [Piece; 5] = [Piece::Oauth, Piece::Moderation, Piece::Replays, Piece::MasterKey, Piece::Commands];

const TOKEN: &str = "sk-canary-upstream-token-9f2c41d7";
const ADDED: &str = "sk-canary-added-by-command-77ab03";
const PATH: &str = "canary-path-of-the-upstream-1b7e";
const PLAIN_HEADER: &str = "canary-plain-header-5c20e9";
const SECRET_HEADER: &str = "canary-secret-header-a81d36";
const PROMPT: &str = "a canary on a branch, prompt-c4n4ry-62fd";
const STRANGER: &str = "sk-img-strangercanary-aGVsbG8gd29ybGQgdGhpcyBpcyBub3QgYSBrZXk";
const REPEAT: &str = "idempotency-canary-3e9f4b1c";
const MODERATION: &str = "sk-canary-moderation-key-c35a90";
const FILE: &[u8] = b"canary-inside-an-uploaded-file-d0c7";
/// 32 bytes of text, so that the key itself can be searched for and not only its spelling.
const MASTER: &[u8; 32] = b"canary-master-key-0123456789abcd";
const NEXT_MASTER: &[u8; 32] = b"canary-next-master-9876543210fed";
/// Of the account, from which the fake token endpoint makes its secrets.
const BIRD: &str = "orchidbird";

struct Aviary {
    upstream: FakeUpstream,
    tokens: FakeTokens,
    moderator: FakeModerator,
    gateway: Gateway,
    hay: CapturedOutput,
}

// === impl Aviary ===

impl Aviary {
    #[track_caller]
    fn open() -> Self {
        let (upstream, tokens, moderator) = (FakeUpstream::start(), FakeTokens::start(), FakeModerator::start());
        let base_url = format!("http://{}/{PATH}/v1", upstream.address());
        let mut account = Account::with_base_url("finch", base_url.clone())
            .with_line(&format!("headers = {{ x-plain = \"{PLAIN_HEADER}\", x-api-key = {{ env = \"IT_HEADER\" }} }}"));
        account.token = TOKEN.to_owned();
        let mut accounts =
            vec![account, Account::with_base_url("sparrow", "http://127.0.0.1:9/v1".to_owned()).with_free_tier()];
        if has(Piece::Oauth) {
            accounts.push(Account::oauth(BIRD, &upstream, &tokens));
        }
        let mut top = String::new();
        if has(Piece::MasterKey) {
            top.push_str("master_key = { env = \"IT_MASTER\" }\n");
        }
        top.push_str("[deadlines]\nconnect = \"1s\"\nimage = \"2s\"\n");
        if has(Piece::Moderation) {
            top.push_str(&filter(&moderator));
        }
        let (master, next) = (hex(MASTER), hex(NEXT_MASTER));
        let secrets = [
            ("IT_HEADER", SECRET_HEADER),
            ("IT_MODERATION", MODERATION),
            ("IT_MASTER", &master),
            ("IT_NEXT_MASTER", &next),
            ("IT_ADDED", ADDED),
            ("IMAGATE_LOG", "trace"),
            ("RUST_LOG", "trace"),
            ("RUST_BACKTRACE", "1"),
        ];
        let gateway = Gateway::with_secrets(&top, &accounts, &secrets);
        Self { upstream, tokens, moderator, gateway, hay: CapturedOutput::default() }
    }

    /// Every secret, and where it is at home.
    fn canaries(&self) -> Vec<Canary> {
        let key = self.gateway.secret();
        let private = key.rsplit('-').next().expect("the private part of a key");
        vec![
            Canary::new("upstream token", TOKEN, &[]),
            Canary::new("token of an added account", ADDED, &[]),
            Canary::new("address of the upstream", PATH, &[OutputChannel::Accounts, OutputChannel::Settings]),
            Canary::new("plain header of an account", PLAIN_HEADER, &[OutputChannel::Settings]),
            Canary::new("secret header of an account", SECRET_HEADER, &[]),
            Canary::new("refresh token", format!("refresh-{BIRD}"), &[]),
            Canary::new("client secret", format!("secret-{BIRD}"), &[]),
            Canary::new("access token", format!("access-{BIRD}"), &[]),
            Canary::new("moderation key", MODERATION, &[]),
            Canary::new("key of a caller", key, &[]),
            Canary::new("private part of that key", private, &[]),
            Canary::new("key of a stranger", STRANGER, &[]),
            Canary::new("idempotency key", REPEAT, &[]),
            // A caller may read its own prompt, for instance as the revised one.
            Canary::new("prompt", PROMPT, &[OutputChannel::Answer]),
            Canary::new("uploaded file", FILE, &[]),
            Canary::new("master key", MASTER, &[]),
            Canary::new("master key as written", hex(MASTER), &[]),
            Canary::new("next master key", NEXT_MASTER, &[]),
            Canary::new("next master key as written", hex(NEXT_MASTER), &[]),
        ]
    }

    /// Sends, and keeps every byte of the answer, also of one that breaks off.
    fn ask(&mut self, call: Call) -> Option<Answer> {
        let answer = call.try_send(self.gateway.address());
        if let Ok(answer) = &answer {
            let heads = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect::<String>();
            self.hay.add(OutputChannel::Answer, "an answer", [heads.as_bytes(), &answer.body].concat());
        }
        answer.ok()
    }

    /// As [`Aviary::ask`], of an account that does not rest: what no upstream sees shows nothing.
    #[track_caller]
    fn ask_upstream(&mut self, call: &Call) {
        let before = self.upstream.attempts();
        self.ask(call.clone());
        if self.upstream.attempts() == before {
            self.revive();
            self.ask(call.clone());
            assert!(self.upstream.attempts() > before, "no upstream was asked");
        }
    }

    /// Takes back whatever keeps accounts from serving.
    #[track_caller]
    fn revive(&mut self) {
        for name in ["finch", BIRD] {
            self.command(OutputChannel::Output, &["account", "enable", name]);
        }
        eventually("the accounts serve again", || {
            let call = self.generation("", json!({}));
            self.ask(call).filter(|answer| answer.status == 200)
        });
    }

    fn generation(&self, script: &str, with: Value) -> Call {
        let mut with = with;
        with["prompt"] = json!(format!("{PROMPT} [[{script}]]"));
        self.gateway.call(with)
    }

    fn edit(&self, script: &str) -> Call {
        let prompt = format!("{PROMPT} [[{script}]]");
        let file = [alpha_png(64, 64).as_slice(), FILE].concat();
        let form = Form::new().text("model", "gpt-image-2").text("prompt", &prompt).file("image[]", &file);
        form.call().key(self.gateway.secret())
    }

    /// Runs a command and keeps both of its outputs.
    #[track_caller]
    fn command(&mut self, place: OutputChannel, words: &[&str]) {
        let done = self.gateway.run_command(words);
        assert!(done.code.is_some(), "{words:?} never ended");
        self.hay.add(place, &words.join(" "), format!("{}\n{}", done.stdout, done.stderr).into_bytes());
    }

    fn keep_the_log(&mut self) {
        let said = self.gateway.output();
        self.hay.add(OutputChannel::Log, "the log", said.into_bytes());
    }

    /// Everything that an upstream can do, whole and streamed, generated and edited.
    fn what_callers_do(&mut self) {
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
                self.ask_upstream(&call);
            }
        }
        for events in ["p,cut", "p,e", "e-policy", "p,half,eof", "junk", "twin"] {
            let call = self.generation(&format!("events={events}"), json!({"stream": true, "partial_images": 1}));
            self.ask_upstream(&call);
        }
        self.revive();
    }

    /// Requests that never become jobs.
    fn what_strangers_do(&mut self) {
        let secret = self.gateway.secret().to_owned();
        let fields = |with: Value| crate::kit::request(with);
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
            self.ask(call);
        }
        // Callers who leave: with half a body, and while the upstream works.
        let half = Call::generation().key(&secret).header("content-type", "application/json").announcing_only(10_000);
        drop(half.dispatch(self.gateway.address()));
        let attempts = self.upstream.attempts();
        let call = self.generation("delay=300", json!({}));
        let left = call.dispatch(self.gateway.address());
        eventually("the attempt runs", || (self.upstream.attempts() > attempts).then_some(()));
        drop(left);
    }

    /// The same twice under one idempotency key, and then something else under it.
    fn repeat(&mut self, script: &str) {
        let name = format!("{REPEAT}-{}", script.len());
        for count in [1, 1, 2] {
            let call = self.generation(script, json!({"n": count})).header("idempotency-key", &name);
            self.ask(call);
        }
    }

    fn what_is_stored(&mut self) {
        if has(Piece::Replays) {
            for script in ["", "b64=200000", "status=400 body=policy"] {
                self.repeat(script);
            }
        }
        if has(Piece::Moderation) {
            for prompt in [format!("{PROMPT} {FLAGGED}"), format!("{PROMPT} verboten"), PROMPT.to_owned()] {
                let call = self.gateway.call(json!({"prompt": prompt}));
                self.ask(call);
            }
            self.moderator.hang_up();
            let call = self.gateway.call(json!({"prompt": PROMPT}));
            self.ask(call);
        }
    }

    #[track_caller]
    fn what_operators_do(&mut self) {
        if has(Piece::Commands) {
            let base_url = format!("http://{}/v1", self.upstream.address());
            let add =
                ["account", "add", "--name", "wren", "--base-url", &base_url, "--api-key-env", "IT_ADDED", "--json"];
            self.command(OutputChannel::Accounts, &add);
            for name in ["finch", "wren", "sparrow", BIRD] {
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

    /// A setting that is wrong is told without its value.
    fn what_mistakes_do(&mut self) {
        let good = std::fs::read_to_string(self.gateway.config()).expect("a configuration");
        let bad = good.replace("{ env = \"IT_HEADER\" }", &format!("[\"{SECRET_HEADER}\"]"));
        let bad = bad.replacen("api_key = { env", &format!("api_key = \"{TOKEN}\"\n# {{ env"), 1);
        std::fs::write(self.gateway.config(), bad).expect("a configuration");
        self.command(OutputChannel::Output, &["config", "check"]);
        self.command(OutputChannel::Output, &["serve"]);
        std::fs::write(self.gateway.config(), good).expect("a configuration");
    }
}

fn has(piece: Piece) -> bool {
    PIECES.contains(&piece)
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
fn no_canary_comes_out_by_any_door() {
    let mut aviary = Aviary::open();
    aviary.what_callers_do();
    aviary.what_strangers_do();
    aviary.what_operators_do();
    aviary.what_callers_do();
    aviary.what_is_stored();
    aviary.keep_the_log();
    aviary.gateway.kill();
    aviary.hay.add_files(&aviary.gateway.home().join("data"));
    aviary.gateway.start();
    aviary.what_is_stored();
    aviary.what_strangers_do();
    aviary.what_mistakes_do();
    aviary.what_operators_do();
    if has(Piece::MasterKey) {
        aviary.command(OutputChannel::Output, &["master-key", "rotate", "--new-key-env", "IT_NEXT_MASTER"]);
    }
    // In the middle of something, so that whatever lies about at such a moment lies about.
    let call = aviary.generation("stall=middle b64=400000", json!({}));
    let attempts = aviary.upstream.attempts();
    let running = call.dispatch(aviary.gateway.address());
    eventually("the attempt runs", || (aviary.upstream.attempts() > attempts).then_some(()));
    aviary.hay.add_files(&aviary.gateway.home().join("data"));
    drop(running);
    aviary.gateway.terminate();
    aviary.gateway.server().wait(Duration::from_secs(40));
    aviary.keep_the_log();
    aviary.hay.add_files(&aviary.gateway.home().join("data"));
    proves_something(&aviary);
    let found = aviary.hay.search(&aviary.canaries());
    println!("{}", aviary.hay.describe());
    assert!(found.is_empty(), "{} leaks:\n{}", found.len(), found.join("\n"));
}

/// A search that finds nothing proves nothing where nothing went in.
#[track_caller]
fn proves_something(aviary: &Aviary) {
    let ledger = aviary.upstream.ledger();
    for token in [TOKEN, ADDED] {
        let used = ledger.iter().filter(|attempt| attempt.token == token).count();
        println!("{used} attempts with {token}");
    }
    assert!(ledger.iter().any(|attempt| attempt.token == TOKEN && attempt.path.contains(PATH)));
    assert!(ledger.iter().any(|attempt| attempt.header("x-api-key") == Some(SECRET_HEADER)));
    assert!(ledger.iter().any(|attempt| attempt.fields()["prompt"].as_str().is_some_and(|text| text.contains(PROMPT))));
    if has(Piece::Oauth) {
        assert!(aviary.tokens.ledger().iter().any(|exchange| exchange.token.is_some()), "no token was exchanged");
    }
    if has(Piece::Moderation) {
        assert!(!aviary.moderator.calls().is_empty(), "the moderator was never asked");
    }
    for level in ["DEBUG", "WARN"] {
        assert!(aviary.hay.logged(level), "the log has no line of level {level}");
    }
}
