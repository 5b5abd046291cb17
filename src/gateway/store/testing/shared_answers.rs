//! A test double of the bytes of answers that nodes share, in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::double::CallFailure;
use crate::gateway::store::*;

/// The bytes of answers. They have no limit; the calls of [`SharedAnswers::limit_shared_answers`] are only noted.
pub(crate) struct SharedAnswersDouble {
    answers: Mutex<HashMap<String, AnswerBytes>>,
    /// Each write of a piece takes one permit. There are enough of them unless a test takes them.
    pub(crate) write_permits: Semaphore,
    pub(crate) failure: CallFailure,
    /// The limits that were asked for.
    pub(crate) limits: Mutex<Vec<u64>>,
}

#[derive(Default)]
struct AnswerBytes {
    pieces: BTreeMap<u32, Vec<u8>>,
    is_complete: bool,
}

impl Default for SharedAnswersDouble {
    fn default() -> Self {
        Self {
            answers: Mutex::default(),
            write_permits: Semaphore::new(1_000_000),
            failure: CallFailure::default(),
            limits: Mutex::default(),
        }
    }
}

impl SharedAnswersDouble {
    /// Announces the answers of these writes.
    pub(super) fn note_writes(&self, writes: &[RowWrite<'_>], outcomes: &[RowWriteOutcome]) {
        for (write, outcome) in writes.iter().zip(outcomes) {
            if let RowWrite::Replay(ReplayWrite::Finish { answer, shared_bytes: Some(_), .. }) = write
                && *outcome == RowWriteOutcome::Done
            {
                self.answers.lock().unwrap().insert(answer.file.clone(), AnswerBytes::default());
            }
        }
    }

    /// Returns the number of complete answers.
    pub(crate) fn complete_count(&self) -> usize {
        self.answers.lock().unwrap().values().filter(|answer| answer.is_complete).count()
    }

    /// Returns the number of answers, complete or not.
    pub(crate) fn count(&self) -> usize {
        self.answers.lock().unwrap().len()
    }

    /// Returns all bytes.
    pub(crate) fn all_bytes(&self) -> Vec<u8> {
        let answers = self.answers.lock().unwrap();
        answers.values().flat_map(|answer| answer.pieces.values()).flatten().copied().collect()
    }

    /// Removes the last piece of each answer.
    pub(crate) fn lose_last_pieces(&self) {
        self.answers.lock().unwrap().values_mut().for_each(|answer| drop(answer.pieces.pop_last()));
    }
}

#[async_trait]
impl SharedAnswers for SharedAnswersDouble {
    async fn write_answer_piece(&self, piece: AnswerPiece<'_>) -> Result<bool, StoreError> {
        self.write_permits.acquire().await.unwrap().forget();
        self.failure.check()?;
        let mut answers = self.answers.lock().unwrap();
        let Some(answer) = answers.get_mut(piece.file).filter(|answer| !answer.is_complete) else { return Ok(false) };
        answer.pieces.insert(piece.number, piece.bytes.to_vec());
        answer.is_complete = piece.is_last;
        Ok(true)
    }

    async fn find_shared_answer(&self, file: &str) -> Result<Option<SharedAnswerState>, StoreError> {
        self.failure.check()?;
        let answers = self.answers.lock().unwrap();
        let state = |answer: &AnswerBytes| match answer.is_complete {
            true => SharedAnswerState::Complete,
            false => SharedAnswerState::Incomplete,
        };
        Ok(answers.get(file).map(state))
    }

    async fn read_answer_piece(&self, file: &str, number: u32) -> Result<Option<Vec<u8>>, StoreError> {
        self.failure.check()?;
        Ok(self.answers.lock().unwrap().get(file).and_then(|answer| answer.pieces.get(&number).cloned()))
    }

    async fn remove_shared_answer(&self, file: &str) -> Result<(), StoreError> {
        self.answers.lock().unwrap().remove(file);
        Ok(())
    }

    async fn limit_shared_answers(&self, max_bytes: u64) -> Result<(), StoreError> {
        self.limits.lock().unwrap().push(max_bytes);
        Ok(())
    }
}
