//! The skills that a gateway publishes: the skills of this repository, and copies of them with faults.

use std::path::Path;

use imagate::manifest::package::Sha256Sum;

use crate::kit::{Answer, Call, Gateway, eventually};

const MANIFEST: &str = "/skills/skills.json";
const INDEX: &str = "/.well-known/agent-skills/index.json";

/// A gateway that publishes a copy of this repository's skills.
fn start_publishing_gateway(folder: &Path) -> Gateway {
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
fn the_own_skills_are_published_byte_for_byte_with_a_tag_and_an_index() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let gateway = start_publishing_gateway(folder.path());
    let manifest = get(&gateway, MANIFEST);
    assert_eq!(manifest.status, 200, "{}", manifest.text());
    assert_eq!(manifest.body, std::fs::read(folder.path().join("skills.json")).expect("our manifest"));
    assert_eq!(manifest.header("content-type"), Some("application/json"));
    assert_eq!(manifest.header("cache-control"), Some("public, max-age=300"));
    assert_eq!(manifest.header("access-control-allow-origin"), Some("*"));
    let tag = manifest.header("etag").expect("a tag").to_owned();
    let index = get(&gateway, INDEX).ok_json();
    for (entry, number) in index["skills"].as_array().expect("skills").iter().zip(0..) {
        let skills = manifest.json()["skills"].as_array().expect("skills").clone();
        let skill =
            skills.iter().find(|skill| skill["name"] == entry["name"]).unwrap_or_else(|| panic!("skill {number}"));
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
fn invalid_skills_are_not_published_and_the_last_valid_version_stays() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let gateway = start_publishing_gateway(folder.path());
    let published = get(&gateway, MANIFEST);
    assert_eq!(published.status, 200);
    let package = std::fs::read_dir(folder.path().join("packages")).expect("packages").flatten().next().expect("one");
    let original = std::fs::read(package.path()).expect("a package");
    std::fs::write(package.path(), b"another").expect("a broken package");
    let wait_for_errors = |count: usize| {
        eventually("the error is in the log", || {
            let answer = get(&gateway, MANIFEST);
            assert_eq!(answer.body, published.body, "the last valid manifest must stay published");
            let log = gateway.output();
            (log.matches("the skills are not published").count() >= count).then_some(log)
        })
    };
    assert!(wait_for_errors(1).contains("the last valid version"));
    std::fs::write(folder.path().join("skills.json"), "{\"skills\": 3}").expect("a broken manifest");
    wait_for_errors(2);
    // The package is restored, and the manifest is valid again, with an added line break.
    std::fs::write(package.path(), original).expect("the package");
    let mut next = published.body.clone();
    next.push(b'\n');
    std::fs::write(folder.path().join("skills.json"), &next).expect("a manifest");
    let tag = eventually("the next manifest is published", || {
        let answer = get(&gateway, MANIFEST);
        (answer.body == next).then(|| answer.header("etag").map(str::to_owned))
    });
    assert_ne!(tag.as_deref(), published.header("etag"));
}

#[test]
fn without_valid_skills_their_paths_are_not_found() {
    let gateway = Gateway::simulated();
    for path in [MANIFEST, INDEX, "/skills/packages/image-generation-1.0.0.zip", "/skills"] {
        assert_eq!(get(&gateway, path).error_object(404)["code"], "unknown_url", "{path}");
    }
    let folder = tempfile::TempDir::new().expect("a folder");
    let empty = Gateway::with(&format!("skills_dir = \"{}\"", folder.path().display()), &[]);
    assert_eq!(get(&empty, MANIFEST).status, 404);
    // The log may appear later than the answer.
    eventually("the log has the reason", || {
        empty.output().contains("skills.json cannot be read: it does not exist").then_some(())
    });
}

/// The packages that our manifest names, with their checksums.
fn packages(gateway: &Gateway) -> Vec<(String, String)> {
    let manifest = get(gateway, MANIFEST).ok_json();
    let text = |skill: &serde_json::Value, key: &str| skill[key].as_str().expect("a text").to_owned();
    let skills = manifest["skills"].as_array().expect("skills").iter();
    skills.map(|skill| (format!("/skills/{}", text(skill, "package")), text(skill, "sha256"))).collect()
}

#[test]
fn every_package_of_the_manifest_is_served_byte_for_byte() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let gateway = start_publishing_gateway(folder.path());
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
        // A path has one spelling.
        let encoded = path.replace('-', "%2d").replace(".zip", "%2Ezip");
        assert_eq!(get(&gateway, &encoded).error_object(404)["code"], "unknown_url", "{path}");
    }
}

