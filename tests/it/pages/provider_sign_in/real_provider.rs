//! The real provider as a process, and a person who uses its form.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::super::visitor::{Form, forms, post};
use super::flow::{AuthorizationRequest, CALLBACK, gateway_for};
use crate::clients::install::node;
use crate::kit::{Answer, CLIENT_ID, CLIENT_SECRET, Call, Gateway};

const PACKAGE: &str = "oidc-provider@8.8.1";
const SCRIPT: &str = "oidc_provider.mjs";
/// The maximum number of redirects of the provider between two pages.
const MAX_STEPS: usize = 10;

/// The provider. Dropping it ends the process.
pub(super) struct RealProvider {
    child: Child,
    issuer: String,
}

/// A person with a browser that has cookies of the provider.
pub(super) struct ProviderVisitor<'a> {
    provider: &'a RealProvider,
    cookies: BTreeMap<String, String>,
}

// === impl RealProvider ===

impl RealProvider {
    /// A provider that knows the gateway by its secret.
    #[track_caller]
    pub(super) fn start() -> Self {
        Self::with(&json!({"client_secret": CLIENT_SECRET}))
    }

    /// A provider for which the gateway is a public client.
    #[track_caller]
    pub(super) fn for_public_client() -> Self {
        Self::with(&json!({}))
    }

    #[track_caller]
    fn with(further: &Value) -> Self {
        let mut settings = json!({"client_id": CLIENT_ID});
        // Every port matches: the gateway chooses its port later.
        settings["redirect_uris"] = json!([format!("http://127.0.0.1{CALLBACK}")]);
        for (name, value) in further.as_object().expect("settings") {
            settings[name] = value.clone();
        }
        let mut command = Command::new("node");
        command.arg(SCRIPT).current_dir(script_folder()).env("SETTINGS", settings.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("node starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        Self { child, issuer: ready["issuer"].as_str().expect("an issuer").to_owned() }
    }

    pub(super) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// A gateway whose users can sign in with this provider; `further` has more lines of the table.
    #[track_caller]
    pub(super) fn gateway(&self, further: &str) -> Gateway {
        gateway_for(&self.issuer, further)
    }

    fn address(&self) -> SocketAddr {
        self.issuer.trim_start_matches("http://").parse().expect("an address")
    }

    /// Changes claims of an account; `null` removes one.
    #[track_caller]
    pub(super) fn set_claims(&self, account: &str, claims: &Value) {
        let answer = Call::patch(&format!("/accounts/{account}")).json(claims).send(self.address());
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// The number of exchanges of codes that have succeeded.
    #[track_caller]
    pub(super) fn count_exchanges(&self) -> u64 {
        let answer = Call::get("/grants").send(self.address()).ok_json();
        answer["tokens"].as_u64().expect("a number")
    }
}

impl Drop for RealProvider {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The folder with the script and its packages. The script is copied once: another test may be reading it.
fn script_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| node("IMAGATE_NODE_OIDC_PROVIDER", "oidc-provider", &[PACKAGE], &[SCRIPT]))
}

// === impl ProviderVisitor ===

impl<'a> ProviderVisitor<'a> {
    pub(super) fn new(provider: &'a RealProvider) -> Self {
        Self { provider, cookies: BTreeMap::new() }
    }

    /// Follows the request, chooses this account if the provider asks, and returns the path of the callback.
    #[track_caller]
    pub(super) fn choose(&mut self, request: &AuthorizationRequest, account: &str) -> String {
        let answer = self.open(request);
        match question_on(&answer) {
            Some([choice, _]) => self.answer_question(&choice.with(&[("login", account)])),
            None => callback_of(&answer),
        }
    }

    /// As [`ProviderVisitor::choose`], but the provider must ask.
    #[track_caller]
    pub(super) fn choose_again(&mut self, request: &AuthorizationRequest, account: &str) -> String {
        let answer = self.open(request);
        let [choice, _] = question_on(&answer).expect("the provider asks again");
        self.answer_question(&choice.with(&[("login", account)]))
    }

    /// Follows the request, cancels, and returns the path of the callback.
    #[track_caller]
    pub(super) fn cancel(&mut self, request: &AuthorizationRequest) -> String {
        let answer = self.open(request);
        let [_, cancellation] = question_on(&answer).expect("the provider asks");
        self.answer_question(&cancellation)
    }

    #[track_caller]
    fn open(&mut self, request: &AuthorizationRequest) -> Answer {
        assert!(request.url.starts_with(&self.provider.issuer), "{}", request.url);
        let path = self.local_path(&request.url).expect("a path of the provider");
        self.follow(Call::get(&path))
    }

    #[track_caller]
    fn answer_question(&mut self, form: &Form) -> String {
        let answer = self.follow(post(&form.action, &form.fields));
        callback_of(&answer)
    }

    /// Sends a request, and follows redirects as long as they stay at the provider.
    #[track_caller]
    fn follow(&mut self, call: Call) -> Answer {
        let mut answer = self.send(call);
        for _ in 0..MAX_STEPS {
            let next = answer.header("location").and_then(|location| self.local_path(location));
            let Some(path) = next else { return answer };
            answer = self.send(Call::get(&path));
        }
        panic!("too many redirects: {answer:?}")
    }

    #[track_caller]
    fn send(&mut self, call: Call) -> Answer {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let call = if cookies.is_empty() { call } else { call.header("cookie", &cookies.join("; ")) };
        let answer = call.send(self.provider.address());
        assert!(answer.status < 400, "the provider refuses: {} {}", answer.status, answer.text());
        for (_, cookie) in answer.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let (name, value) = cookie.split(';').next().and_then(|pair| pair.split_once('=')).expect("a cookie");
            if value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        answer
    }

    /// The path of a URL of the provider; `None` for another host.
    fn local_path(&self, url: &str) -> Option<String> {
        let path = url.strip_prefix(&self.provider.issuer).unwrap_or(url);
        path.starts_with('/').then(|| path.to_owned())
    }
}

/// The path of the callback to which an answer of the provider redirects.
#[track_caller]
fn callback_of(answer: &Answer) -> String {
    let location = answer.header("location").unwrap_or_else(|| panic!("no redirect: {}", answer.text()));
    let start = location.find(CALLBACK).unwrap_or_else(|| panic!("another redirect: {location}"));
    location[start..].to_owned()
}

/// The forms of the question for the account: its answer, and its cancellation. `None` if the provider does not ask.
#[track_caller]
fn question_on(answer: &Answer) -> Option<[Form; 2]> {
    (answer.status == 200).then(|| forms(&answer.text()).try_into().expect("two forms"))
}
