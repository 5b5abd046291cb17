//! The skills that a folder publishes: its manifest, the discovery index made from it, and the packages that it names.
//!
//! This module decides when the folder is checked again, and whether its content may be published: the manifest must
//! have no errors, and each package must lie beside it, belong to it and be safe. This module must not know HTTP; the
//! module `manifest` defines the checks and their findings.
//!
//! A request causes the check, at most once a second and one at a time. The whole content is checked only if the
//! manifest, a package, or a folder around a package has changed or could not be read. While nothing is published yet,
//! every request waits for the running check. Errors are logged for the operator and the content is not published:
//! callers keep the last good version.

mod file_stamps;
mod published_package;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use chrono::Utc;

use crate::checkout::Checkout;
use crate::manifest::{
    CheckOptions, CheckReport, Manifest, RepositoryFiles, SourceFile, check, discovery_index, verify,
};

use file_stamps::{FileStamp, TrackedFiles};
use published_package::PublishedPackage;

/// The manifest in the folder.
const MANIFEST: &str = "skills.json";
/// The longest manifest that is read (our choice). A manifest of 10,000 skills has a tenth of this
/// size.
const MANIFEST_MAX_BYTES: u64 = 64 << 20;
/// The shortest time between two checks. A check of an unchanged folder costs one file system call for the manifest,
/// for each package, and for each folder around a package.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Publishes a folder with a manifest, and checks the folder again after it has changed.
pub(crate) struct RegistryPublisher {
    folder: PathBuf,
    state: Mutex<RegistryPublisherState>,
    /// Held by a check until its end, even if no request waits for it any more.
    check_lock: Arc<tokio::sync::Mutex<()>>,
}

/// The content that may be published.
#[derive(Clone, Debug)]
pub(crate) struct PublishedRegistry {
    /// The manifest, byte for byte.
    pub(crate) manifest: PublishedDocument,
    /// The discovery index of Agent Skills.
    pub(crate) index: PublishedDocument,
    /// The packages, by their paths as the manifest spells them.
    packages: HashMap<String, Arc<PublishedPackage>>,
}

/// A published document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublishedDocument {
    /// The bytes of the document.
    pub(crate) bytes: Bytes,
    /// The entity tag of its bytes.
    pub(crate) tag: EntityTag,
}

/// A strong entity tag, in its quotes. It changes with every change of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntityTag(String);

#[derive(Default)]
struct RegistryPublisherState {
    last_checked: Option<Instant>,
    /// The stamps of the last check, whatever it found; `None` if part of the folder could not be read.
    checked_stamps: Option<Arc<[FileStamp]>>,
    /// The last error that was logged for the operator.
    last_error: Option<String>,
    published: Option<Arc<PublishedRegistry>>,
}

/// The reason why a folder is not published.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("{MANIFEST} cannot be read: {0}")]
    Unreadable(String),
    #[error("{count} errors, the first of them {rule} at `{pointer}`: {message}")]
    Errors { count: usize, rule: &'static str, pointer: String, message: String },
}

// === impl RegistryPublisher ===

