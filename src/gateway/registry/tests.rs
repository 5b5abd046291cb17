//! The folder is checked once at a time, for all requests, and every part of it that can have changed.

use std::fs;
use std::future::Future as _;
use std::task::{Context, Waker};

use tempfile::TempDir;

use super::*;
use crate::manifest::{FileMetadata, FilesError, FolderEntry};

/// Makes a folder with the skills of this repository, which a test can change.
fn folder() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas/skills");
    fs::create_dir(folder.path().join("packages")).expect("a folder");
    fs::copy(own.join(MANIFEST), folder.path().join(MANIFEST)).expect("our manifest");
    for package in fs::read_dir(own.join("packages")).expect("our packages").flatten() {
        fs::copy(package.path(), folder.path().join("packages").join(package.file_name())).expect("a package");
    }
    folder
}

fn a_package(folder: &TempDir) -> PathBuf {
    fs::read_dir(folder.path().join("packages")).expect("packages").flatten().next().expect("a package").path()
}

#[test]
fn a_file_whose_length_and_time_stay_is_looked_at_again() {
    let folder = folder();
    let package = a_package(&folder);
    let good = fs::read(&package).expect("a package");
    let time = fs::metadata(&package).and_then(|metadata| metadata.modified()).expect("a time");
    let put = |bytes: &[u8]| {
        fs::write(&package, bytes).expect("it is written");
        fs::File::options().write(true).open(&package).and_then(|file| file.set_modified(time)).expect("its time");
    };
    let mut bad = good.clone();
    *bad.last_mut().expect("a byte") ^= 1;
    put(&bad);
    let registry = RegistryPublisher::new(folder.path());
    registry.check_if_changed();
    assert!(registry.lock().published.is_none());
    put(&good);
    registry.check_if_changed();
    assert!(registry.lock().published.is_some());
}

#[cfg(unix)]
#[test]
fn a_folder_that_takes_the_place_of_a_link_to_it_is_looked_at_again() {
    let folder = folder();
    let (packages, elsewhere) = (folder.path().join("packages"), folder.path().join("elsewhere"));
    fs::rename(&packages, &elsewhere).expect("it is moved");
    std::os::unix::fs::symlink("elsewhere", &packages).expect("a link");
    let registry = RegistryPublisher::new(folder.path());
    registry.check_if_changed();
    assert!(registry.lock().published.is_none());
    fs::remove_file(&packages).expect("the link");
    fs::rename(&elsewhere, &packages).expect("it is moved back");
    registry.check_if_changed();
    assert!(registry.lock().published.is_some());
}

/// Files that cannot be opened, as if the process had too many open files.
struct Full<'a>(&'a Checkout);

impl RepositoryFiles for Full<'_> {
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
fn what_could_not_be_read_was_not_looked_at() {
    let folder = folder();
    let registry = RegistryPublisher::new(folder.path());
    let (checkout, source) = registry.read().expect("a manifest");
    let full = Full(&checkout);
    let noting = TrackedFiles::new(&full);
    assert!(publish(&noting, &source).is_err() && !noting.was_fully_read());
    let noting = TrackedFiles::new(&checkout);
    assert!(publish(&noting, &source).is_ok() && noting.was_fully_read());
    // The manifest itself cannot be read: no stamp is kept that could avoid the next check.
    fs::remove_file(folder.path().join(MANIFEST)).expect("it was there");
    registry.check_if_changed();
    assert!(registry.lock().checked_stamps.is_none());
}

#[test]
fn whoever_asks_during_the_first_look_is_given_what_it_finds() {
    let folder = folder();
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
fn a_look_that_nobody_waits_for_any_more_is_still_the_only_one() {
    let folder = folder();
    let registry = Arc::new(RegistryPublisher::new(folder.path()));
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().expect("a runtime");
    let _inside = runtime.enter();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    // The only thread for such work is busy, so the check cannot begin.
    let taken = runtime.spawn_blocking(move || wait.recv());
    {
        let mut asked = std::pin::pin!(registry.published());
        assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert!(registry.check_lock.try_lock().is_err(), "the caller is gone, and another look may begin");
    go.send(()).expect("it waits");
    runtime.block_on(async {
        taken.await.expect("it ends").expect("a word");
        drop(registry.check_lock.lock().await);
    });
    assert!(registry.lock().published.is_some());
}
