//! Identifies equal requests by their operation, their fields, the contents of their files, and the turn of the agent's
//! conversation, if the request names one.

use std::hash::BuildHasher as _;
use std::io;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::hmac;
use tokio::sync::OnceCell;

use crate::gateway::keys::Caller;
use crate::gateway::rules::{Job, SharedTask};
use crate::gateway::spool::SpooledBytes;
use crate::image::ByteSource;

/// A SHA-256 hash of a whole request.
pub(super) type ReplayDigest = [u8; 32];

/// The most bytes that are read from a file at once (our choice).
const PIECE_BYTES: usize = 256 * 1024;

/// The digest of a task, which is computed on first use. Until then the task is kept.
pub(super) struct RequestIdentity {
    task: Mutex<Option<SharedTask>>,
    digest: OnceCell<ReplayDigest>,
}

/// Returns the SHA-256 of the operation, the turn, and the content: the fields and files of a job for images, or the
/// body of a request for a response. Files are read on a blocking thread.
///
/// # Errors
///
/// Returns an error if a file cannot be read.
pub(super) async fn digest(task: &SharedTask) -> io::Result<ReplayDigest> {
    if is_in_memory(task) {
        return digest_blocking(task);
    }
    let task = task.clone();
    tokio::task::spawn_blocking(move || digest_blocking(&task)).await.map_err(io::Error::other)?
}

/// True if no file must be read for the digest.
pub(super) fn is_in_memory(task: &SharedTask) -> bool {
    match task {
        SharedTask::Images(job) => job.edit_input().is_none(),
        SharedTask::Response(job) => matches!(job.body(), SpooledBytes::Memory(_)),
    }
}

/// Returns the scope of the answer of a request without an idempotency key.
pub(super) fn plain_scope(request_id: &str) -> ReplayDigest {
    let mut context = Context::new(&SHA256);
    update_with_part(&mut context, b"imagate plain answer v1");
    update_with_part(&mut context, request_id.as_bytes());
    digest_from_hash(context.finish().as_ref())
}

fn digest_blocking(task: &SharedTask) -> io::Result<ReplayDigest> {
    let mut context = Context::new(&SHA256);
    update_with_part(&mut context, b"imagate job v1");
    update_with_part(&mut context, task.operation_id().as_bytes());
    match task {
        SharedTask::Images(job) => update_with_images(&mut context, job)?,
        SharedTask::Response(job) => update_with_file(&mut context, job.body())?,
    }
    if let Some(turn) = task.turn() {
        update_with_part(&mut context, turn.as_bytes());
    }
    Ok(digest_from_hash(context.finish().as_ref()))
}

fn update_with_images(context: &mut Context, job: &Job) -> io::Result<()> {
    update_with_part(context, job.upstream_json()?);
    if let Some(input) = job.edit_input() {
        context.update(&(input.images.len() as u64).to_be_bytes());
        for upload in input.images.iter().chain(&input.mask) {
            update_with_file(context, &*upload.file)?;
        }
        for upload in &input.files {
            update_with_part(context, upload.param.as_bytes());
            update_with_file(context, &*upload.file)?;
        }
    }
    Ok(())
}

/// Adds a part with its length before it, so that different lists of parts never give the same bytes.
fn update_with_part(context: &mut Context, bytes: &[u8]) {
    context.update(&(bytes.len() as u64).to_be_bytes());
    context.update(bytes);
}

fn update_with_file(context: &mut Context, file: &dyn ByteSource) -> io::Result<()> {
    let length = file.len();
    context.update(&length.to_be_bytes());
    let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(length).unwrap_or(PIECE_BYTES))];
    let mut offset = 0;
    while offset < length {
        match file.read_at(offset, &mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                context.update(&piece[..count]);
                offset += count as u64;
            }
        }
    }
    Ok(())
}

fn digest_from_hash(hash: &[u8]) -> ReplayDigest {
    let mut digest = [0; 32];
    digest.copy_from_slice(hash);
    digest
}

