//! Coding agents and the stream helpers of SDKs as callers of `/v1/responses`: whole conversations with a model that the
//! test has laid down, each compared, client to gateway with gateway to upstream, byte by byte.

mod codex;
mod failures;
mod images;
mod turns;

use crate::kit::{Account, FakeUpstream, Gateway, RecordingProxy};

/// An upstream that draws and talks, a gateway before it, and a wire before that.
struct Stage {
    upstream: FakeUpstream,
    gateway: Gateway,
    tap: RecordingProxy,
}

// === impl Stage ===

impl Stage {
    fn set() -> Self {
        let upstream = FakeUpstream::start();
        let accounts = [
            Account::for_upstream("draws", &upstream),
            Account::for_upstream("talks", &upstream).with_responses_protocol().with_free_tier(),
        ];
        let gateway = Gateway::with("", &accounts);
        let tap = RecordingProxy::in_front_of(gateway.address());
        Self { upstream, gateway, tap }
    }

    /// So many tasks went upstream, and nothing of them was changed or leaked.
    #[track_caller]
    fn passed(&self, tasks: usize) {
        let secrets = [self.gateway.secret(), "login-canary", "acc-canary"];
        assert_eq!(self.tap.nothing_changed_or_leaked(&self.upstream.ledger(), &secrets), tasks);
    }
}
