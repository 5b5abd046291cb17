//! Without a mouse: where the focus goes, that it is seen, and that a key can be made with it.

use super::browser::{Browser, Tab, WITH_SCRIPT};
use super::people::{ADA, ADAS_PASSWORD, ada, secret_in};
use crate::kit::{Gateway, OutputChannel};

/// So many steps take one through any page of ours.
const STEPS: usize = 60;

/// Steps on until what has the focus has this name.
#[track_caller]
fn step_to(tab: &Tab<'_>, name: &str) {
    let mut passed: Vec<String> = Vec::new();
    for _ in 0..STEPS {
        tab.press("Tab");
        let (role, found, _) = tab.focused();
        // A field for a day has steps inside of it, and a look at its ring would begin them anew.
        let is_new = role != "body" && passed.last() != Some(&found);
        assert!(!is_new || tab.shows_focus(), "nobody can see that {role} `{found}` has the focus");
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
    drop(ada(&gateway));
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    tab.go("/sign-in");
    step_to(&tab, "User name");
    tab.write(ADA);
    step_to(&tab, "Password");
    tab.write(ADAS_PASSWORD);
    assert_eq!(tab.press_to_leave("Enter").path, "/keys");
    tab.press("Tab");
    assert_eq!(tab.focused().1, "Skip to content", "the first step leads past the navigation");
    tab.press("Enter");
    step_to(&tab, "New key");
    tab.press("Enter");
    step_to(&tab, "Name");
    tab.write("by hand");
    step_to(&tab, "Create key");
    assert_eq!(tab.press_to_leave("Enter").status, 200);
    let secret = secret_in(&tab.text()).expect("a secret");
    gateway.watch_secret("a key", &secret, &[OutputChannel::Key]);
    step_to(&tab, "Copy Secret");
    tab.press("Enter");
    assert_eq!(tab.clipboard(), secret);
    tab.go("/keys");
    tab.says("by hand");
}
