//! Tests of the check of the published folder: one check at a time for all requests, and a new check after each change.

use std::fs;
use std::future::Future as _;
use std::task::{Context, Waker};

use tempfile::TempDir;

use super::*;
use crate::manifest::package::{PackageLimits, Sha256Sum, ZipTimestamp, pack};
use crate::manifest::{FileMetadata, FilesError, FolderEntry};

/// Copies the skills of this repository to a folder that a test can change.
fn skills_folder() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas/skills");
    fs::create_dir(folder.path().join("packages")).expect("a folder");
    fs::copy(source.join(MANIFEST), folder.path().join(MANIFEST)).expect("our manifest");
    for package in fs::read_dir(source.join("packages")).expect("our packages").flatten() {
        fs::copy(package.path(), folder.path().join("packages").join(package.file_name())).expect("a package");
    }
    folder
}

fn any_package(folder: &TempDir) -> PathBuf {
    fs::read_dir(folder.path().join("packages")).expect("packages").flatten().next().expect("a package").path()
}

#[test]
fn a_file_changed_without_new_length_or_time_is_checked_again() {
    let folder = skills_folder();
    let package = any_package(&folder);
    let good = fs::read(&package).expect("a package");
    let time = fs::metadata(&package).and_then(|metadata| metadata.modified()).expect("a time");
    let overwrite = |bytes: &[u8]| {
        fs::write(&package, bytes).expect("the file is written");
        fs::File::options()
            .write(true)
            .open(&package)
            .and_then(|file| file.set_modified(time))
            .expect("the time is set");
    };
    let mut bad = good.clone();
    *bad.last_mut().expect("a byte") ^= 1;
    overwrite(&bad);
    let registry = RegistryPublisher::new(folder.path());
    registry.check_if_changed();
    assert!(registry.lock().published.is_none());
    overwrite(&good);
    registry.check_if_changed();
    assert!(registry.lock().published.is_some());
}

#[cfg(unix)]
#[test]
fn a_folder_that_replaces_a_link_to_it_is_checked_again() {
    let folder = skills_folder();
    let (packages, elsewhere) = (folder.path().join("packages"), folder.path().join("elsewhere"));
    fs::rename(&packages, &elsewhere).expect("the folder is moved");
    std::os::unix::fs::symlink("elsewhere", &packages).expect("a link");
    let registry = RegistryPublisher::new(folder.path());
    registry.check_if_changed();
    assert!(registry.lock().published.is_none());
    fs::remove_file(&packages).expect("the link");
    fs::rename(&elsewhere, &packages).expect("the folder is moved back");
    registry.check_if_changed();
    assert!(registry.lock().published.is_some());
}

/// Files of which none can be read, as if the process had too many open files.
struct UnreadableFiles<'a>(&'a Checkout);

impl RepositoryFiles for UnreadableFiles<'_> {
    fn read(&self, path: &str, _limit: u64) -> Result<Option<Vec<u8>>, FilesError> {
        Err(FilesError::Unreadable { path: path.to_owned(), reason: "too many open files".to_owned() })
    }

    fn list(&self, path: &str) -> Result<Option<Vec<FolderEntry>>, FilesError> {
        self.0.list(path)
    }

    fn metadata(&self, path: &str) -> Result<Option<FileMetadata>, FilesError> {
        self.0.metadata(path)
    }
}

#[test]
fn an_unreadable_folder_is_checked_again() {
    let folder = skills_folder();
    let registry = RegistryPublisher::new(folder.path());
    let (checkout, source) = registry.read().expect("a manifest");
    let unreadable = UnreadableFiles(&checkout);
    let tracked = TrackedFiles::new(&unreadable);
    assert!(publish(&tracked, &source).is_err() && !tracked.was_fully_read());
    let tracked = TrackedFiles::new(&checkout);
    assert!(publish(&tracked, &source).is_ok() && tracked.was_fully_read());
    // If the manifest itself cannot be read, no stamps are kept, so the next check cannot be skipped.
    fs::remove_file(folder.path().join(MANIFEST)).expect("the manifest existed");
    registry.check_if_changed();
    assert!(registry.lock().checked_stamps.is_none());
}

#[test]
fn requests_during_the_first_check_wait_for_its_result() {
    let folder = skills_folder();
    let registry = Arc::new(RegistryPublisher::new(folder.path()));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let answers = runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let registry = Arc::clone(&registry);
            tasks.spawn(async move { registry.published().await.is_some() });
        }
        tasks.join_all().await
    });
    assert_eq!(answers, [true; 8]);
}

#[test]
fn a_check_without_waiting_requests_still_blocks_other_checks() {
    let folder = skills_folder();
    let registry = Arc::new(RegistryPublisher::new(folder.path()));
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().expect("a runtime");
    let _runtime_guard = runtime.enter();
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    // The only blocking thread is busy, so the check cannot begin.
    let blocker = runtime.spawn_blocking(move || blocked.recv());
    {
        let mut request = std::pin::pin!(registry.published());
        assert!(request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert!(registry.check_lock.try_lock().is_err(), "the check keeps its lock after its request was dropped");
    release.send(()).expect("the blocking thread waits");
    runtime.block_on(async {
        blocker.await.expect("the blocker ends").expect("the release was sent");
        drop(registry.check_lock.lock().await);
    });
    assert!(registry.lock().published.is_some());
}

/// The first error of a folder whose first package is replaced by one with these files.
fn publish_error(files: &[(&str, &str)]) -> Option<&'static str> {
    let folder = skills_folder();
    let mut manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.path().join(MANIFEST)).expect("our manifest")).expect("JSON");
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect();
    let package = pack(&files, ZipTimestamp::default(), &PackageLimits::default()).expect("a package");
    let entry = &mut manifest["skills"][0];
    entry["name"] = "demo".into();
    entry["version"] = "1.0.0".into();
    entry["sha256"] = Sha256Sum::of(&package).to_string().into();
    entry["size_bytes"] = package.len().into();
    fs::write(folder.path().join(entry["package"].as_str().expect("a path")), package).expect("the file is written");
    fs::write(folder.path().join(MANIFEST), manifest.to_string()).expect("the file is written");
    let checkout = Checkout::open(folder.path()).expect("the folder");
    let source = SourceFile::new(MANIFEST, manifest.to_string());
    match publish(&checkout, &source) {
        Ok(_) => None,
        Err(PublishError::Errors { rule, .. }) => Some(rule),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_package_of_another_skill_or_with_secrets_is_not_published() {
    let skill = |name: &str| format!("---\nname: {name}\ndescription: D.\nmetadata:\n  version: \"1.0.0\"\n---\n");
    assert_eq!(publish_error(&[("SKILL.md", &skill("demo"))]), None);
    assert_eq!(publish_error(&[("SKILL.md", &skill("demo")), (".env", "A=1")]), Some("M091"));
    assert_eq!(publish_error(&[("SKILL.md", &skill("other"))]), Some("M088"));
    assert_eq!(publish_error(&[("README.md", "text")]), Some("M086"));
}
