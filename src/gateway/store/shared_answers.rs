//! The bytes of stored answers, if several nodes share them.

use async_trait::async_trait;

use super::StoreError;

/// The answers whose bytes are in the database, so that each node can send them.
///
/// An answer is announced with its row ([`super::ReplayWrite::Finish`]). Its pieces are written after that, and it is
/// removed together with its row at the latest. The name of its file identifies it, and begins with the id of its API
/// key and `-`. The pieces are encrypted like the file.
#[async_trait]
pub(crate) trait SharedAnswers: Send + Sync {
    /// Writes a piece of an announced answer; the last one makes the answer complete. Returns `false` if the answer was
    /// removed. Pieces may be lost if the server fails a moment later.
    async fn write_answer_piece(&self, piece: AnswerPiece<'_>) -> Result<bool, StoreError>;

    /// Returns the state of an answer; `None` if it was never announced, or was removed.
    async fn find_shared_answer(&self, file: &str) -> Result<Option<SharedAnswerState>, StoreError>;

    /// Returns the bytes of a piece, if it is there.
    async fn read_answer_piece(&self, file: &str, number: u32) -> Result<Option<Vec<u8>>, StoreError>;

    /// Removes an answer, but not its row.
    async fn remove_shared_answer(&self, file: &str) -> Result<(), StoreError>;

    /// Removes answers until all of them together have at most `max_bytes`: the oldest of the API keys with the most
    /// bytes.
    async fn limit_shared_answers(&self, max_bytes: u64) -> Result<(), StoreError>;
}

/// A piece of the file of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerPiece<'a> {
    /// The name of the file.
    pub(crate) file: &'a str,
    /// The position of the piece among those of its file, from 0.
    pub(crate) number: u32,
    /// True for the last piece of the file.
    pub(crate) is_last: bool,
    /// The bytes.
    pub(crate) bytes: &'a [u8],
}

/// The state of the bytes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedAnswerState {
    /// A node writes the pieces, or has ended before the last one.
    Incomplete,
    /// All pieces are there.
    Complete,
}
