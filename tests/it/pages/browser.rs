//! A real Chromium: windows of several people in one process, driven by `tests/browser/driver.mjs` over two pipes.
//!
//! Whatever a page does that no page may do (complain on the console, break its policy, ask another host, open a dialog,
//! fail to load what it needs) fails the test at the next step, unless the test asks for it by [`Tab::faults`].

use std::cell::{Cell, RefCell};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::clients::install::modules;
use crate::kit::{Gateway, OutputChannel, TEST_TIMEOUT, env_setting, eventually, pause};

const PACKAGES: [&str; 2] = ["playwright-core@1.65.1", "axe-core@4.14.1"];
const SCRIPTS: [&str; 2] = ["driver.mjs", "faults.mjs"];
/// What Debian, Fedora and others call it.
const PROGRAMS: [&str; 2] = ["chromium", "chromium-browser"];

/// The browser. Dropping it ends every process of it.
pub(super) struct Browser {
    child: Child,
    wire: RefCell<Option<(ChildStdin, BufReader<ChildStdout>)>>,
    tabs: Cell<usize>,
    /// Its profile and whatever else it writes.
    _home: TempDir,
    /// A browser is a heavy thing: there is one at a time.
    _turn: MutexGuard<'static, ()>,
}

/// How somebody looks at the pages.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) javascript: bool,
    pub(super) theme: &'static str,
    pub(super) width: u32,
    pub(super) locale: &'static str,
}

/// The window of somebody, with cookies of its own, at one gateway.
pub(super) struct Tab<'a> {
    browser: &'a Browser,
    gateway: &'a Gateway,
    name: String,
    origin: String,
    faults: RefCell<Vec<String>>,
}

/// A document as it was shown.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) status: u64,
    pub(super) path: String,
    pub(super) html: String,
}

pub(super) const WITH_SCRIPT: Look = Look { javascript: true, theme: "light", width: 1280, locale: "en-GB" };
pub(super) const WITHOUT_SCRIPT: Look = Look { javascript: false, ..WITH_SCRIPT };

// === impl Browser ===

impl Browser {
    #[track_caller]
    pub(super) fn start() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let program = chromium();
        let folder = modules("IMAGATE_NODE_BROWSER", "browser", &PACKAGES);
        // A module finds only packages beside itself.
        for name in SCRIPTS {
            std::fs::copy(scripts().join(name), folder.join(name)).expect("a copy of the script");
        }
        let home = TempDir::new().expect("a directory");
        let mut command = Command::new("node");
        command.arg(SCRIPTS[0]).current_dir(folder).env("CHROMIUM", program);
        command.env("HOME", home.path()).env("TMPDIR", home.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("node starts");
        let wire = child.stdin.take().zip(child.stdout.take().map(BufReader::new));
        Self { child, wire: RefCell::new(wire), tabs: Cell::new(0), _home: home, _turn: turn }
    }

    /// A new window without a cookie. Besides the gateway's it may see pages of `friends`.
    #[track_caller]
    pub(super) fn tab_beside<'a>(&'a self, gateway: &'a Gateway, look: Look, friends: &[&str]) -> Tab<'a> {
        self.tabs.set(self.tabs.get() + 1);
        let origin = format!("http://{}", gateway.address());
        let name = self.tabs.get().to_string();
        let tab = Tab { browser: self, gateway, name, origin: origin.clone(), faults: RefCell::default() };
        let mut origins = vec![origin.as_str()];
        origins.extend(friends);
        let Look { javascript, theme, width, locale } = look;
        let height = if width < 600 { 844 } else { 900 };
        tab.act(
            "open",
            json!({"origins": origins, "javascript": javascript, "theme": theme, "width": width, "height": height,
                "locale": locale}),
        );
        tab
    }

    #[track_caller]
    pub(super) fn tab<'a>(&'a self, gateway: &'a Gateway, look: Look) -> Tab<'a> {
        self.tab_beside(gateway, look, &[])
    }

