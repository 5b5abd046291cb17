//! Codex as a caller of `/v1/responses`: scripted conversations, in which the requests of Codex and the requests to the
//! upstream must be the same bytes.

mod codex;
mod failures;
mod images;
mod injected;
mod turns;

use crate::kit::{Account, FakeUpstream, Gateway, RecordingProxy};

/// An upstream for images and responses, a gateway in front of it, and a recording proxy in front of the gateway.
struct AgentFixture {
    upstream: FakeUpstream,
    gateway: Gateway,
    proxy: RecordingProxy,
}

// === impl AgentFixture ===

impl AgentFixture {
    fn start() -> Self {
        Self::with("")
    }

    /// The gateway adds the image tool to requests of agents.
    fn with_injected_tool() -> Self {
        Self::with("[[groups]]\nname = \"default\"\ninject_image_tool = true\n")
    }

    fn with(settings: &str) -> Self {
        let upstream = FakeUpstream::start();
        let accounts = [
            Account::for_upstream("draws", &upstream),
            Account::for_upstream("talks", &upstream).with_responses_protocol().with_free_tier(),
        ];
        let gateway = Gateway::with(settings, &accounts);
        let proxy = RecordingProxy::in_front_of(gateway.address());
        Self { upstream, gateway, proxy }
    }

    /// This many tasks went upstream, and the gateway neither changed nor leaked anything.
    #[track_caller]
    fn check_passthrough(&self, tasks: usize) {
        let secrets = [self.gateway.secret(), "login-canary", "acc-canary"];
        assert_eq!(self.proxy.check_nothing_changed_or_leaked(&self.upstream.received_attempts(), &secrets), tasks);
    }
}
