//! The configuration file that a test gateway gets, and the environment with the secrets it names.

use super::FakeUpstream;

/// An upstream account of kind `api_key`.
#[derive(Clone)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) token: String,
    base_url: String,
    extra: String,
}

impl Account {
    /// An account at a fake upstream; its token is `sk-upstream-<name>`.
    pub(crate) fn at(name: &str, upstream: &FakeUpstream) -> Self {
        Self::with_base_url(name, upstream.base_url())
    }

    pub(crate) fn with_base_url(name: &str, base_url: String) -> Self {
        Self {
            name: name.to_owned(),
            token: format!("sk-upstream-{name}"),
            base_url,
            extra: "concurrency = 64\nlarge_concurrency = 64\n".to_owned(),
        }
    }

    /// Serves so many requests at once.
    pub(crate) fn with_places(mut self, count: usize) -> Self {
        self.extra = self.extra.replace("64", &count.to_string());
        self
    }

    /// Chosen after every account that does not say so: image work goes to paid accounts first.
    pub(crate) fn spare(mut self) -> Self {
        self.extra.push_str("tier = \"free\"\n");
        self
    }

    fn variable(&self) -> String {
        format!("IT_TOKEN_{}", self.name.to_uppercase())
    }

    fn toml(&self) -> String {
        let Self { name, base_url, extra, .. } = self;
        let variable = self.variable();
        let tier = if extra.contains("tier") { "" } else { "tier = \"paid\"\n" };
        format!(
            "\n[[accounts]]\nname = \"{name}\"\nkind = \"api_key\"\nprotocol = \"images\"\nbase_url = \"{base_url}\"\n\
             api_key = {{ env = \"{variable}\" }}\n{tier}{extra}"
        )
    }
}

/// The file, with the top-level lines first.
pub(super) fn file(data_dir: &str, top: &str, accounts: &[Account]) -> String {
    let accounts: String = accounts.iter().map(Account::toml).collect();
    format!("listen = \"127.0.0.1:0\"\ndata_dir = \"{data_dir}\"\n{top}\n{accounts}")
}

pub(super) fn environment(accounts: &[Account]) -> Vec<(String, String)> {
    accounts.iter().map(|account| (account.variable(), account.token.clone())).collect()
}