    fn order(&self, order: &Value) -> Value {
        let mut wire = self.wire.borrow_mut();
        let (stdin, stdout) = wire.as_mut().expect("a driver");
        let mut line = String::new();
        let sent = writeln!(stdin, "{order}");
        let read = stdout.read_line(&mut line);
        assert!(sent.is_ok() && matches!(read, Ok(1..)), "the browser is gone at {order}: {sent:?} {read:?}");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

impl Drop for Browser {
    /// The driver closes the browser when nothing more can come.
    fn drop(&mut self) {
        self.wire.borrow_mut().take();
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > TEST_TIMEOUT {
                // The browser ends when the pipe to its driver breaks.
                drop(self.child.kill());
            }
            pause(std::time::Duration::from_millis(10));
        }
    }
}

/// Where the browser is; a test without one fails.
#[track_caller]
fn chromium() -> PathBuf {
    let path = env_setting("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut programs = PROGRAMS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let found = programs.find(|program| program.is_file());
    found.expect("Chromium is not installed; `cargo xtask test --only tools` says how it is")
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser")
}

// === impl Tab ===

impl Tab<'_> {
    /// Does one thing, and keeps what went wrong beside it.
    #[track_caller]
    fn attempt(&self, deed: &str, with: Value) -> Result<Value, String> {
        let mut order = with;
        order["deed"] = json!(deed);
        order["tab"] = json!(self.name);
        let answer = self.browser.order(&order);
        let faults = answer["faults"].as_array().expect("a list of faults").iter();
        self.faults.borrow_mut().extend(faults.map(|fault| fault.as_str().unwrap_or_default().to_owned()));
        match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer["value"].clone()),
        }
    }

    #[track_caller]
    fn act(&self, deed: &str, with: Value) -> Value {
        let done = self.attempt(deed, with);
        let faults = self.faults.take();
        match done {
            Err(error) => panic!("{error}\n{faults:#?}\n{}", self.attempt("text", json!({})).unwrap_or_default()),
            Ok(value) => {
                assert!(faults.is_empty(), "{deed}: {faults:#?}");
                value
            }
        }
    }

    #[track_caller]
    fn text_of(&self, deed: &str, with: Value) -> String {
        self.act(deed, with).as_str().expect("a text").to_owned()
    }

    #[track_caller]
    fn travel(&self, deed: &str, with: Value) -> Seen {
        let seen = self.seen(&self.act(deed, with));
        assert!(seen.status > 0, "no document: {seen:?}");
        seen
    }

    fn seen(&self, value: &Value) -> Seen {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let url = text("url");
        let path = url.strip_prefix(&self.origin).map_or_else(|| url.clone(), str::to_owned);
        let html = text("html");
        self.gateway.scan(OutputChannel::for_path(&path), html.as_bytes());
        let status = value["status"].as_u64().unwrap_or_default();
        Seen { status, path, html }
    }

    pub(super) fn gateway(&self) -> &Gateway {
        self.gateway
    }

    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Opens a page of the gateway, or one of elsewhere.
    #[track_caller]
    pub(super) fn go(&self, path: &str) -> Seen {
        let url = if path.starts_with('/') { format!("{}{path}", self.origin) } else { path.to_owned() };
        self.travel("go", json!({ "url": url }))
    }

    #[track_caller]
    pub(super) fn reload(&self) -> Seen {
        self.travel("reload", json!({}))
    }

    /// Clicks on what leads to another page.
    #[track_caller]
    pub(super) fn follow(&self, role: &str, name: &str) -> Seen {
        self.travel("follow", json!({"role": role, "name": name}))
    }

    /// Clicks on the link that leads there.
    #[track_caller]
    pub(super) fn follow_to(&self, path: &str) -> Seen {
        self.travel("follow_to", json!({ "path": path }))
    }

    /// Clicks on what stays on the page.
    #[track_caller]
    pub(super) fn click(&self, role: &str, name: &str) {
        self.act("click", json!({"role": role, "name": name}));
    }

    /// How many things with this role and name can be seen.
    #[track_caller]
    pub(super) fn count(&self, role: &str, name: &str) -> u64 {
        self.act("count", json!({"role": role, "name": name})).as_u64().expect("a count")
    }

    #[track_caller]
    pub(super) fn fill(&self, label: &str, value: &str) {
        self.act("fill", json!({"label": label, "value": value}));
    }

    /// What can be read on the page.
    #[track_caller]
    pub(super) fn text(&self) -> String {
        self.text_of("text", json!({}))
    }

    /// The texts of what a selector finds.
    #[track_caller]
    pub(super) fn inner(&self, selector: &str) -> Vec<String> {
        let texts = self.act("inner", json!({ "selector": selector }));
        texts.as_array().expect("a list").iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
    }

    #[track_caller]
    pub(super) fn says(&self, text: &str) {
        let all = self.text();
        assert!(all.contains(text), "`{text}` is not on the page:\n{all}");
    }

    #[track_caller]
    pub(super) fn does_not_say(&self, text: &str) {
        let all = self.text();
        assert!(!all.contains(text), "`{text}` is on the page:\n{all}");
    }

    #[track_caller]
    pub(super) fn clipboard(&self) -> String {
        self.text_of("clipboard", json!({}))
    }

    #[track_caller]
    pub(super) fn cookies(&self) -> Vec<Value> {
        self.act("cookies", json!({})).as_array().expect("cookies").clone()
    }

    /// Puts a cookie where the browser keeps those of the gateway.
    #[track_caller]
    pub(super) fn give_cookie(&self, name: &str, value: &str) {
        self.act("give_cookie", json!({"cookie": {"name": name, "value": value, "url": self.origin}}));
    }

    #[track_caller]
    pub(super) fn evaluate(&self, code: &str) -> Value {
        self.act("evaluate", json!({ "code": code }))
    }

    /// Address and text of each frame inside the page.
    #[track_caller]
    pub(super) fn frames(&self) -> Vec<Value> {
        self.act("frames", json!({})).as_array().expect("frames").clone()
    }

    #[track_caller]
    pub(super) fn press(&self, key: &str) {
        self.act("key", json!({ "key": key }));
    }

    #[track_caller]
    pub(super) fn press_to_leave(&self, key: &str) -> Seen {
        self.travel("key_leads", json!({ "key": key }))
    }

    #[track_caller]
    pub(super) fn write(&self, text: &str) {
        self.act("type", json!({ "text": text }));
    }

    /// Role, name and value of what has the focus.
    #[track_caller]
    pub(super) fn focused(&self) -> (String, String, String) {
        let value = self.act("focused", json!({}));
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        (text("role"), text("name"), text("value"))
    }

    /// Whether it can be seen what has the focus.
    #[track_caller]
    pub(super) fn shows_focus(&self) -> bool {
        self.act("ring", json!({})) == json!(true)
    }

    /// What is wider than the window.
    #[track_caller]
    pub(super) fn overflow(&self) -> Vec<String> {
        let found = self.act("overflow", json!({}));
        found.as_array().expect("a list").iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
    }

    /// What axe-core finds. It needs a page with scripts switched on.
    #[track_caller]
    pub(super) fn inspect(&self) -> Vec<Value> {
        self.act("inspect", json!({})).as_array().expect("a list").clone()
    }

    #[track_caller]
    pub(super) fn resize(&self, width: u32, theme: &str) {
        let height = if width < 600 { 844 } else { 900 };
        self.act("window", json!({"width": width, "height": height, "theme": theme}));
    }

    #[track_caller]
    pub(super) fn picture(&self, path: &Path, whole: bool) {
        self.act("picture", json!({"path": path, "whole": whole}));
    }

    /// Waits until so many faults with this word have come, and forgives them.
    #[track_caller]
    pub(super) fn wait_for_faults(&self, count: usize, word: &str) {
        eventually("the browser complains", || {
            drop(self.attempt("text", json!({})));
            let is_enough = self.faults.borrow().iter().filter(|fault| fault.contains(word)).count() >= count;
            is_enough.then(|| self.faults.take())
        });
    }

    /// Opens what lies behind a word, which works without a script.
    #[track_caller]
    pub(super) fn unfold(&self, word: &str) {
        self.act("unfold", json!({ "text": word }));
    }

    /// Does something at which faults are expected, and gives them.
    #[track_caller]
    pub(super) fn faults(&self, work: impl FnOnce(&Self)) -> Vec<String> {
        work(self);
        self.faults.take()
    }

    /// As [`Tab::go`], where no page may come of it.
    pub(super) fn try_go(&self, url: &str) -> Result<Seen, String> {
        self.attempt("go", json!({ "url": url })).map(|value| self.seen(&value))
    }

    /// Closes the window, and whatever went wrong until then fails the test.
    #[track_caller]
    pub(super) fn close(self) {
        self.act("close", json!({}));
    }
}
