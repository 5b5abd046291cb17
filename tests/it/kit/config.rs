//! The configuration file that a test gateway gets, and the environment with the secrets it names.

use super::leak_watch::SecretIssuer;
use super::{FakeTokens, FakeUpstream};

/// An upstream account.
#[derive(Clone)]
pub(crate) struct Account {
    pub(crate) name: String,
    /// The bearer token of an account of kind `api_key`.
    pub(crate) token: String,
    base_url: String,
    credentials: Credentials,
    /// The secrets that its token endpoint issues; `None` for an account of kind `api_key`.
    issuer: Option<SecretIssuer>,
    slots: usize,
    large_slots: usize,
    free: bool,
    /// Further lines of its table.
    lines: String,
}

#[derive(Clone)]
enum Credentials {
    ApiKey,
    /// With the lines that set the token URL and the grant.
    Oauth(String),
}

// === impl Account ===

impl Account {
    /// An account of kind `api_key` at a fake upstream; its token is `sk-upstream-<name>`.
    pub(crate) fn for_upstream(name: &str, upstream: &FakeUpstream) -> Self {
        Self::with_base_url(name, upstream.base_url())
    }

    pub(crate) fn with_base_url(name: &str, base_url: String) -> Self {
        Self {
            name: name.to_owned(),
            token: format!("sk-upstream-{name}"),
            base_url,
            credentials: Credentials::ApiKey,
            issuer: None,
            slots: 64,
            large_slots: 64,
            free: false,
            lines: String::new(),
        }
    }

    /// An account of kind `oauth` that refreshes its tokens at this endpoint; client id and secrets are those that
    /// [`FakeTokens`] expects.
    pub(crate) fn oauth(name: &str, upstream: &FakeUpstream, tokens: &FakeTokens) -> Self {
        let variable = Self::for_upstream(name, upstream).variable("REFRESH");
        let grant = format!("grant = \"refresh_token\"\nrefresh_token = {{ env = \"{variable}\" }}\n");
        Self::with_token_grant(name, upstream, tokens, endpoint(tokens) + &grant)
    }

    /// An account of kind `oauth` with the grant `client_credentials`.
    pub(crate) fn client_credentials(name: &str, upstream: &FakeUpstream, tokens: &FakeTokens) -> Self {
        let grant = endpoint(tokens) + "grant = \"client_credentials\"\n";
        Self::with_token_grant(name, upstream, tokens, grant)
    }

    fn with_token_grant(name: &str, upstream: &FakeUpstream, tokens: &FakeTokens, grant: String) -> Self {
        let issuer = Some(tokens.issuer().clone());
        Self { credentials: Credentials::Oauth(grant), issuer, ..Self::for_upstream(name, upstream) }
    }

    pub(super) fn issuer(&self) -> Option<&SecretIssuer> {
        self.issuer.as_ref()
    }

    /// Sets how many requests it serves at once, large ones included.
    pub(crate) fn with_slots(mut self, count: usize) -> Self {
        (self.slots, self.large_slots) = (count, count);
        self
    }

    /// Puts it in the free tier: for image jobs, accounts of the paid tier are chosen before it.
    pub(crate) fn with_free_tier(mut self) -> Self {
        self.free = true;
        self
    }

    /// Speaks `/responses` instead of the image endpoints.
    pub(crate) fn with_responses_protocol(self) -> Self {
        self.with_line("protocol = \"responses\"")
    }

    /// With this token instead of the one that its name makes.
    pub(crate) fn with_token(mut self, token: &str) -> Self {
        token.clone_into(&mut self.token);
        self
    }

    /// Adds a line to its table.
    pub(crate) fn with_line(mut self, line: &str) -> Self {
        self.lines.push_str(line);
        self.lines.push('\n');
        self
    }

    /// Host and port of its upstream.
    pub(super) fn host(&self) -> &str {
        let address = self.base_url.split("://").nth(1).unwrap_or_default();
        address.split('/').next().unwrap_or_default()
    }

    fn variable(&self, what: &str) -> String {
        format!("IT_{what}_{}", self.name.to_uppercase())
    }

    fn toml(&self) -> String {
        let Self { name, base_url, slots, large_slots, lines, .. } = self;
        let (kind, credentials) = match &self.credentials {
            Credentials::ApiKey => ("api_key", format!("api_key = {{ env = \"{}\" }}\n", self.variable("TOKEN"))),
            Credentials::Oauth(grant) => (
                "oauth",
                format!(
                    "client_id = \"client-{name}\"\nclient_secret = {{ env = \"{}\" }}\n{grant}",
                    self.variable("SECRET")
                ),
            ),
        };
        let tier = if self.free { "free" } else { "paid" };
        format!(
            "\n[[accounts]]\nname = \"{name}\"\nkind = \"{kind}\"\nbase_url = \"{base_url}\"\n{credentials}\
             tier = \"{tier}\"\nconcurrency = {slots}\nlarge_concurrency = {large_slots}\n\
             {lines}{}",
            if lines.contains("protocol") { "" } else { "protocol = \"images\"\n" }
        )
    }

    /// The environment variables that its table names, with the secrets as their values.
    fn secrets(&self) -> Vec<(String, String)> {
        match self.credentials {
            Credentials::ApiKey => vec![(self.variable("TOKEN"), self.token.clone())],
            Credentials::Oauth(_) => vec![
                (self.variable("SECRET"), format!("secret-{}", self.name)),
                (self.variable("REFRESH"), format!("refresh-{}-0", self.name)),
            ],
        }
    }
}

fn endpoint(tokens: &FakeTokens) -> String {
    format!("token_url = \"{}\"\n", tokens.url())
}

/// The text of the file: the top-level lines, then the accounts.
pub(super) fn file(data_dir: &str, top: &str, accounts: &[Account]) -> String {
    let accounts: String = accounts.iter().map(Account::toml).collect();
    format!("listen = \"127.0.0.1:0\"\nmetrics_listen = \"127.0.0.1:0\"\ndata_dir = \"{data_dir}\"\n{top}\n{accounts}")
}

pub(super) fn environment(accounts: &[Account]) -> Vec<(String, String)> {
    accounts.iter().flat_map(Account::secrets).collect()
}
