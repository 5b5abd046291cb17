//! Windows of several users in a real Chromium, which all tests share ([`BrowserDriver`]).
//!
//! If a page has a fault (it logs to the console, violates its Content Security Policy, requests another host, opens a
//! dialog or fails to load a resource), the test fails at its next step, unless it takes the faults by [`Tab::faults`].

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::browser_driver::BrowserDriver;
use crate::kit::{Gateway, OutputChannel, TEST_TIMEOUT, eventually, pause};

/// The windows of one test. `Drop` closes them.
pub(super) struct Browser {
    driver: Arc<BrowserDriver>,
    /// The names of the windows.
    tabs: RefCell<Vec<String>>,
}

/// The settings of a window.
#[derive(Clone, Copy)]
pub(super) struct WindowOptions {
    pub(super) javascript: bool,
    pub(super) theme: &'static str,
    pub(super) width: u32,
    pub(super) locale: &'static str,
}

/// A window with its own cookies, for the pages of one gateway.
pub(super) struct Tab<'a> {
    browser: &'a Browser,
    gateway: &'a Gateway,
    name: String,
    origin: String,
    faults: RefCell<Vec<String>>,
}

/// A document that the browser has loaded.
#[derive(Debug)]
pub(super) struct LoadedPage {
    pub(super) status: u64,
    pub(super) path: String,
    pub(super) html: String,
}

pub(super) const WITH_SCRIPT: WindowOptions =
    WindowOptions { javascript: true, theme: "light", width: 1280, locale: "en-GB" };
pub(super) const WITHOUT_SCRIPT: WindowOptions = WindowOptions { javascript: false, ..WITH_SCRIPT };

// === impl Browser ===

impl Browser {
    #[track_caller]
    pub(super) fn start() -> Self {
        Self { driver: BrowserDriver::shared(), tabs: RefCell::default() }
    }

    /// A new window without cookies. It may load pages of the gateway and of `allowed_origins`.
    #[track_caller]
    pub(super) fn tab_beside<'a>(
        &'a self,
        gateway: &'a Gateway,
        look: WindowOptions,
        allowed_origins: &[&str],
    ) -> Tab<'a> {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let origin = format!("http://{}", gateway.address());
        let name = OPENED.fetch_add(1, Ordering::Relaxed).to_string();
        self.tabs.borrow_mut().push(name.clone());
        let tab = Tab { browser: self, gateway, name, origin: origin.clone(), faults: RefCell::default() };
        let mut origins = vec![origin.as_str()];
        origins.extend(allowed_origins);
        let WindowOptions { javascript, theme, width, locale } = look;
        let height = if width < 600 { 844 } else { 900 };
        tab.act(
            "open",
            json!({"origins": origins, "javascript": javascript, "theme": theme, "width": width, "height": height,
                "locale": locale}),
        );
        tab
    }

    #[track_caller]
    pub(super) fn tab<'a>(&'a self, gateway: &'a Gateway, look: WindowOptions) -> Tab<'a> {
        self.tab_beside(gateway, look, &[])
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        for name in self.tabs.take() {
            // There is nothing to close if the driver has ended.
            drop(self.driver.execute(json!({"deed": "close", "tab": name})));
        }
    }
}

// === impl Tab ===