/// Returns the scope of an idempotency key: a hash of the key, its API key and the operation. Equal idempotency keys of
/// two API keys do not conflict.
pub(super) fn scope(caller: &Caller, operation: &str, idempotency_key: &str) -> ReplayDigest {
    let mut context = Context::new(&SHA256);
    for text in ["imagate replay scope v1", caller.key().as_str(), operation, idempotency_key] {
        update_with_part(&mut context, text.as_bytes());
    }
    digest_from_hash(context.finish().as_ref())
}

/// Returns the stored form of a digest. It is keyed with the idempotency key, which is not stored, so that a stolen
/// database cannot be searched for guessed prompts.
pub(super) fn keyed_digest(digest: &ReplayDigest, idempotency_key: &str) -> ReplayDigest {
    let key = hmac::Key::new(hmac::HMAC_SHA256, idempotency_key.as_bytes());
    digest_from_hash(hmac::sign(&key, digest).as_ref())
}

/// Returns a hash for which no file is read. Requests with equal digests also have equal cheap hashes. If the cheap
/// hashes of two requests differ, the requests differ too, and their files need not be read.
pub(super) fn cheap_hash(hasher: &std::hash::RandomState, task: &SharedTask) -> u64 {
    let common = (task.operation_id(), task.turn());
    match task {
        SharedTask::Images(job) => {
            let lengths: Vec<u64> = job.edit_input().map_or_else(Vec::new, |input| {
                input.images.iter().chain(&input.mask).chain(&input.files).map(|upload| upload.file.len()).collect()
            });
            hasher.hash_one((common, job.upstream_json().ok(), lengths))
        }
        SharedTask::Response(job) => hasher.hash_one((common, job.model(), job.body().len())),
    }
}

// === impl RequestIdentity ===

impl RequestIdentity {
    pub(super) fn new(task: SharedTask) -> Self {
        Self { task: Mutex::new(Some(task)), digest: OnceCell::new() }
    }

    /// Returns the digest. The first call that succeeds drops the task, and with it the files.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read.
    pub(super) async fn digest(&self) -> io::Result<ReplayDigest> {
        let digest = self.digest.get_or_try_init(|| async {
            let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
            digest(&task.ok_or(io::ErrorKind::NotFound)?).await
        });
        let digest = *digest.await?;
        self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(digest)
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;

    use super::*;
    use crate::gateway::rules::check_generation;

    async fn digest_of(body: &str) -> ReplayDigest {
        digest(&check_generation(body.as_bytes(), Utc::now()).unwrap().into()).await.unwrap()
    }

    #[tokio::test]
    async fn the_digest_depends_on_each_field_but_not_on_their_order() {
        let first = digest_of(r#"{"model":"gpt-image-2","prompt":"red","n":2,"user":null}"#).await;
        assert_eq!(first, digest_of(r#"{"n":2.0,"prompt":"red","model":"gpt-image-2"}"#).await);
        assert_ne!(first, digest_of(r#"{"n":1,"prompt":"red","model":"gpt-image-2"}"#).await);
        assert_ne!(first, digest_of(r#"{"n":2,"prompt":"red ","model":"gpt-image-2"}"#).await);
        assert_ne!(first, digest_of(r#"{"n":2,"prompt":"red","model":"gpt-image-2","user":"u"}"#).await);
    }

    #[tokio::test]
    async fn the_digest_depends_on_the_turn_of_the_conversation() {
        let job = |turn: Option<&str>| {
            let job = check_generation(br#"{"model":"gpt-image-2","prompt":"red"}"#, Utc::now()).unwrap();
            SharedTask::from(job.with_turn(turn.map(str::to_owned)))
        };
        let hasher = std::hash::RandomState::new();
        for (first, second, is_equal) in
            [(Some("a"), Some("a"), true), (Some("a"), Some("b"), false), (Some("a"), None, false)]
        {
            let (first, second) = (job(first), job(second));
            assert_eq!(digest(&first).await.unwrap() == digest(&second).await.unwrap(), is_equal);
            assert_eq!(cheap_hash(&hasher, &first) == cheap_hash(&hasher, &second), is_equal);
        }
    }

    #[test]
    fn the_stored_digest_depends_on_the_idempotency_key() {
        assert_ne!(keyed_digest(&[1; 32], "a"), keyed_digest(&[1; 32], "b"));
        assert_ne!(keyed_digest(&[1; 32], "a"), keyed_digest(&[2; 32], "a"));
    }
}
