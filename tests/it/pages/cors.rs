//! `cors_origins`: which pages of other origins may call the API, with a real browser and with plain requests.

use super::browser::{Browser, Tab, WITH_SCRIPT};
use crate::kit::{Call, ForeignSite, Gateway, request};

/// A page of another origin.
fn site() -> ForeignSite {
    let page = "<!doctype html><html lang=en><title>Studio</title><main><h1>Studio</h1></main>";
    ForeignSite::start(move |path| (path == "/").then(|| ("content-type: text/html", page.to_owned())))
}

/// Calls `fetch` as the scripts of the page in `tab`, and returns the status, whether there is an image, and a header of
/// the answer; or the name of the error that the page gets.
fn fetch(tab: &Tab<'_>, gateway: &Gateway, path: &str, method: &str) -> String {
    let body = if method == "POST" {
        format!("JSON.stringify({})", request(serde_json::json!({})))
    } else {
        "null".to_owned()
    };
    let code = format!(
        "fetch('{}{path}', {{method: '{method}', body: {body}, headers: {{authorization: 'Bearer {}', \
         'content-type': 'application/json', 'x-stainless-lang': 'js'}}}}).then(async answer => {{ \
         const value = await answer.json(); \
         return `${{answer.status}} ${{Boolean(value.data?.[0]?.b64_json)}} ${{answer.headers.has('x-imagate-delivered')}}`; \
         }}, error => error.name)",
        format_args!("http://{}", gateway.address()),
        gateway.secret()
    );
    tab.try_evaluate(&code).as_str().expect("a text").to_owned()
}

/// The browser of the tests reports every request, and answers preflights by itself; another test asks for them.
#[test]
fn a_page_of_a_declared_origin_makes_an_image() {
    let (studio, stranger) = (site(), site());
    let gateway = Gateway::with(&format!("cors_origins = [\"{}\"]", studio.origin()), &[]);
    let browser = Browser::start();
    let tab = browser.tab_beside(&gateway, WITH_SCRIPT, &[&studio.origin(), &stranger.origin()]);
    tab.go(&studio.origin());
    assert_eq!(fetch(&tab, &gateway, "/v1/images/generations", "POST"), "200 true true");
    assert_eq!(fetch(&tab, &gateway, "/v1/models", "GET"), "200 false false");
    // The page also sees errors, and the admin API is closed to it.
    let refusals = tab.faults_of(|tab| {
        assert_eq!(fetch(tab, &gateway, "/v1/nowhere", "POST"), "404 false false");
        assert_eq!(fetch(tab, &gateway, "/admin/v1/keys", "GET"), "TypeError");
    });
    assert!(refusals.iter().any(|line| line.contains("CORS")), "{refusals:#?}");
    tab.go(&stranger.origin());
    let refusals = tab.faults_of(|tab| {
        assert_eq!(fetch(tab, &gateway, "/v1/images/generations", "POST"), "TypeError");
        assert_eq!(fetch(tab, &gateway, "/v1/models", "GET"), "TypeError");
    });
    assert!(refusals.iter().filter(|line| line.contains("CORS")).count() >= 2, "{refusals:#?}");
}

#[test]
fn without_the_setting_no_answer_names_an_origin() {
    let gateway = Gateway::simulated();
    for (name, origin) in [("origin", "https://studio.example.com"), ("origin", "null")] {
        let call = gateway.call(request(serde_json::json!({}))).header(name, origin);
        let answer = call.send(gateway.address());
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, None));
        assert_eq!(answer.header("vary"), None);
        assert_eq!(preflight(&gateway, "/v1/images/generations", origin), (405, None));
    }
}

/// The status and the named origin of the answer to a preflight.
fn preflight(gateway: &Gateway, path: &str, origin: &str) -> (u16, Option<String>) {
    let call = Call::with_method("OPTIONS", path).without_document_check().header("origin", origin);
    let call = call.header("access-control-request-method", "POST");
    let answer = call.header("access-control-request-headers", "authorization,content-type").send(gateway.address());
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    (answer.status, answer.header("access-control-allow-origin").map(str::to_owned))
}

#[test]
fn a_preflight_is_answered_for_exactly_the_declared_origins() {
    let gateway = Gateway::with("cors_origins = [\"https://studio.example.com\", \"tauri://localhost\"]", &[]);
    for path in ["/v1/images/generations", "/v1/images/edits", "/v1/responses", "/v1/models"] {
        for origin in ["https://studio.example.com", "tauri://localhost"] {
            assert_eq!(preflight(&gateway, path, origin), (204, Some(origin.to_owned())), "{path}");
        }
        for origin in ["https://studio.example.com:444", "https://studio.example.com.evil.example", "null", "*", ""] {
            assert_eq!(preflight(&gateway, path, origin), (405, None), "{path} {origin}");
        }
    }
    for path in ["/admin/v1/keys", "/", "/keys"] {
        assert_ne!(preflight(&gateway, path, "https://studio.example.com").0, 204, "{path}");
    }
    // A cache must keep the answers for different origins apart, also that of a request without one.
    let call = Call::get("/v1/models").without_document_check();
    let answer = call.key(gateway.secret()).send(gateway.address());
    assert_eq!((answer.status, answer.header("vary")), (200, Some("origin")));
}

#[test]
fn a_reload_applies_the_origins_and_names_a_wrong_one() {
    let gateway = Gateway::with("cors_origins = []", &[]);
    let text = std::fs::read_to_string(gateway.config()).expect("a configuration");
    let write = |list: &str| {
        std::fs::write(gateway.config(), text.replacen("cors_origins = []", list, 1)).expect("a configuration");
        gateway.run_command(&["config", "reload"])
    };
    let output = write("cors_origins = [\"https://a.example\", \"*\"]");
    assert!(output.stderr.contains("cors_origins[1]"), "{}", output.stderr);
    let output = write("cors_origins = [\"https://a.example\"]").ok_stdout().to_owned();
    assert!(output.contains("cors_origins"), "{output}");
    assert_eq!(preflight(&gateway, "/v1/models", "https://a.example"), (204, Some("https://a.example".to_owned())));
}
