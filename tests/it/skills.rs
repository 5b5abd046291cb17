//! The skills that a gateway publishes: this repository's own, and what becomes of them when somebody breaks them.

use std::path::Path;

use imagate::manifest::package::Sha256Sum;

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
    let index = get(&gateway, INDEX).ok_json();
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
            let said = gateway.output();
            (said.matches("the skills are not published").count() >= count).then_some(said)
        })
    };
    assert!(complaints(1).contains("the last valid version"));
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
    for path in [MANIFEST, INDEX, "/skills/packages/image-generation-1.0.0.zip", "/skills"] {
        assert_eq!(get(&gateway, path).error_object(404)["code"], "unknown_url", "{path}");
    }
    let folder = tempfile::TempDir::new().expect("a folder");
    let empty = Gateway::with(&format!("skills_dir = \"{}\"", folder.path().display()), &[]);
    assert_eq!(get(&empty, MANIFEST).status, 404);
    // The log is read beside the answers, and may be a moment behind them.
    eventually("the log says why", || {
        empty.output().contains("skills.json cannot be read: it does not exist").then_some(())
    });
}

/// The packages that our manifest names, with their checksums.
fn packages(gateway: &Gateway) -> Vec<(String, String)> {
    let manifest = get(gateway, MANIFEST).ok_json();
    let word = |skill: &serde_json::Value, key: &str| skill[key].as_str().expect("a text").to_owned();
    let skills = manifest["skills"].as_array().expect("skills").iter();
    skills.map(|skill| (format!("/skills/{}", word(skill, "package")), word(skill, "sha256"))).collect()
}

#[test]
fn every_package_that_the_manifest_names_is_served_to_the_byte() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let gateway = publishing(folder.path());
    let packages = packages(&gateway);
    assert!(packages.len() >= 2, "{packages:?}");
    for (path, sum) in packages {
        let tag = format!("\"{sum}\"");
        let answer = get(&gateway, &path);
        let on_disk = std::fs::read(folder.path().join(path.trim_start_matches("/skills/"))).expect("a package");
        assert_eq!((answer.status, &answer.body), (200, &on_disk), "{path}");
        assert_eq!(Sha256Sum::of(&answer.body).to_string(), sum, "{path}");
        for (header, value) in [
            ("content-type", "application/zip"),
            ("content-length", &on_disk.len().to_string()),
            ("cache-control", "public, max-age=300"),
            ("access-control-allow-origin", "*"),
            ("etag", &tag),
        ] {
            assert_eq!(answer.header(header), Some(value), "{path} {header}");
        }
        let head = Call::head_of(&path).send(gateway.address());
        assert_eq!((head.status, head.header("etag"), head.body.len()), (200, Some(&*tag), 0), "{path}");
        assert_eq!(head.header("content-length"), answer.header("content-length"), "{path}");
        for (tags, status) in [(&*tag, 304), ("*", 304), (&format!("\"other\", W/{tag}"), 304), ("\"other\"", 200)] {
            let answer = Call::get(&path).header("if-none-match", tags).send(gateway.address());
            assert_eq!((answer.status, answer.header("etag")), (status, Some(&*tag)), "{path} {tags}");
            assert_eq!(answer.body.is_empty(), status == 304, "{path} {tags}");
        }
        let posted = Call::post(&path).send(gateway.address());
        assert_eq!(posted.error_object(405)["code"], "method_not_allowed", "{path}");
        // An escape is another spelling of the same name.
        assert_eq!(get(&gateway, &path.replace('-', "%2d").replace(".zip", "%2Ezip")).body, on_disk, "{path}");
    }
}

