//! The settings as they took effect, for people: TOML, with who set each value, and without secrets.

use std::fmt::Write as _;

use http::HeaderMap;

use super::{Account, Config, Delivery, Source, Tier, Upstream, duration};

const REDACTED: &str = "[redacted]";

impl Config {
    /// Every setting with its value and who set it, in the form of the file.
    pub(crate) fn show(&self) -> String {
        let mut page = Page { config: self, text: String::new() };
        page.top();
        for (index, account) in self.accounts.iter().enumerate() {
            page.account(&format!("accounts[{index}]"), account);
        }
        for (index, group) in self.groups.iter().enumerate() {
            page.header("[[groups]]");
            page.line(&format!("groups[{index}]"), "name", &quoted(&group.name));
            page.line(&format!("groups[{index}]"), "delivery", &quoted(delivery(group.delivery)));
            let period = |period| quoted(&duration::print(period));
            page.line(&format!("groups[{index}]"), "standard_deadline", &period(group.deadlines.standard));
            page.line(&format!("groups[{index}]"), "large_deadline", &period(group.deadlines.large));
        }
        page.text
    }
}

struct Page<'a> {
    config: &'a Config,
    text: String,
}

impl Page<'_> {
    fn top(&mut self) {
        let config = self.config;
        self.line("", "listen", &quoted(&config.listen.to_string()));
        if let Some(listen) = &config.metrics_listen {
            self.line("", "metrics_listen", &quoted(&listen.to_string()));
        }
        self.line("", "data_dir", &quoted(&config.data_dir.display().to_string()));
        self.line("", "drain_timeout", &quoted(&duration::print(config.drain_timeout)));
        self.line("", "models", &list(&config.models));
        self.header("[deadlines]");
        self.line("deadlines", "connect", &quoted(&duration::print(config.deadlines.connect)));
        self.line("deadlines", "standard", &quoted(&duration::print(config.deadlines.standard)));
        self.line("deadlines", "large", &quoted(&duration::print(config.deadlines.large)));
    }

    fn account(&mut self, path: &str, account: &Account) {
        self.header("[[accounts]]");
        self.line(path, "name", &quoted(&account.name));
        match &account.upstream {
            Upstream::Simulator => self.line(path, "kind", &quoted("simulator")),
            Upstream::Images(endpoint) => {
                self.line(path, "kind", &quoted("api_key"));
                self.line(path, "protocol", &quoted("images"));
                self.line(path, "base_url", &quoted(&endpoint.base_url.to_string()));
                self.line(path, "api_key", &quoted(REDACTED));
            }
        }
        self.line(path, "tier", &quoted(tier(account.tier)));
        self.line(path, "groups", &list(&account.groups));
        self.line(path, "priority", &account.priority.to_string());
        self.line(path, "concurrency", &account.concurrency.to_string());
        self.line(path, "large_concurrency", &account.large_concurrency.to_string());
        if let Upstream::Images(endpoint) = &account.upstream
            && !endpoint.headers.is_empty()
        {
            self.line(path, "headers", &headers(&endpoint.headers));
        }
    }

    fn header(&mut self, header: &str) {
        self.text.push('\n');
        self.text.push_str(header);
        self.text.push('\n');
    }

    fn line(&mut self, path: &str, name: &str, value: &str) {
        let setting = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let source = match self.config.sources.get(&setting).copied().unwrap_or_default() {
            Source::Default => "default",
            Source::File => "file",
            Source::Environment(name) | Source::Flag(name) => name,
        };
        // Writing into a string cannot fail.
        let _ = writeln!(self.text, "{:40} # {source}", format!("{name} = {value}"));
    }
}

fn headers(map: &HeaderMap) -> String {
    let value = |value: &http::HeaderValue| {
        if value.is_sensitive() { REDACTED.to_owned() } else { String::from_utf8_lossy(value.as_bytes()).into_owned() }
    };
    let mut entries: Vec<String> =
        map.iter().map(|(name, text)| format!("{} = {}", quoted(name.as_str()), quoted(&value(text)))).collect();
    entries.sort();
    format!("{{ {} }}", entries.join(", "))
}

fn list(words: &[String]) -> String {
    format!("[{}]", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", "))
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

const fn tier(tier: Tier) -> &'static str {
    match tier {
        Tier::Paid => "paid",
        Tier::Free => "free",
    }
}

const fn delivery(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Report => "report",
        Delivery::Fail => "fail",
    }
}