/// Paths below `/skills/` that the manifest does not name.
const UNLISTED_PATHS: &[&str] = &[
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

/// Requests files in and beside the folder that the manifest does not name.
#[test]
fn no_file_outside_the_manifest_is_served() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let root = folder.path().join("published");
    let gateway = start_publishing_gateway(&root);
    std::fs::write(folder.path().join("secret"), "secret").expect("a file beside the folder");
    for name in ["secret", ".env", "packages/secret", "packages/older-1.0.0.zip", "README.md"] {
        std::fs::write(root.join(name), "secret").expect("a file in the folder");
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink("../../secret", root.join("packages/link-1.0.0.zip")).expect("a link");
    let (package, _) = packages(&gateway).swap_remove(0);
    let name = package.rsplit('/').next().expect("a name").to_owned();
    let root_path = root.display().to_string();
    let paths = UNLISTED_PATHS.iter().map(|path| (*path).to_owned()).chain([
        root_path.clone(),
        format!("packages/{name}/"),
        format!("packages//{name}"),
        format!("packages/{name}%00"),
        format!("packages/{name}%20"),
        format!("packages/{}", name.to_uppercase()),
        format!("packages/%2e/{name}"),
        format!("packages/x/%2e%2e/{name}"),
        format!("{}{}", root_path, "/skills.json"),
    ]);
    for path in paths {
        let answer = get(&gateway, &format!("/skills/{path}"));
        assert_eq!(answer.error_object(404)["code"], "unknown_url", "{path}: {}", answer.text());
        assert!(!answer.text().contains("\"secret"), "{path}");
        let head = Call::head_of(&format!("/skills/{path}")).send(gateway.address());
        assert_eq!((head.status, head.body.len()), (404, 0), "{path}");
    }
    // Paths with dot segments are refused before routing.
    for path in ["../secret", "../../etc/passwd", "packages/../../secret", "./skills.json", "packages/../skills.json"] {
        assert_eq!(get(&gateway, &format!("/skills/{path}")).error_object(404)["code"], "unknown_url", "{path}");
    }
    assert_eq!(get(&gateway, "/skills").error_object(404)["code"], "unknown_url");
    assert_eq!(get(&gateway, &package).status, 200);
}

#[test]
fn a_changed_package_is_not_served_until_it_is_restored() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let gateway = start_publishing_gateway(folder.path());
    let (path, sum) = packages(&gateway).swap_remove(0);
    let file = folder.path().join(path.trim_start_matches("/skills/"));
    let original = std::fs::read(&file).expect("a package");
    let mut changed = original.clone();
    *changed.last_mut().expect("a byte") ^= 1;
    std::fs::write(&file, &changed).expect("a changed package");
    assert_eq!(get(&gateway, &path).error_object(404)["code"], "unknown_url");
    assert_eq!(Call::head_of(&path).send(gateway.address()).status, 404);
    std::fs::remove_file(&file).expect("the package");
    assert_eq!(get(&gateway, &path).error_object(404)["code"], "unknown_url");
    std::fs::write(&file, &original).expect("the package");
    let answer = eventually("the package is served again", || {
        let answer = get(&gateway, &path);
        (answer.status == 200).then_some(answer)
    });
    assert_eq!(answer.header("etag"), Some(&*format!("\"{sum}\"")));
    assert_eq!(answer.body, original);
}
