//! The skills that a gateway publishes: this repository's own, and what becomes of them when somebody breaks them.

use std::path::Path;

use crate::kit::{Answer, Call, Gateway, eventually};

const MANIFEST: &str = "/skills/skills.json";
const INDEX: &str = "/.well-known/agent-skills/index.json";

/// Publishes a copy of our own skills.
fn publishing(folder: &Path) -> Gateway {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas/skills");
    std::fs::create_dir_all(folder.join("packages")).expect("a folder");
    std::fs::copy(own.join("skills.json"), folder.join("skills.json")).expect("our manifest");
    for package in std::fs::read_dir(own.join("packages")).expect("our packages").flatten() {
        std::fs::copy(package.path(), folder.join("packages").join(package.file_name())).expect("a package");
    }
    Gateway::with(&format!("skills_dir = \"{}\"", folder.display()), &[])
}

fn get(gateway: &Gateway, path: &str) -> Answer {
    Call::get(path).send(gateway.address())
}

#[test]
fn our_own_skills_are_published_to_the_byte_with_a_tag_and_an_index() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let gateway = publishing(folder.path());
    let manifest = get(&gateway, MANIFEST);
    assert_eq!(manifest.status, 200, "{}", manifest.text());
    assert_eq!(manifest.body, std::fs::read(folder.path().join("skills.json")).expect("our manifest"));
    assert_eq!(manifest.header("content-type"), Some("application/json"));
    assert_eq!(manifest.header("cache-control"), Some("public, max-age=300"));
    assert_eq!(manifest.header("access-control-allow-origin"), Some("*"));
    let tag = manifest.header("etag").expect("a tag").to_owned();
    let index = get(&gateway, INDEX).good();
    for (entry, skill) in index["skills"].as_array().expect("skills").iter().zip(0..) {
        let of = manifest.json()["skills"].as_array().expect("skills").clone();
        let skill = of.iter().find(|skill| skill["name"] == entry["name"]).unwrap_or_else(|| panic!("skill {skill}"));
        assert_eq!(entry["digest"], format!("sha256:{}", skill["sha256"].as_str().expect("a checksum")));
    }
    for (tags, status) in [(tag.as_str(), 304), ("*", 304), (&format!("\"other\", W/{tag}"), 304), ("\"other\"", 200)] {
        let answer = Call::get(MANIFEST).header("if-none-match", tags).send(gateway.address());
        assert_eq!((answer.status, answer.header("etag")), (status, Some(tag.as_str())), "{tags}");
        assert_eq!(answer.body.is_empty(), status == 304, "{tags}");
    }
    let head = Call::head_of(MANIFEST).send(gateway.address());
    assert_eq!((head.status, head.header("etag"), head.body.len()), (200, Some(tag.as_str()), 0));
}

#[test]
fn what_has_an_error_is_not_published_and_what_was_good_stays() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let gateway = publishing(folder.path());
    let good = get(&gateway, MANIFEST);
    assert_eq!(good.status, 200);
    let package = std::fs::read_dir(folder.path().join("packages")).expect("packages").flatten().next().expect("one");
    let whole = std::fs::read(package.path()).expect("a package");
    std::fs::write(package.path(), b"another").expect("a broken package");
    let complaints = |count: usize| {
        eventually("the operator is told", || {
            let answer = get(&gateway, MANIFEST);
            assert_eq!(answer.body, good.body, "what was good stays");
            let said = gateway.said();
            (said.matches("the skills are not published").count() >= count).then_some(said)
        })
    };
    assert!(complaints(1).contains("what was good before"));
    std::fs::write(folder.path().join("skills.json"), "{\"skills\": 3}").expect("a broken manifest");
    complaints(2);
    // Mended, with another byte in it.
    std::fs::write(package.path(), whole).expect("the package");
    let mut next = good.body.clone();
    next.push(b'\n');
    std::fs::write(folder.path().join("skills.json"), &next).expect("a manifest");
    let tag = eventually("the next one is published", || {
        let answer = get(&gateway, MANIFEST);
        (answer.body == next).then(|| answer.header("etag").map(str::to_owned))
    });
    assert_ne!(tag.as_deref(), good.header("etag"));
}

#[test]
fn where_nothing_is_published_nothing_is_there() {
    let gateway = Gateway::simulated();
    for path in [MANIFEST, INDEX] {
        assert_eq!(get(&gateway, path).error(404)["code"], "unknown_url", "{path}");
    }
    let folder = tempfile::TempDir::new().expect("a folder");
    let empty = Gateway::with(&format!("skills_dir = \"{}\"", folder.path().display()), &[]);
    assert_eq!(get(&empty, MANIFEST).status, 404);
    // The log is read beside the answers, and may be a moment behind them.
    eventually("the log says why", || empty.said().contains("there is no skills.json").then_some(()));
}
