//! Checks that the browser harness notices faults of pages. Without this test, the other tests could pass by mistake.

use super::browser::{Browser, WITH_SCRIPT};
use crate::kit::{ForeignSite, Gateway};

const BAD_PAGE: &str = "<!doctype html><html lang=en><title>Bad</title><main><h1>Bad</h1><input>\
    <p style='width:1400px'>wide</p><script>console.error('moans')</script><script src='/missing.js'></script>\
    <script>alert('boo'); fetch('http://outside.example/'); throw new Error('thrown')</script></main>";

#[test]
fn the_harness_reports_every_kind_of_page_fault() {
    let gateway = Gateway::simulated();
    let site = ForeignSite::start(|path| match path {
        "/" => Some(("content-type: text/html", BAD_PAGE.to_owned())),
        "/policy" => Some((
            "content-type: text/html\r\ncontent-security-policy: default-src 'none'",
            "<!doctype html><html lang=en><title>Policy</title><script>document.title = 'broken'</script>".to_owned(),
        )),
        _ => None,
    });
    let browser = Browser::start();
    let tab = browser.tab_beside(&gateway, WITH_SCRIPT, &[&site.origin()]);
    let faults = tab.faults_of(|tab| {
        tab.try_go(&site.origin()).expect("the page");
        tab.try_go(&format!("{}/policy", site.origin())).expect("the page");
    });
    for fault in [
        "moans",
        "missing.js: 404",
        "dialog: boo",
        "another host: http://outside.example/",
        "thrown",
        "Content Security Policy",
    ] {
        assert!(faults.iter().any(|line| line.contains(fault)), "{fault}: {faults:#?}");
    }
}
