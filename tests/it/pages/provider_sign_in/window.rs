//! The sign-in in a real Chromium, with and without scripts.

use super::super::browser::{Browser, WITH_SCRIPT, WITHOUT_SCRIPT};
use super::super::users::{ADA, ADAS_PASSWORD, sign_in_ada, sign_in_at};
use super::flow::{CALLBACK, CONNECT, LABEL, user};
use super::real_provider::RealProvider;

#[test]
fn a_person_signs_in_with_the_provider_in_a_browser() {
    let provider = RealProvider::start();
    let gateway = provider.gateway("create_users = true");
    drop(sign_in_ada(&gateway));
    let browser = Browser::start();
    for (window, account) in [(WITH_SCRIPT, "kim"), (WITHOUT_SCRIPT, "noor")] {
        let tab = browser.tab_beside(&gateway, window, &[provider.issuer()]);
        tab.go("/sign-in");
        if window.javascript {
            assert_eq!(tab.accessibility_violations(), Vec::<serde_json::Value>::new());
        }
        let seen = tab.follow("link", LABEL);
        assert!(seen.status == 200 && seen.path.starts_with(provider.issuer()), "{seen:?}");
        tab.fill("Account", account);
        let seen = tab.follow("button", "Continue");
        assert_eq!((seen.status, seen.path.as_str()), (200, "/studio"), "{seen:?}");
        assert_eq!(tab.go("/profile").status, 200);
        tab.assert_text(account);
        tab.close();
    }
    assert_ne!(user(&gateway, "kim")["id"], user(&gateway, "noor")["id"]);
}

#[test]
fn a_person_who_cancels_at_the_provider_returns_to_the_sign_in_page() {
    let provider = RealProvider::start();
    let gateway = provider.gateway("create_users = true");
    drop(sign_in_ada(&gateway));
    let browser = Browser::start();
    let tab = browser.tab_beside(&gateway, WITH_SCRIPT, &[provider.issuer()]);
    tab.go("/sign-in");
    tab.follow("link", LABEL);
    let seen = tab.follow("button", "Cancel");
    assert_eq!(seen.status, 422, "{seen:?}");
    assert_eq!(tab.texts_of("[role=alert]").len(), 1);
    tab.fill("User name", ADA);
    tab.fill("Password", ADAS_PASSWORD);
    assert_eq!(tab.follow("button", "Sign in").path, "/studio");
}

/// The answer to the form is a page of the gateway that leads to the provider, because the policy of the pages forbids a
/// form that ends at another site.
#[test]
fn a_user_connects_an_identity_in_a_browser() {
    let provider = RealProvider::start();
    let gateway = provider.gateway("");
    drop(sign_in_ada(&gateway));
    let browser = Browser::start();
    let tab = browser.tab_beside(&gateway, WITH_SCRIPT, &[provider.issuer()]);
    sign_in_at(&tab, ADA, ADAS_PASSWORD);
    tab.go("/profile");
    tab.evaluate(&format!("document.querySelector('form[action=\"{CONNECT}\"] button').click()"));
    // The browser waits for this field: the page between leads on by itself.
    tab.fill("Account", "kim");
    let seen = tab.follow("button", "Continue");
    assert_eq!((seen.status, seen.path.starts_with(CALLBACK)), (200, true), "{seen:?}");
    tab.assert_text("From now on you can sign in with Example.");
    assert_eq!(tab.accessibility_violations(), Vec::<serde_json::Value>::new());
    tab.go("/profile");
    assert_eq!(tab.texts_of("#provider-title ~ p .tag"), ["Connected"]);
    tab.assert_text("kim");
    assert_eq!(tab.accessibility_violations(), Vec::<serde_json::Value>::new());
}