impl Tab<'_> {
    /// Lets the driver do one action, and collects the faults that it reports.
    #[track_caller]
    fn try_act(&self, action: &str, arguments: Value) -> Result<Value, String> {
        let mut order = arguments;
        order["deed"] = json!(action);
        order["tab"] = json!(self.name);
        let answer = self.browser.driver.execute(order);
        let answer = answer.unwrap_or_else(|| panic!("the browser has ended at {action}"));
        let faults = answer["faults"].as_array().expect("a list of faults").iter();
        self.faults.borrow_mut().extend(faults.map(|fault| fault.as_str().unwrap_or_default().to_owned()));
        match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer["value"].clone()),
        }
    }

    #[track_caller]
    fn act(&self, action: &str, arguments: Value) -> Value {
        let result = self.try_act(action, arguments);
        let faults = self.faults.take();
        match result {
            Err(error) => panic!("{error}\n{faults:#?}\n{}", self.try_act("text", json!({})).unwrap_or_default()),
            Ok(value) => {
                assert!(faults.is_empty(), "{action}: {faults:#?}");
                value
            }
        }
    }

    #[track_caller]
    fn text_of(&self, action: &str, arguments: Value) -> String {
        self.act(action, arguments).as_str().expect("a text").to_owned()
    }

    #[track_caller]
    fn navigate(&self, action: &str, arguments: Value) -> LoadedPage {
        let seen = self.loaded_page(&self.act(action, arguments));
        assert!(seen.status > 0, "no document: {seen:?}");
        seen
    }

    fn loaded_page(&self, value: &Value) -> LoadedPage {
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let url = text("url");
        let path = url.strip_prefix(&self.origin).map_or_else(|| url.clone(), str::to_owned);
        let html = text("html");
        self.gateway.scan(OutputChannel::for_path(&path), html.as_bytes());
        let status = value["status"].as_u64().unwrap_or_default();
        LoadedPage { status, path, html }
    }

    pub(super) fn gateway(&self) -> &Gateway {
        self.gateway
    }

    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Opens a page: a path of the gateway, or a complete URL.
    #[track_caller]
    pub(super) fn go(&self, path: &str) -> LoadedPage {
        let url = if path.starts_with('/') { format!("{}{path}", self.origin) } else { path.to_owned() };
        self.navigate("go", json!({ "url": url }))
    }

    #[track_caller]
    pub(super) fn reload(&self) -> LoadedPage {
        self.navigate("reload", json!({}))
    }

    /// Clicks on an element that opens another page.
    #[track_caller]
    pub(super) fn follow(&self, role: &str, name: &str) -> LoadedPage {
        self.navigate("follow", json!({"role": role, "name": name}))
    }

    /// Clicks on the link to this path.
    #[track_caller]
    pub(super) fn follow_to(&self, path: &str) -> LoadedPage {
        self.navigate("follow_to", json!({ "path": path }))
    }

    /// Clicks on an element that does not leave the page.
    #[track_caller]
    pub(super) fn click(&self, role: &str, name: &str) {
        self.act("click", json!({"role": role, "name": name}));
    }

    /// Like [`Tab::click`]; waits until a fault with this word is reported, and discards all faults.
    #[track_caller]
    pub(super) fn click_for_fault(&self, role: &str, name: &str, word: &str) {
        self.try_act("click", json!({"role": role, "name": name})).expect("a click");
        self.wait_for_faults(1, word);
    }

    /// The number of visible elements with this role and name.
    #[track_caller]
    pub(super) fn count(&self, role: &str, name: &str) -> u64 {
        self.act("count", json!({"role": role, "name": name})).as_u64().expect("a count")
    }

    #[track_caller]
    pub(super) fn fill(&self, label: &str, value: &str) {
        self.act("fill", json!({"label": label, "value": value}));
    }

    /// The visible text of the page.
    #[track_caller]
    pub(super) fn text(&self) -> String {
        self.text_of("text", json!({}))
    }

    /// The texts of the elements that a selector finds.
    #[track_caller]
    pub(super) fn texts_of(&self, selector: &str) -> Vec<String> {
        let texts = self.act("inner", json!({ "selector": selector }));
        texts.as_array().expect("a list").iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
    }

    #[track_caller]
    pub(super) fn assert_text(&self, text: &str) {
        // A script may change the page only after the answer that it got.
        let start = Instant::now();
        let mut page = self.text();
        while !page.contains(text) {
            assert!(start.elapsed() < TEST_TIMEOUT, "`{text}` is not on the page:\n{page}");
            pause(Duration::from_millis(20));
            page = self.text();
        }
    }

    #[track_caller]
    pub(super) fn assert_no_text(&self, text: &str) {
        let page = self.text();
        assert!(!page.contains(text), "`{text}` is on the page:\n{page}");
    }

    #[track_caller]
    pub(super) fn clipboard(&self) -> String {
        self.text_of("clipboard", json!({}))
    }

    #[track_caller]
    pub(super) fn cookies(&self) -> Vec<Value> {
        self.act("cookies", json!({})).as_array().expect("cookies").clone()
    }

    /// Adds a cookie of the gateway to the window.
    #[track_caller]
    pub(super) fn give_cookie(&self, name: &str, value: &str) {
        self.act("give_cookie", json!({"cookie": {"name": name, "value": value, "url": self.origin}}));
    }

    #[track_caller]
    pub(super) fn evaluate(&self, code: &str) -> Value {
        self.act("evaluate", json!({ "code": code }))
    }

    /// Like [`Tab::evaluate`], but a fault of the page is left for [`Tab::faults_of`].
    #[track_caller]
    pub(super) fn try_evaluate(&self, code: &str) -> Value {
        self.try_act("evaluate", json!({ "code": code })).expect("a value")
    }

    /// The URL and the text of each frame of the page.
    #[track_caller]
    pub(super) fn frames(&self) -> Vec<Value> {
        self.act("frames", json!({})).as_array().expect("frames").clone()
    }

    #[track_caller]
    pub(super) fn press(&self, key: &str) {
        self.act("key", json!({ "key": key }));
    }

    #[track_caller]
    pub(super) fn press_and_navigate(&self, key: &str) -> LoadedPage {
        self.navigate("key_leads", json!({ "key": key }))
    }

    #[track_caller]
    pub(super) fn type_text(&self, text: &str) {
        self.act("type", json!({ "text": text }));
    }

    /// Role, name and value of the focused element.
    #[track_caller]
    pub(super) fn focused(&self) -> (String, String, String) {
        let value = self.act("focused", json!({}));
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        (text("role"), text("name"), text("value"))
    }

    /// True if the focused element has a visible focus ring.
    #[track_caller]
    pub(super) fn shows_focus(&self) -> bool {
        self.act("ring", json!({})) == json!(true)
    }

    /// Descriptions of the elements that are wider than the window.
    #[track_caller]
    pub(super) fn overflow(&self) -> Vec<String> {
        let found = self.act("overflow", json!({}));
        found.as_array().expect("a list").iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The violations that axe-core finds. The window needs JavaScript.
    #[track_caller]
    pub(super) fn accessibility_violations(&self) -> Vec<Value> {
        self.violations_of(&[])
    }

    /// The violations of those rules of axe-core that depend on the theme.
    #[track_caller]
    pub(super) fn color_violations(&self) -> Vec<Value> {
        self.violations_of(&["color-contrast", "link-in-text-block"])
    }

    #[track_caller]
    fn violations_of(&self, rules: &[&str]) -> Vec<Value> {
        self.act("inspect", json!({"rules": rules})).as_array().expect("a list").clone()
    }

    #[track_caller]
    pub(super) fn resize(&self, width: u32, theme: &str) {
        let height = if width < 600 { 844 } else { 900 };
        self.act("window", json!({"width": width, "height": height, "theme": theme}));
    }

    #[track_caller]
    pub(super) fn screenshot(&self, path: &Path, whole: bool) {
        self.act("picture", json!({"path": path, "whole": whole}));
    }

    /// Waits until at least `count` faults contain this word, and discards all faults.
    #[track_caller]
    pub(super) fn wait_for_faults(&self, count: usize, word: &str) {
        eventually("the browser reports faults", || {
            drop(self.try_act("text", json!({})));
            let is_enough = self.faults.borrow().iter().filter(|fault| fault.contains(word)).count() >= count;
            is_enough.then(|| self.faults.take())
        });
    }

    /// Opens the `<details>` element with this summary, which works without JavaScript.
    #[track_caller]
    pub(super) fn open_details(&self, word: &str) {
        self.act("unfold", json!({ "text": word }));
    }

    /// Runs `work`, which causes faults, and returns them.
    #[track_caller]
    pub(super) fn faults_of(&self, work: impl FnOnce(&Self)) -> Vec<String> {
        work(self);
        self.faults.take()
    }

    /// Like [`Tab::go`], but returns an error if no page is loaded.
    pub(super) fn try_go(&self, url: &str) -> Result<LoadedPage, String> {
        self.try_act("go", json!({ "url": url })).map(|value| self.loaded_page(&value))
    }

    /// Closes the window. Panics if there was a fault since the last step.
    #[track_caller]
    pub(super) fn close(self) {
        self.act("close", json!({}));
    }
}
