//! Every page in every state. A normal test run checks the accessibility and the width of each page, on desktop and
//! phone and in the light and dark theme; `cargo xtask screenshots` writes a screenshot of each.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::browser::{Browser, Tab, WITH_SCRIPT, WindowOptions};
use super::identity_proof::age_sessions;
use super::seed::{ItemPaths, Seeded};
use super::users::{
    ADA, ADAS_PASSWORD, BEN, BENS_PASSWORD, link_in, secret_in, setup_path, sign_in, sign_in_at, token_in, watch_link,
    watch_passwords,
};
use super::visitor::Visitor;
use crate::kit::{Gateway, OutputChannel, env_setting, totp_code};

const WIDE: u32 = 1280;
const WIDEST: u32 = 1920;
const PHONE: u32 = 390;
const CHINESE: WindowOptions = WindowOptions { locale: "zh-CN", ..WITH_SCRIPT };

/// The windows and themes in which each state is handled.
fn looks() -> impl Iterator<Item = (u32, &'static str)> {
    let looks = [WIDE, PHONE].into_iter().flat_map(|width| ["light", "dark"].map(|theme| (width, theme)));
    looks.chain([(WIDEST, "light")])
}

/// Handles each page in each of its states.
trait StateHandler {
    #[track_caller]
    fn handle_state(&mut self, name: &str, tab: &Tab<'_>);
}

/// Visits every page of a gateway without users and keys, from the setup link to the first sign-in.
fn visit_new_gateway(browser: &Browser, handler: &mut dyn StateHandler) {
    let gateway = Gateway::simulated();
    watch_passwords(&gateway);
    let path = setup_path(&gateway);
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    tab.go(&path);
    handler.handle_state("setup", &tab);
    tab.fill("User name", ADA);
    tab.fill("Password", "short");
    tab.fill("Repeat password", "other");
    tab.follow("button", "Create admin and continue");
    handler.handle_state("setup-refused", &tab);
    tab.fill("User name", ADA);
    tab.fill("Password", ADAS_PASSWORD);
    tab.fill("Repeat password", ADAS_PASSWORD);
    tab.follow("button", "Create admin and continue");
    for page in ["start", "keys", "usage", "records", "people", "groups", "accounts", "prices", "audit", "profile"] {
        tab.go(&format!("/{page}"));
        handler.handle_state(&format!("{page}-empty"), &tab);
    }
    visit_playground(&tab, handler);
    tab.go("/keys/nothing-here");
    handler.handle_state("not-found", &tab);
    let stranger = browser.tab(&gateway, WITH_SCRIPT);
    stranger.go(&path);
    handler.handle_state("link-used", &stranger);
    stranger.go("/docs");
    handler.handle_state("docs-of-a-visitor", &stranger);
    stranger.go("/sign-in");
    handler.handle_state("sign-in", &stranger);
    for (times, name) in [(1, "sign-in-wrong"), (5, "sign-in-slow")] {
        for _ in 0..times {
            stranger.fill("User name", "nobody");
            stranger.fill("Password", "a password that is wrong");
            if stranger.follow("button", "Sign in").status == 429 {
                break;
            }
        }
        handler.handle_state(name, &stranger);
    }
    let chinese = browser.tab(&gateway, CHINESE);
    chinese.go("/sign-in");
    handler.handle_state("sign-in-zh", &chinese);
}

/// Visits every page of a gateway that has been in use for a month.
fn visit_used_gateway(browser: &Browser, handler: &mut dyn StateHandler) {
    let seeded = Seeded::start();
    let (_, _, paths) = seeded.fill_with_data();
    let gateway = &seeded.gateway;
    let tab = browser.tab(gateway, WITH_SCRIPT);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    visit_lists(&tab, handler, &paths);
    visit_key_forms(&tab, gateway, handler, &paths);
    visit_people_forms(&tab, gateway, handler, &paths);
    visit_price_form(&tab, handler);
    visit_account_forms(&tab, handler);
    let ben = browser.tab(gateway, WITH_SCRIPT);
    sign_in_at(&ben, BEN, BENS_PASSWORD);
    for page in ["keys", "usage", "records", "profile"] {
        ben.go(&format!("/{page}"));
        handler.handle_state(&format!("{page}-of-a-member"), &ben);
    }
    ben.go("/audit");
    handler.handle_state("forbidden", &ben);
    visit_second_factor(browser, &ben, handler);
    let chinese = browser.tab(gateway, CHINESE);
    visit_chinese_pages(&chinese, handler, &paths);
    tab.resize(PHONE, "light");
    tab.go("/keys");
    tab.open_details("Menu");
    handler.handle_state("menu", &tab);
}

fn visit_lists(tab: &Tab<'_>, handler: &mut dyn StateHandler, paths: &ItemPaths) {
    for (name, path) in [
        ("playground", "/studio"),
        ("start", "/start"),
        ("keys", "/keys"),
        ("keys-none-found", "/keys?search=no-such-key"),
        ("keys-disabled", "/keys?state=disabled"),
        ("usage", "/usage"),
        ("records", "/records"),
        ("records-failed", "/records?state=failed"),
        (
            "records-filtered",
            "/records?state=unsuccessful&error_reason=content_refused&model=gpt-image-2&account=azure-east",
        ),
        ("people", "/people"),
        ("groups", "/groups"),
        ("accounts", "/accounts"),
        ("prices", "/prices"),
        ("audit", "/audit"),
        ("profile", "/profile"),
        ("docs", "/docs"),
        ("docs-operation", "/docs/gateway/create_image"),
        ("docs-form", "/docs/gateway/edit_image"),
        ("docs-admin", "/docs/admin/update_key"),
        ("docs-schema", "/docs/gateway/ImagesResponse"),
        ("keys-sorted", "/keys?sort=cost"),
        ("people-sorted", "/people?sort=name"),
        ("key", paths.active.as_str()),
        ("key-disabled", paths.disabled.as_str()),
        ("key-rotated", paths.rotated.as_str()),
        ("record", paths.succeeded_record.as_str()),
        ("record-failed", paths.failed_record.as_str()),
        ("record-estimated", paths.estimated_record.as_str()),
        ("record-unknown", paths.unknown_record.as_str()),
        ("person", paths.person.as_str()),
    ] {
        assert_eq!(tab.go(path).status, 200, "{path}");
        handler.handle_state(name, tab);
    }
}

/// Visits the states of the forms for keys.
fn visit_key_forms(tab: &Tab<'_>, gateway: &Gateway, handler: &mut dyn StateHandler, paths: &ItemPaths) {
    tab.go("/keys");
    tab.open_details("New key");
    handler.handle_state("key-new", tab);
    tab.fill("Name", &"long ".repeat(40));
    tab.follow("button", "Create key");
    handler.handle_state("key-refused", tab);
    tab.fill("Name", "poster-press");
    tab.follow("button", "Create key");
    gateway.watch_secret("a key", &secret_in(&tab.text()).expect("a secret"), &[OutputChannel::Key]);
    handler.handle_state("key-secret", tab);
    tab.reload();
    handler.handle_state("key-secret-again", tab);
    tab.go(&format!("{}/delete", paths.active));
    handler.handle_state("key-delete", tab);
    tab.go("/keys?search=a");
    tab.evaluate("document.querySelectorAll('tbody [name=key]').forEach((box) => box.click())");
    tab.follow("button", "Delete…");
    handler.handle_state("keys-delete", tab);
}

/// Visits the states of the forms for people and admin tokens.
fn visit_people_forms(tab: &Tab<'_>, gateway: &Gateway, handler: &mut dyn StateHandler, paths: &ItemPaths) {
    tab.go("/people");
    tab.open_details("Invite a user");
    tab.fill("User name", BEN);
    tab.follow("button", "Create invitation link");
    handler.handle_state("person-refused", tab);
    tab.fill("User name", "dario");
    tab.follow("button", "Create invitation link");
    let link = link_in(&tab.text(), "/invitation/").expect("a link");
    watch_link(gateway, &link);
    handler.handle_state("person-invited", tab);
    tab.go("/profile");
    tab.fill("Name", "deploy");
    tab.follow("button", "Create token");
    gateway.watch_secret("an admin token", &token_in(&tab.text()).expect("a token"), &[OutputChannel::Key]);
    handler.handle_state("token-secret", tab);
    tab.go("/profile");
    tab.fill("Current password", "not the password");
    tab.fill("New password", "some new password");
    tab.fill("Repeat password", "some new password");
    tab.follow("button", "Change password");
    handler.handle_state("password-refused", tab);
    let mut visitor = Visitor::new(gateway);
    drop(visitor.get(&paths.person));
}

/// Visits the set-up of a second factor, and the sign-in with it.
fn visit_second_factor(browser: &Browser, ben: &Tab<'_>, handler: &mut dyn StateHandler) {
    ben.go("/profile/second-factor");
    ben.fill("Code", "000000");
    ben.follow("button", "Turn on");
    handler.handle_state("second-factor", ben);
    let secret = ben.texts_of("#secret").concat().replace(' ', "");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time");
    ben.fill("Code", &totp_code(&secret, now.as_secs()));
    ben.follow("button", "Turn on");
    handler.handle_state("recovery-codes", ben);
    ben.go("/profile");
    handler.handle_state("profile-with-factor", ben);
    let stranger = browser.tab(ben.gateway(), WITH_SCRIPT);
    stranger.go("/sign-in");
    handler.handle_state("sign-in-with-provider", &stranger);
    stranger.follow("link", "Sign in with Example");
    handler.handle_state("sign-in-provider-unreachable", &stranger);
    stranger.fill("User name", BEN);
    stranger.fill("Password", BENS_PASSWORD);
    stranger.follow("button", "Sign in");
    handler.handle_state("sign-in-code", &stranger);
    age_sessions(ben.gateway());
    ben.fill("Name", "deploy");
    ben.follow("button", "Create token");
    handler.handle_state("identity-proof", ben);
}

/// Visits the states of the playground.
fn visit_playground(tab: &Tab<'_>, handler: &mut dyn StateHandler) {
    tab.go("/studio");
    tab.fill("Prompt", "a harbour at night");
    tab.fill("Size", "1000x1000");
    tab.open_details("Format, background and number");
    tab.open_details("Edit images");
    handler.handle_state("playground-rule-broken", tab);
    tab.fill("Size", "1536x1024");
    tab.click("button", "Make the image");
    super::playground::wait_for_pictures(tab, 1);
    handler.handle_state("playground-picture", tab);
    tab.reload();
    handler.handle_state("playground-reloaded", tab);
    tab.follow("link", "Open the record");
    handler.handle_state("record-with-picture", tab);
}

/// Visits the states of the form for prices.
fn visit_price_form(tab: &Tab<'_>, handler: &mut dyn StateHandler) {
    tab.go("/prices");
    tab.open_details("Set a price");
    handler.handle_state("price-new", tab);
    for (amount, status, name) in [("2000000", 422, "price-refused"), ("1.25", 200, "price-set")] {
        tab.go("/prices");
        tab.open_details("Set a price");
        tab.fill("Model", "text-model-of-somebody-2");
        tab.fill("From", "2026-03-01");
        tab.fill("Source", "the contract with somebody, page 3");
        tab.fill("Text input", amount);
        tab.fill("Text output", "10");
        assert_eq!(tab.follow("button", "Save price").status, status, "{name}");
        handler.handle_state(name, tab);
    }
}

/// Visits the pages and the states of the forms for accounts.
fn visit_account_forms(tab: &Tab<'_>, handler: &mut dyn StateHandler) {
    tab.go("/accounts");
    assert_eq!(tab.follow("link", "azure-east").status, 200);
    handler.handle_state("account-of-the-file", tab);
    tab.go("/accounts");
    tab.open_details("Add an account");
    handler.handle_state("account-new", tab);
    for (name, base_url, status) in [("two words", "upstream", 422), ("spare", "http://127.0.0.1:9/v1", 200)] {
        tab.go("/accounts");
        tab.open_details("Add an account");
        tab.fill("Name", name);
        tab.fill("Base URL", base_url);
        tab.fill("API key of the upstream", "the key of somebody");
        assert_eq!(tab.follow("button", "Add account").status, status, "{name}");
        handler.handle_state(if status == 200 { "account-added" } else { "account-refused" }, tab);
    }
    tab.follow("button", "Test");
    handler.handle_state("account-tested", tab);
    tab.follow("link", "Disable…");
    handler.handle_state("account-disable", tab);
    tab.follow("link", "Cancel");
    tab.follow("link", "Delete…");
    handler.handle_state("account-delete", tab);
}

fn visit_chinese_pages(tab: &Tab<'_>, handler: &mut dyn StateHandler, paths: &ItemPaths) {
    let mut ada = Visitor::new(tab.gateway());
    sign_in(&mut ada, ADA, ADAS_PASSWORD);
    for (name, value) in &ada.cookies {
        tab.give_cookie(name, value);
    }
    for (name, path) in [
        ("keys", "/keys"),
        ("key", paths.active.as_str()),
        ("usage", "/usage"),
        ("record", paths.succeeded_record.as_str()),
        ("record-failed", paths.failed_record.as_str()),
        ("prices", "/prices"),
        ("accounts", "/accounts"),
    ] {
        assert!(tab.go(path).html.contains("lang=\"zh"), "{path}");
        handler.handle_state(&format!("{name}-zh"), tab);
    }
}

/// Collects the faults of each state: violations of accessibility rules, and content wider than the window.
#[derive(Default)]
struct FaultCollector {
    faults: Vec<String>,
    state_count: usize,
}

// === impl FaultCollector ===

impl StateHandler for FaultCollector {
    fn handle_state(&mut self, name: &str, tab: &Tab<'_>) {
        self.state_count += 1;
        for (width, theme) in looks() {
            tab.resize(width, theme);
            let overflowing = tab.overflow();
            if !overflowing.is_empty() {
                self.faults.push(format!("{name} at {width}, {theme}: {}", overflowing.join("\n    ")));
            }
            let violations = match (width, theme) {
                // The widest window has the colors and the elements of the other wide one.
                (WIDEST, _) => Vec::new(),
                (_, "light") => tab.accessibility_violations(),
                _ => tab.color_violations(),
            };
            for violation in violations {
                self.faults.push(format!("{name} at {width}, {theme}: {}", violation_text(&violation)));
            }
        }
        tab.resize(WIDE, "light");
    }
}

fn violation_text(violation: &Value) -> String {
    let nodes: Vec<&str> = violation["nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    format!("{} ({}): {}\n    {}", violation["id"], violation["impact"], violation["help"], nodes.join("\n    "))
}

impl FaultCollector {
    #[track_caller]
    fn assert_no_faults(&self, min_states: usize) {
        assert!(self.faults.is_empty(), "{} faults:\n{}", self.faults.len(), self.faults.join("\n"));
        assert!(self.state_count >= min_states, "only {} states were checked", self.state_count);
    }
}

#[test]
fn every_page_of_a_new_gateway_is_accessible_in_each_window_and_theme() {
    let mut collector = FaultCollector::default();
    visit_new_gateway(&Browser::start(), &mut collector);
    collector.assert_no_faults(21);
}

#[test]
fn every_page_of_a_used_gateway_is_accessible_in_each_window_and_theme() {
    let mut collector = FaultCollector::default();
    visit_used_gateway(&Browser::start(), &mut collector);
    collector.assert_no_faults(47);
}

/// Writes screenshots to a folder.
struct ScreenshotWriter(PathBuf);

impl StateHandler for ScreenshotWriter {
    fn handle_state(&mut self, name: &str, tab: &Tab<'_>) {
        for (width, theme) in looks() {
            tab.resize(width, theme);
            tab.screenshot(&self.0.join(format!("{name}-{width}-{theme}.png")), true);
        }
        tab.resize(WIDE, "light");
        if ["usage", "accounts", "playground-picture"].contains(&name) {
            // The screenshots of README.md have only the part that fits into one window.
            tab.evaluate("scrollTo(0, 0)");
            tab.screenshot(&self.0.join(format!("{name}.png")), false);
        }
    }
}

#[test]
#[ignore = "writes screenshots for people to look at; run `cargo xtask screenshots`"]
fn screenshots_show_every_page_and_state() {
    let folder = env_setting("IMAGATE_SCREENSHOTS")
        .map_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots"), PathBuf::from);
    std::fs::create_dir_all(&folder).expect("a folder");
    let browser = Browser::start();
    let mut writer = ScreenshotWriter(folder);
    visit_new_gateway(&browser, &mut writer);
    visit_used_gateway(&browser, &mut writer);
    println!("{}", writer.0.display());
}
