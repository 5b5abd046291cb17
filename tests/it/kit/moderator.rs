//! A fake moderation endpoint on loopback: it flags input that contains a certain word, and records its requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::pause;
use super::stub_server::{StubRequest, StubServer};

/// The endpoint. Dropping it closes the port.
pub(crate) struct FakeModerator {
    server: StubServer,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    calls: Vec<ModerationCall>,
    answer: ModeratorAnswer,
}

/// One request to the endpoint.
#[derive(Clone, Debug)]
pub(crate) struct ModerationCall {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
}

#[derive(Clone, Default)]
enum ModeratorAnswer {
    /// Flags every input with this word in it.
    #[default]
    Verdict,
    /// This status and body, whatever was asked.
    Fixed(u16, String),
    /// Closes the connection.
    Closed,
    /// The verdict, after this time.
    Delayed(Duration),
}

/// Input with this word is flagged.
pub(crate) const FLAGGED: &str = "flag-me";

// === impl FakeModerator ===

impl FakeModerator {
    pub(crate) fn start() -> Self {
        let state = Arc::<Mutex<State>>::default();
        let serving = Arc::clone(&state);
        Self { server: StubServer::start(move |request| answer(&serving, request)), state }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.server.address())
    }

    pub(crate) fn calls(&self) -> Vec<ModerationCall> {
        lock(&self.state).calls.clone()
    }

    /// Answers this from now on, whatever is asked.
    pub(crate) fn always(&self, status: u16, body: &str) {
        lock(&self.state).answer = ModeratorAnswer::Fixed(status, body.to_owned());
    }

    /// Closes every connection without an answer from now on.
    pub(crate) fn hang_up(&self) {
        lock(&self.state).answer = ModeratorAnswer::Closed;
    }

    /// Delays each verdict by this time from now on.
    pub(crate) fn set_delay(&self, time: Duration) {
        lock(&self.state).answer = ModeratorAnswer::Delayed(time);
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(state: &Mutex<State>, request: &StubRequest) -> Option<(u16, String)> {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let authorization = request.header("authorization").map(str::to_owned);
    let flagged = body["input"].to_string().contains(FLAGGED);
    let says = {
        let mut state = lock(state);
        state.calls.push(ModerationCall { path: request.path.clone(), authorization, body });
        state.answer.clone()
    };
    let verdict = json!({"id": "modr-1", "model": "omni-moderation-latest", "results": [
        {"flagged": flagged, "categories": {"violence": flagged}, "category_scores": {"violence": 0.5}}]});
    match says {
        ModeratorAnswer::Verdict => Some((200, verdict.to_string())),
        ModeratorAnswer::Fixed(status, body) => Some((status, body)),
        ModeratorAnswer::Closed => None,
        ModeratorAnswer::Delayed(time) => {
            pause(time);
            Some((200, verdict.to_string()))
        }
    }
}
