//! The pages without a mouse: the focus reaches every element and is visible, and a user can make an API key.

use super::browser::{Browser, Tab, WITH_SCRIPT};
use super::browser_driver::clipboard_lock;
use super::users::{ADA, ADAS_PASSWORD, secret_in, sign_in_ada};
use crate::kit::{Gateway, OutputChannel};

/// The most steps with the Tab key. Every page has fewer focusable elements.
const MAX_STEPS: usize = 60;

/// Presses Tab until the focused element has this name.
#[track_caller]
fn step_to(tab: &Tab<'_>, name: &str) {
    let mut passed: Vec<String> = Vec::new();
    for _ in 0..MAX_STEPS {
        tab.press("Tab");
        let (role, found, _) = tab.focused();
        // A date field has several focus steps inside, and the check of the focus ring would return to the first.
        let is_new = role != "body" && passed.last() != Some(&found);
        assert!(!is_new || tab.shows_focus(), "no focus ring is visible on {role} `{found}`");
        if found == name {
            return;
        }
        passed.push(found);
    }
    panic!("`{name}` cannot be reached: {passed:?}");
}

#[test]
fn a_key_is_made_without_a_mouse() {
    let gateway = Gateway::simulated();
    drop(sign_in_ada(&gateway));
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    tab.go("/sign-in");
    step_to(&tab, "User name");
    tab.type_text(ADA);
    step_to(&tab, "Password");
    tab.type_text(ADAS_PASSWORD);
    assert_eq!(tab.press_and_navigate("Enter").path, "/studio");
    tab.press("Tab");
    assert_eq!(tab.focused().1, "Skip to content", "the first focusable element must skip the navigation");
    tab.go("/keys");
    step_to(&tab, "New key");
    tab.press("Enter");
    step_to(&tab, "Name");
    tab.type_text("by hand");
    step_to(&tab, "Create key");
    assert_eq!(tab.press_and_navigate("Enter").status, 200);
    let secret = secret_in(&tab.text()).expect("a secret");
    gateway.watch_secret("a key", &secret, &[OutputChannel::Key]);
    step_to(&tab, "Copy Secret");
    let _clipboard = clipboard_lock();
    tab.press("Enter");
    assert_eq!(tab.clipboard(), secret);
    tab.go("/keys");
    tab.assert_text("by hand");
}