/// Paths below `/skills/` that the manifest does not name.
const OTHERS: &[&str] = &[
    "",
    "secret",
    ".env",
    "packages",
    "packages/",
    "packages/secret",
    "packages/older-1.0.0.zip",
    "README.md",
    "packages/link-1.0.0.zip",
    "skills.json/",
    "/skills.json",
    "SKILLS.JSON",
    "skills.json%00",
    "%2e%2e/secret",
    "%2E%2E%2Fsecret",
    "..%2fsecret",
    "packages/%2e%2e/%2e%2e/secret",
    "packages%2f..%2f..%2fsecret",
    "packages/%2e%2e/skills.json",
    "%2e/skills.json",
    "packages/..%5c..%5csecret",
    "..%5csecret",
    "%252e%252e/secret",
    "~/secret",
    "C:/secret",
    "file:%2f%2f%2fetc%2fpasswd",
    "%2fetc%2fpasswd",
    "//etc/passwd",
];

/// Everything below and beside the folder that the manifest does not name.
#[test]
fn nothing_is_served_that_the_manifest_does_not_name() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let root = folder.path().join("published");
    let gateway = publishing(&root);
    std::fs::write(folder.path().join("secret"), "secret").expect("a file beside the folder");
    for name in ["secret", ".env", "packages/secret", "packages/older-1.0.0.zip", "README.md"] {
        std::fs::write(root.join(name), "secret").expect("a file in the folder");
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink("../../secret", root.join("packages/link-1.0.0.zip")).expect("a link");
    let (package, _) = packages(&gateway).swap_remove(0);
    let name = package.rsplit('/').next().expect("a name").to_owned();
    let here = root.display().to_string();
    let paths = OTHERS.iter().map(|path| (*path).to_owned()).chain([
        here.clone(),
        format!("packages/{name}/"),
        format!("packages//{name}"),
        format!("packages/{name}%00"),
        format!("packages/{name}%20"),
        format!("packages/{}", name.to_uppercase()),
        format!("packages/%2e/{name}"),
        format!("packages/x/%2e%2e/{name}"),
        format!("{}{}", here, "/skills.json"),
    ]);
    for path in paths {
        let answer = get(&gateway, &format!("/skills/{path}"));
        assert_eq!(answer.error_object(404)["code"], "unknown_url", "{path}: {}", answer.text());
        assert!(!answer.text().contains("\"secret"), "{path}");
        let head = Call::head_of(&format!("/skills/{path}")).send(gateway.address());
        assert_eq!((head.status, head.body.len()), (404, 0), "{path}");
    }
    // Such paths go nowhere at all, whoever is asked.
    for path in ["../secret", "../../etc/passwd", "packages/../../secret", "./skills.json", "packages/../skills.json"] {
        assert_eq!(
            get(&gateway, &format!("/skills/{path}")).error_object(400)["code"],
            "invalid_request_error",
            "{path}"
        );
    }
    assert_eq!(get(&gateway, "/skills").error_object(404)["code"], "unknown_url");
    assert_eq!(get(&gateway, &package).status, 200);
}

#[test]
fn a_package_that_was_changed_is_not_served_until_it_is_good_again() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let gateway = publishing(folder.path());
    let (path, sum) = packages(&gateway).swap_remove(0);
    let place = folder.path().join(path.trim_start_matches("/skills/"));
    let good = std::fs::read(&place).expect("a package");
    let mut bad = good.clone();
    *bad.last_mut().expect("a byte") ^= 1;
    std::fs::write(&place, &bad).expect("another package");
    assert_eq!(get(&gateway, &path).error_object(404)["code"], "unknown_url");
    assert_eq!(Call::head_of(&path).send(gateway.address()).status, 404);
    std::fs::remove_file(&place).expect("the package");
    assert_eq!(get(&gateway, &path).error_object(404)["code"], "unknown_url");
    std::fs::write(&place, &good).expect("the package");
    let answer = eventually("it is served again", || {
        let answer = get(&gateway, &path);
        (answer.status == 200).then_some(answer)
    });
    assert_eq!(answer.header("etag"), Some(&*format!("\"{sum}\"")));
    assert_eq!(answer.body, good);
}
