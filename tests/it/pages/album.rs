//! Every page in every state. In the normal run each is held against what a reader of the screen, a phone and the night
//! need; `cargo xtask screenshots` makes a picture of each for people to look at.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::browser::{Browser, Look, Tab, WITH_SCRIPT};
use super::people::{
    ADA, ADAS_PASSWORD, BEN, BENS_PASSWORD, guard_link, guard_passwords, link_in, secret_in, setup_path, sign_in,
    sign_in_at, token_in,
};
use super::seed::{Seeded, Things};
use super::visitor::Visitor;
use crate::kit::{Gateway, OutputChannel, env_setting};

const WIDE: u32 = 1280;
const PHONE: u32 = 390;
const CHINESE: Look = Look { locale: "zh-CN", ..WITH_SCRIPT };

/// On a desk and on a phone, by day and by night.
fn looks() -> impl Iterator<Item = (u32, &'static str)> {
    [WIDE, PHONE].into_iter().flat_map(|width| ["light", "dark"].map(|theme| (width, theme)))
}

/// What is done with each page in each of its states.
trait Reader {
    #[track_caller]
    fn look(&mut self, name: &str, tab: &Tab<'_>);
}

/// Where somebody meets imagate for the first time, and nothing has happened yet.
fn fresh(browser: &Browser, reader: &mut dyn Reader) {
    let gateway = Gateway::simulated();
    guard_passwords(&gateway);
    let path = setup_path(&gateway);
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    tab.go(&path);
    reader.look("setup", &tab);
    tab.fill("User name", ADA);
    tab.fill("Password", "short");
    tab.fill("Repeat password", "other");
    tab.follow("button", "Create admin and continue");
    reader.look("setup-refused", &tab);
    tab.fill("User name", ADA);
    tab.fill("Password", ADAS_PASSWORD);
    tab.fill("Repeat password", ADAS_PASSWORD);
    tab.follow("button", "Create admin and continue");
    for page in ["start", "keys", "usage", "records", "people", "groups", "accounts", "audit", "profile"] {
        tab.go(&format!("/{page}"));
        reader.look(&format!("{page}-empty"), &tab);
    }
    tab.go("/keys/nothing-here");
    reader.look("not-found", &tab);
    let stranger = browser.tab(&gateway, WITH_SCRIPT);
    stranger.go(&path);
    reader.look("link-used", &stranger);
    stranger.go("/sign-in");
    reader.look("sign-in", &stranger);
    for (times, name) in [(1, "sign-in-wrong"), (5, "sign-in-slow")] {
        for _ in 0..times {
            stranger.fill("User name", "nobody");
            stranger.fill("Password", "a password that is wrong");
            if stranger.follow("button", "Sign in").status == 429 {
                break;
            }
        }
        reader.look(name, &stranger);
    }
    let chinese = browser.tab(&gateway, CHINESE);
    chinese.go("/sign-in");
    reader.look("sign-in-zh", &chinese);
}

/// Where a month has passed.
fn busy(browser: &Browser, reader: &mut dyn Reader) {
    let seeded = Seeded::start();
    let (_, _, things) = seeded.live();
    let gateway = &seeded.gateway;
    let tab = browser.tab(gateway, WITH_SCRIPT);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    lists(&tab, reader, &things);
    keys(&tab, gateway, reader, &things);
    people(&tab, gateway, reader, &things);
    let ben = browser.tab(gateway, WITH_SCRIPT);
    sign_in_at(&ben, BEN, BENS_PASSWORD);
    for page in ["keys", "usage", "records", "profile"] {
        ben.go(&format!("/{page}"));
        reader.look(&format!("{page}-of-a-member"), &ben);
    }
    ben.go("/audit");
    reader.look("forbidden", &ben);
    let chinese = browser.tab(gateway, CHINESE);
    in_chinese(&chinese, reader, &things);
    tab.resize(PHONE, "light");
    tab.go("/keys");
    tab.unfold("Menu");
    reader.look("menu", &tab);
}

fn lists(tab: &Tab<'_>, reader: &mut dyn Reader, things: &Things) {
    for (name, path) in [
        ("start", "/start"),
        ("keys", "/keys"),
        ("keys-none-found", "/keys?search=no-such-key"),
        ("keys-disabled", "/keys?state=disabled"),
        ("usage", "/usage"),
        ("records", "/records"),
        ("records-failed", "/records?state=failed"),
        ("people", "/people"),
        ("groups", "/groups"),
        ("accounts", "/accounts"),
        ("audit", "/audit"),
        ("profile", "/profile"),
        ("key", things.active.as_str()),
        ("key-disabled", things.disabled.as_str()),
        ("key-rotated", things.rotated.as_str()),
        ("record", things.good_record.as_str()),
        ("record-failed", things.bad_record.as_str()),
        ("person", things.person.as_str()),
    ] {
        assert_eq!(tab.go(path).status, 200, "{path}");
        reader.look(name, tab);
    }
}

/// What comes of the forms of keys.
fn keys(tab: &Tab<'_>, gateway: &Gateway, reader: &mut dyn Reader, things: &Things) {
    tab.go("/keys");
    tab.unfold("New key");
    reader.look("key-new", tab);
    tab.fill("Name", &"long ".repeat(40));
    tab.follow("button", "Create key");
    reader.look("key-refused", tab);
    tab.fill("Name", "poster-press");
    tab.follow("button", "Create key");
    gateway.watch_secret("a key", &secret_in(&tab.text()).expect("a secret"), &[OutputChannel::Key]);
    reader.look("key-secret", tab);
    tab.reload();
    reader.look("key-secret-again", tab);
    tab.go(&format!("{}/delete", things.active));
    reader.look("key-delete", tab);
}

/// What comes of the forms for people.
fn people(tab: &Tab<'_>, gateway: &Gateway, reader: &mut dyn Reader, things: &Things) {
    tab.go("/people");
    tab.unfold("Invite a user");
    tab.fill("User name", BEN);
    tab.follow("button", "Create invitation link");
    reader.look("person-refused", tab);
    tab.fill("User name", "dario");
    tab.follow("button", "Create invitation link");
    let link = link_in(&tab.text(), "/invitation/").expect("a link");
    guard_link(gateway, &link);
    reader.look("person-invited", tab);
    tab.go("/profile");
    tab.fill("Name", "deploy");
    tab.follow("button", "Create token");
    gateway.watch_secret("an admin token", &token_in(&tab.text()).expect("a token"), &[OutputChannel::Key]);
    reader.look("token-secret", tab);
    tab.go("/profile");
    tab.fill("Current password", "not the password");
    tab.fill("New password", "some new password");
    tab.fill("Repeat password", "some new password");
    tab.follow("button", "Change password");
    reader.look("password-refused", tab);
    let mut anybody = Visitor::to(gateway);
    drop(anybody.get(&things.person));
}

fn in_chinese(tab: &Tab<'_>, reader: &mut dyn Reader, things: &Things) {
    let mut ada = Visitor::to(tab.gateway());
    sign_in(&mut ada, ADA, ADAS_PASSWORD);
    for (name, value) in &ada.cookies {
        tab.give_cookie(name, value);
    }
    for (name, path) in [
        ("keys", "/keys"),
        ("key", things.active.as_str()),
        ("usage", "/usage"),
        ("record", things.good_record.as_str()),
    ] {
        assert!(tab.go(path).html.contains("lang=\"zh"), "{path}");
        reader.look(&format!("{name}-zh"), tab);
    }
}

/// Holds each against what everybody needs.
#[derive(Default)]
struct Judge {
    faults: Vec<String>,
    seen: usize,
}

// === impl Judge ===

impl Reader for Judge {
    fn look(&mut self, name: &str, tab: &Tab<'_>) {
        self.seen += 1;
        for (width, theme) in looks() {
            tab.resize(width, theme);
            let wide = tab.overflow();
            if !wide.is_empty() {
                self.faults.push(format!("{name} at {width}, {theme}: {}", wide.join("\n    ")));
            }
            for violation in tab.inspect() {
                self.faults.push(format!("{name} at {width}, {theme}: {}", told(&violation)));
            }
        }
        tab.resize(WIDE, "light");
    }
}

fn told(violation: &Value) -> String {
    let nodes: Vec<&str> = violation["nodes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    format!("{} ({}): {}\n    {}", violation["id"], violation["impact"], violation["help"], nodes.join("\n    "))
}

impl Judge {
    #[track_caller]
    fn finds_nothing(&self, least: usize) {
        assert!(self.faults.is_empty(), "{} faults:\n{}", self.faults.len(), self.faults.join("\n"));
        assert!(self.seen >= least, "only {} pages were looked at", self.seen);
    }
}

#[test]
fn every_page_of_the_first_day_can_be_read_by_everybody_by_day_and_night_and_on_a_phone() {
    let mut judge = Judge::default();
    fresh(&Browser::start(), &mut judge);
    judge.finds_nothing(17);
}

#[test]
fn every_page_of_a_busy_month_can_be_read_by_everybody_by_day_and_night_and_on_a_phone() {
    let mut judge = Judge::default();
    busy(&Browser::start(), &mut judge);
    judge.finds_nothing(34);
}

/// Makes pictures.
struct Painter(PathBuf);

impl Reader for Painter {
    fn look(&mut self, name: &str, tab: &Tab<'_>) {
        for (width, theme) in looks() {
            tab.resize(width, theme);
            tab.picture(&self.0.join(format!("{name}-{width}-{theme}.png")), true);
        }
        tab.resize(WIDE, "light");
        if name == "usage" {
            // The picture of README.md: the part that fits into one window.
            tab.picture(&self.0.join("usage.png"), false);
        }
    }
}

#[test]
#[ignore = "makes pictures for people to look at; `cargo xtask screenshots`"]
fn pictures_of_every_page_and_state() {
    let folder = env_setting("IMAGATE_SCREENSHOTS")
        .map_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots"), PathBuf::from);
    std::fs::create_dir_all(&folder).expect("a folder");
    let browser = Browser::start();
    let mut painter = Painter(folder);
    fresh(&browser, &mut painter);
    busy(&browser, &mut painter);
    println!("{}", painter.0.display());
}
