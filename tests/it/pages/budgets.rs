//! A budget from its form to its end, in a real browser: a key is made, its budget is spent, and the pages explain the
//! refusal and list the alerts.

use serde_json::json;

use super::browser::{Browser, Tab, WITH_SCRIPT};
use super::playground::wait_for_pictures;
use super::users::{ADA, ADAS_PASSWORD, setup_path, watch_passwords};
use crate::kit::{Account, FakeUpstream, Gateway, eventually};

/// Asserts that the page has no faults of accessibility and fits into windows of both widths.
#[track_caller]
fn assert_good_at_both_widths(tab: &Tab<'_>) {
    for width in [390, 1280] {
        tab.resize(width, "light");
        assert_eq!(tab.accessibility_violations(), Vec::<serde_json::Value>::new(), "{width}");
        assert_eq!(tab.overflow(), Vec::<String>::new(), "{width}");
    }
}

/// Makes a key with a budget of the day, and returns the path of its page, which is open then.
#[track_caller]
fn make_key_with_budget(tab: &Tab<'_>) -> String {
    tab.go("/keys");
    tab.open_details("New key");
    tab.fill("Name", "trial");
    tab.follow("button", "Create key");
    tab.go("/keys");
    tab.follow("link", "trial");
    let path = tab.evaluate("location.pathname").as_str().expect("a path").to_owned();
    // One image costs about 0.006 dollars, and with two intermediate images at most about 0.012.
    tab.fill("Budget in US dollars", "0.015");
    tab.fill("Alert at share of budget", "0.3");
    tab.evaluate("document.getElementById('limit_budget_period').value = 'day'");
    tab.follow("button", "Save limits");
    tab.assert_text("$0.00 of $0.015");
    tab.assert_text("alert at $0.0045");
    path
}

#[test]
fn a_key_is_made_its_budget_spent_and_the_refusal_explained() {
    let upstream = FakeUpstream::start();
    let account = Account::for_upstream("only", &upstream);
    let gateway = Gateway::with("[[groups]]\nname = \"written\"\n[groups.limits]\nimages_per_day = 5\n", &[account]);
    let browser = Browser::start();
    let tab = browser.tab(&gateway, WITH_SCRIPT);
    watch_passwords(&gateway);
    tab.go(&setup_path(&gateway));
    tab.fill("User name", ADA);
    tab.fill("Password", ADAS_PASSWORD);
    tab.fill("Repeat password", ADAS_PASSWORD);
    tab.follow("button", "Create admin and continue");

    let path = make_key_with_budget(&tab);
    assert_good_at_both_widths(&tab);

    tab.go("/studio");
    let choose = format!("document.getElementById('key').value = '{}'", path.rsplit('/').next().unwrap_or_default());
    let fill = || {
        tab.evaluate("document.getElementById('quality').value = 'low'");
        tab.evaluate(&choose);
        tab.fill("Prompt", "a cube");
    };
    fill();
    tab.click("button", "Make the image");
    wait_for_pictures(&tab, 1);
    fill();
    // The browser notes an answer with an error status.
    tab.click_for_fault("button", "Make the image", "429");
    let refusal = eventually("the refusal is explained", || {
        let text = tab.evaluate("document.querySelector('#playground-error p').textContent");
        text.as_str().filter(|text| text.contains("budget")).map(str::to_owned)
    });
    assert!(refusal.starts_with("The budget of $0.015 of this key is spent"), "{refusal}");
    assert!(refusal.contains("resets in") && refusal.contains("00:00 UTC"), "{refusal}");
    assert_eq!(upstream.attempt_count(), 1, "the refused request was not sent");

    tab.go(&path);
    tab.assert_text("of $0.015");
    tab.assert_text("Little left");
    tab.go("/keys");
    tab.assert_text("of $0.015");
    assert_good_at_both_widths(&tab);
    eventually("both alerts are listed", || {
        tab.go("/alerts");
        (tab.evaluate("document.querySelectorAll('tbody tr').length") == json!(2)).then_some(())
    });
    tab.assert_text("Soft mark reached");
    tab.assert_text("Budget used up");
    tab.assert_text("trial");
    assert_good_at_both_widths(&tab);
    for page in ["/groups", "/groups/default", "/groups/written", "/people", "/profile", "/start"] {
        tab.go(page);
        assert_good_at_both_widths(&tab);
    }
    tab.close();
}