impl RegistryPublisher {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), state: Mutex::default(), check_lock: Arc::default() }
    }

    /// Returns the content that is published now, if there is any. Checks the folder first if that is due.
    pub(crate) async fn published(self: &Arc<Self>) -> Option<Arc<PublishedRegistry>> {
        if let Some(check_guard) = self.acquire_check().await
            && self.is_due()
        {
            let publisher = Arc::clone(self);
            let run_check = move || {
                let _check_guard = check_guard;
                publisher.check_if_changed();
            };
            if let Err(error) = tokio::runtime::Handle::current().spawn_blocking(run_check).await {
                tracing::error!(%error, "the check of the skills folder has failed");
            }
        }
        self.lock().published.clone()
    }

    /// Returns the right to check, if a check is due and none is running. If nothing is published, waits for the
    /// running check.
    async fn acquire_check(&self) -> Option<tokio::sync::OwnedMutexGuard<()>> {
        if !self.is_due() {
            return None;
        }
        match Arc::clone(&self.check_lock).try_lock_owned() {
            Ok(check_guard) => Some(check_guard),
            Err(_) if self.lock().published.is_none() => Some(Arc::clone(&self.check_lock).lock_owned().await),
            Err(_) => None,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RegistryPublisherState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_due(&self) -> bool {
        self.lock().last_checked.is_none_or(|checked_at| checked_at.elapsed() >= CHECK_INTERVAL)
    }

    /// Checks the folder if it has changed.
    fn check_if_changed(&self) {
        let stamps = self.lock().checked_stamps.clone();
        let is_unchanged = stamps.is_some_and(|stamps| stamps.iter().all(FileStamp::is_unchanged));
        let outcome = if is_unchanged { None } else { Some(self.check()) };
        let mut state = self.lock();
        state.last_checked = Some(Instant::now());
        let Some((stamps, result)) = outcome else { return };
        let was_read = stamps.is_some();
        state.checked_stamps = stamps;
        match result {
            Ok(published) => {
                tracing::info!(tag = published.manifest.tag.as_str(), "the skills are published");
                state.last_error = None;
                state.published = Some(Arc::new(published));
            }
            Err(error) => self.log_error(&mut state, error.to_string(), was_read),
        }
    }

    /// Logs an error. A folder that cannot be read completely is checked as a whole each time, but an error that
    /// repeats is logged only once.
    fn log_error(&self, state: &mut RegistryPublisherState, message: String, was_read: bool) {
        if was_read || state.last_error.as_ref() != Some(&message) {
            let folder = self.folder.display();
            let instead = state.published.as_ref().map_or("nothing", |_| "the last valid version");
            tracing::error!(error = message, %folder, instead, "the skills are not published");
        }
        state.last_error = Some(message);
    }

    /// Reads and checks all of the content. The stamps are taken first, so a file that changes during the check is
    /// checked again.
    fn check(&self) -> (Option<Arc<[FileStamp]>>, Result<PublishedRegistry, PublishError>) {
        let mut stamps = vec![FileStamp::from_path(self.folder.join(MANIFEST))];
        let (checkout, source) = match self.read() {
            Ok(checkout_and_source) => checkout_and_source,
            Err(error) => return (None, Err(error)),
        };
        if let Ok(manifest) = Manifest::read(&source) {
            let packages = manifest.registry().skills.iter().map(|skill| skill.package.as_str());
            stamps.extend(
                file_stamps::paths_with_parents(packages)
                    .into_iter()
                    .map(|path| FileStamp::from_path(self.folder.join(path))),
            );
        }
        let checkout = TrackedFiles::new(&checkout);
        let result = publish(&checkout, &source).and_then(|published| {
            let packages =
                published_package::packages(&source, &self.folder, &stamps).map_err(PublishError::Unreadable)?;
            Ok(PublishedRegistry { packages, ..published })
        });
        (checkout.was_fully_read().then(|| stamps.into()), result)
    }

    fn read(&self) -> Result<(Checkout, SourceFile), PublishError> {
        let checkout = Checkout::open(&self.folder).map_err(|error| PublishError::Unreadable(error.to_string()))?;
        let bytes =
            checkout.read(MANIFEST, MANIFEST_MAX_BYTES).map_err(|error| PublishError::Unreadable(error.to_string()))?;
        let bytes = bytes.ok_or_else(|| PublishError::Unreadable("it does not exist".to_owned()))?;
        Ok((checkout, SourceFile::new(MANIFEST, bytes)))
    }
}

fn publish(files: &dyn RepositoryFiles, source: &SourceFile) -> Result<PublishedRegistry, PublishError> {
    let mut options = CheckOptions { now: Some(Utc::now()), ..CheckOptions::default() };
    require_no_errors(&check(source.clone(), &options))?;
    options.files = Some(files);
    require_no_errors(&verify(source.clone(), &options))?;
    let index = discovery_index(source, None).map_err(|error| PublishError::Unreadable(error.to_string()))?;
    let (manifest, index) =
        (PublishedDocument::new(source.bytes().to_vec()), PublishedDocument::new(index.into_bytes()));
    Ok(PublishedRegistry { manifest, index, packages: HashMap::new() })
}

fn require_no_errors(report: &CheckReport) -> Result<(), PublishError> {
    let mut errors = report.findings().iter().filter(|finding| finding.is_error());
    let Some(first) = errors.next() else { return Ok(()) };
    Err(PublishError::Errors {
        count: 1 + errors.count(),
        rule: first.rule().id,
        pointer: first.pointer().to_owned(),
        message: first.message().to_owned(),
    })
}

// === impl PublishedRegistry ===

impl PublishedRegistry {
    /// Returns the package at a path that the manifest names, in the manifest's spelling.
    pub(crate) fn package(&self, path: &str) -> Option<&Arc<PublishedPackage>> {
        self.packages.get(path)
    }
}

// === impl PublishedDocument ===

impl PublishedDocument {
    /// Makes a document with the tag of its bytes.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
        Self { bytes: bytes.into(), tag: EntityTag::new(&hex::encode(&digest.as_ref()[..16])) }
    }
}

// === impl EntityTag ===

impl EntityTag {
    fn new(digest: &str) -> Self {
        Self(format!("\"{digest}\""))
    }

    /// The tag as it appears in a header.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// True if `tags`, a list as in `If-None-Match`, contains this tag.
    pub(crate) fn is_in_list(&self, tags: &str) -> bool {
        tags.split(',').map(str::trim).any(|tag| tag == "*" || tag.trim_start_matches("W/") == self.0)
    }
}
