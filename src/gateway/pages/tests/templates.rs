//! Tests of the templates: rules for all of them, and hostile values.

use std::fs;
use std::path::{Path, PathBuf};

use askama::Template as _;

use crate::gateway::pages::key::DeletePage;
use crate::gateway::pages::keys::SecretPage;
use crate::gateway::pages::language::Language;
use crate::gateway::pages::page_error::PageError;
use crate::gateway::pages::page_layout::{PageLayout, SignedInUser, Theme};

/// The paths and contents of all files with this extension in the folder of the pages.
pub(super) fn files(extension: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gateway/pages")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                files.push((path.clone(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!files.is_empty(), "{extension}");
    files
}

#[test]
fn templates_have_no_inline_script_or_style_and_escape_all_values() {
    let handler = regex::Regex::new(r"\son[a-z]+\s*=").unwrap();
    let script = regex::Regex::new(r"<script(?: src=[^>]*)?>[^<]").unwrap();
    for (path, html) in files("html") {
        let path = path.display();
        assert!(!html.contains("|safe") && !html.contains("| safe"), "{path}");
        assert!(!html.contains("escape=") && !html.contains("|escape("), "{path}");
        assert!(!html.contains("style="), "{path}");
        assert!(!html.contains("<style"), "{path}");
        assert!(!html.contains("javascript:"), "{path}");
        assert!(!handler.is_match(&html), "{path}");
        assert!(!script.is_match(&html), "{path}");
        assert!(!html.contains("http://") && !html.contains("https://"), "{path}: a reference to another host");
    }
    for (path, rust) in files("rs") {
        let is_test = path.components().any(|part| part.as_os_str() == "tests");
        assert!(is_test || !rust.contains("escape = \"none\""), "{}", path.display());
        assert!(is_test || !rust.contains("MarkupDisplay"), "{}", path.display());
    }
}

#[test]
fn every_post_form_has_a_csrf_token() {
    for (path, html) in files("html") {
        for form in html.split("<form").skip(1).filter(|form| form.contains("method=\"post\"")) {
            let form = form.split("</form>").next().unwrap();
            let has_token = form.contains("macros::csrf_field(page)") || form.contains("name=\"csrf\"");
            assert!(has_token, "{}: {form}", path.display());
        }
    }
}

fn page() -> PageLayout {
    PageLayout::bare(Language::En, Theme::Auto)
}

const HOSTILE: [&str; 5] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' autofocus onfocus='alert(1)",
    "{{ page.csrf }}",
    "\u{202e}txet\u{2066}",
];

#[test]
fn hostile_names_are_escaped() {
    for name in HOSTILE {
        let html = DeletePage {
            page: page(),
            name: name.to_owned(),
            action: "/keys/key_1/delete".to_owned(),
            back: "/keys/key_1".to_owned(),
        }
        .render()
        .unwrap();
        assert_escaped(&html, name);
        let mut page = page();
        page.user = Some(SignedInUser { name: name.to_owned(), is_admin: true });
        page.csrf = name.to_owned();
        page.back = Some(format!("/keys?search={name}"));
        let html = SecretPage {
            page,
            title: "made.title",
            name: name.to_owned(),
            label: "made.secret",
            warning: "made.once",
            secret: name.to_owned(),
            until: None,
            until_label: "made.previous",
            examples: Vec::new(),
            next: "/keys".to_owned(),
            next_label: "made.to_key",
        }
        .render()
        .unwrap();
        assert_escaped(&html, name);
    }
}

#[track_caller]
fn assert_escaped(html: &str, name: &str) {
    let escaped = name
        .replace('&', "&#38;")
        .replace('<', "&#60;")
        .replace('>', "&#62;")
        .replace('"', "&#34;")
        .replace('\'', "&#39;");
    assert!(html.contains(&escaped), "{name} is missing");
    if escaped != name {
        assert!(!html.contains(name), "{name} is not escaped");
    }
}

#[test]
fn names_are_shown_with_hidden_characters_escaped_and_isolated() {
    for (path, html) in files("html") {
        for name in ["key.name", "user.name", "key.user_name", "entry.actor_name", "account.name", "group.name"] {
            let escaped = format!("{{{{ page.visible_name({name}) }}}}");
            let raw = format!("{{{{ {name} }}}}");
            let raw_uses = html.match_indices(&raw).map(|(index, _)| &html[..index]);
            // Only attributes, which need the exact name, may use the raw name.
            let raw_uses: Vec<_> = raw_uses.filter(|before| !before.ends_with('"')).collect();
            assert!(raw_uses.is_empty(), "{}: hidden characters of {name} are not escaped", path.display());
            for (index, _) in html.match_indices(&escaped) {
                let before = &html[..index];
                let is_isolated =
                    before.ends_with("<bdi>") || before.ends_with('"') || before.ends_with("visually-hidden\"> ");
                let is_plain = before.ends_with("title %}") || before.ends_with("}>");
                assert!(is_isolated || is_plain, "{}: {}", path.display(), &html[index.saturating_sub(40)..index + 20]);
            }
        }
    }
}

#[test]
fn each_error_page_has_its_status_and_headers() {
    let response = PageError::RateLimited { seconds: 30 }.into_response(page());
    assert_eq!((response.status.as_u16(), &response.headers["retry-after"]), (429, &"30".parse().unwrap()));
    assert!(String::from_utf8_lossy(response.body.whole()).contains("Wait for 30 seconds"));
    assert_eq!(PageError::MethodNotAllowed("POST").into_response(page()).headers["allow"], "POST");
    for (error, status) in [
        (PageError::NotFound, 404),
        (PageError::Denied, 403),
        (PageError::ForgedForm, 403),
        (PageError::InvalidLink, 410),
        (PageError::UnknownHost, 421),
        (PageError::Unavailable, 503),
        (PageError::Internal, 500),
        (PageError::Redirect("/keys".to_owned()), 303),
    ] {
        assert_eq!(error.into_response(page()).status.as_u16(), status);
    }
}
