//! Prints the effective settings as TOML, with the source of each value, and without secrets.

mod image_models;

use std::fmt::Write as _;
use std::time::Duration;

use http::HeaderMap;

use super::{
    AccountConfig, AccountCredentials, AccountProtocol, AlertConfig, Config, ConnectionLimits, DialectSet,
    FIGURE_NAMES, FailurePhrases, FilterConfig, FilterFilePolicy, GrantConfig, GroupConfig, ModelPrice,
    ModerationConfig, OauthConfig, OidcConfig, QualityLimit, RemoteImageConfig, RequestLimits, RetentionPeriods,
    SettingSource, StoredContextPolicy, UploadLimits, UpstreamConfig, duration,
};

const REDACTED: &str = "[redacted]";

impl Config {
    /// Returns every setting with its value and source, in the form of the file.
    pub(crate) fn to_annotated_toml(&self) -> String {
        let mut printer = ConfigPrinter { config: self, text: String::new() };
        printer.top();
        for (index, model) in self.image_models.iter().enumerate() {
            printer.image_model(&format!("models[{index}]"), model);
        }
        for (index, alias) in (self.image_models.len()..).zip(&self.model_aliases) {
            printer.model_alias(&format!("models[{index}]"), alias);
        }
        for (index, price) in self.prices.iter().enumerate() {
            printer.price(&format!("prices[{index}]"), price);
        }
        for (index, account) in self.accounts.iter().enumerate() {
            printer.account(&format!("accounts[{index}]"), account);
        }
        for (index, group) in self.groups.iter().enumerate() {
            printer.group(&format!("groups[{index}]"), group);
        }
        printer.text
    }
}

struct ConfigPrinter<'a> {
    config: &'a Config,
    text: String,
}

impl ConfigPrinter<'_> {
    fn top(&mut self) {
        let config = self.config;
        self.line("", "listen", &quoted(&config.listen.to_string()));
        if let Some(listen) = &config.metrics_listen {
            self.line("", "metrics_listen", &quoted(&listen.to_string()));
        }
        self.network();
        self.line("", "data_dir", &quoted(&config.data_dir.display().to_string()));
        if let Some(folder) = &config.skills_dir {
            self.line("", "skills_dir", &quoted(&folder.display().to_string()));
        }
        self.line("", "durability", &quoted(config.durability.as_str()));
        self.line("", "require_second_factor", &quoted(config.require_second_factor.as_str()));
        self.line("", "max_keys_per_member", &config.max_keys_per_member.to_string());
        self.line("", "work_per_minute", &config.work_per_minute.to_string());
        self.line("", "max_tokens_per_user", &config.max_tokens_per_user.to_string());
        self.line("", "allow_link_local", &config.allow_link_local.to_string());
        self.line("", "drain_timeout", &quoted_duration(config.drain_timeout));
        self.line("", "answer_deadline", &quoted_duration(config.answer_deadline));
        self.line("", "log_format", &quoted(config.log_format.as_str()));
        self.line("", "shutdown_delay", &quoted_duration(config.shutdown_delay));
        self.line("", "list_image_models", &config.list_image_models.to_string());
        if let Some(models) = &config.text_models {
            self.line("", "text_models", &list(models));
        }
        if self.config.database_url.is_some() {
            self.line("", "database_url", &quoted(REDACTED));
        }
        if self.config.master_key.is_some() {
            self.line("", "master_key", &quoted(REDACTED));
        }
        if self.config.admin_token.is_some() {
            self.line("", "admin_token", &quoted(REDACTED));
        }
        let limits = config.connections;
        if limits != ConnectionLimits::default() {
            self.header("[connections]");
            for (name, limit) in [("max", limits.max), ("max_per_address", limits.max_per_address)] {
                self.optional_value("connections", name, limit);
            }
        }
        self.header("[deadlines]");
        self.line("deadlines", "connect", &quoted_duration(config.deadlines.connect));
        self.line("deadlines", "image", &quoted_duration(config.deadlines.image));
        self.header("[replay]");
        self.line("replay", "orphans", &config.replay.orphans.to_string());
        self.line("replay", "orphan_window", &quoted_duration(config.replay.orphan_window));
        self.line("replay", "idempotency_window", &quoted_duration(config.replay.idempotency_window));
        self.line("replay", "max_megabytes", &(config.replay.max_bytes >> 20).to_string());
        self.uploads(&config.uploads);
        if let Some(remote) = &config.remote_images {
            self.remote_images(remote);
        }
        self.retention(config.retention);
        self.alerts(&config.alerts);
        self.oidc(config.oidc.as_ref());
    }

    fn retention(&mut self, retention: RetentionPeriods) {
        if retention == RetentionPeriods::default() {
            return;
        }
        self.header("[retention]");
        for (name, period) in [("records", retention.records), ("audit", retention.audit), ("usage", retention.usage)] {
            if let Some(period) = period {
                self.line("retention", name, &quoted_duration(period));
            }
        }
    }

    fn alerts(&mut self, alerts: &AlertConfig) {
        if let Some(webhook) = &alerts.webhook {
            self.header("[alerts.webhook]");
            self.line("alerts.webhook", "url", &quoted(&webhook.url.to_string()));
            self.line("alerts.webhook", "secret", &quoted(REDACTED));
            self.line("alerts.webhook", "allow_link_local", &webhook.allow_link_local.to_string());
        }
        let Some(email) = &alerts.email else { return };
        self.header("[alerts.email]");
        self.line("alerts.email", "host", &quoted(&email.host));
        self.line("alerts.email", "port", &email.port.to_string());
        self.line("alerts.email", "tls", &quoted(email.tls.as_str()));
        if let Some((user, _)) = &email.login {
            self.line("alerts.email", "user", &quoted(user));
            self.line("alerts.email", "password", &quoted(REDACTED));
        }
        self.line("alerts.email", "from", &quoted(&email.from.to_string()));
        let to: Vec<_> = email.to.iter().map(ToString::to_string).collect();
        self.line("alerts.email", "to", &list(&to));
    }

    fn oidc(&mut self, oidc: Option<&OidcConfig>) {
        let Some(oidc) = oidc else { return };
        self.header("[oidc]");
        self.line("oidc", "issuer", &quoted(&oidc.issuer));
        self.line("oidc", "client_id", &quoted(&oidc.client_id));
        if oidc.client_secret.is_some() {
            self.line("oidc", "client_secret", &quoted(REDACTED));
        }
        self.line("oidc", "label", &quoted(&oidc.label));
        self.line("oidc", "scopes", &list(&oidc.scopes));
        self.line("oidc", "name_claim", &quoted(&oidc.name_claim));
        self.line("oidc", "create_users", &oidc.create_users.to_string());
        self.line("oidc", "allow_http", &oidc.allow_http.to_string());
        self.line("oidc", "allow_link_local", &oidc.allow_link_local.to_string());
        if let Some((name, value)) = &oidc.required_claim {
            self.header("[oidc.required_claim]");
            self.line("oidc.required_claim", "name", &quoted(name));
            self.line("oidc.required_claim", "value", &quoted(value));
        }
    }

    fn uploads(&mut self, uploads: &UploadLimits) {
        self.header("[uploads]");
        for (name, bytes) in [
            ("memory_megabytes", uploads.memory),
            ("memory_megabytes_per_user", uploads.memory_per_user),
            ("memory_megabytes_per_key", uploads.memory_per_key),
            ("disk_megabytes", uploads.disk),
            ("disk_megabytes_per_user", uploads.disk_per_user),
            ("disk_megabytes_per_key", uploads.disk_per_key),
            ("min_free_megabytes", uploads.min_free),
            ("response_body_megabytes", uploads.response_body),
        ] {
            self.line("uploads", name, &(bytes >> 20).to_string());
        }
    }

    fn network(&mut self) {
        let config = self.config;
        if let Some(url) = &config.public_url {
            self.line("", "public_url", &quoted(url.as_str()));
        }
        let proxies: Vec<_> = config.trusted_proxies.networks().iter().map(ToString::to_string).collect();
        if !proxies.is_empty() {
            self.line("", "trusted_proxies", &list(&proxies));
        }
        if !config.cors_origins.is_empty() {
            self.line("", "cors_origins", &list(config.cors_origins.as_slice()));
        }
    }

    fn remote_images(&mut self, remote: &RemoteImageConfig) {
        self.header("[remote_images]");
        self.line("remote_images", "hosts", &list(&remote.hosts.iter().map(ToString::to_string).collect::<Vec<_>>()));
        if !remote.networks.is_empty() {
            let networks: Vec<_> = remote.networks.iter().map(ToString::to_string).collect();
            self.line("remote_images", "networks", &list(&networks));
        }
        self.line("remote_images", "timeout", &quoted_duration(remote.timeout));
    }

    fn price(&mut self, path: &str, price: &ModelPrice) {
        self.header("[[prices]]");
        self.line(path, "model", &quoted(&price.model));
        self.line(path, "from", &quoted(&price.from.to_string()));
        for (name, value) in FIGURE_NAMES.into_iter().zip(price.figures.values()) {
            if let Some(value) = value {
                self.line(path, name, &value.to_string());
            }
        }
        let terms = &price.terms;
        for (name, tokens) in [("context_tokens", terms.context_tokens), ("max_output_tokens", terms.max_output_tokens)]
        {
            if let Some(tokens) = tokens {
                self.line(path, name, &tokens.to_string());
            }
        }
        let tiers = terms.tiers.iter().map(|(name, factor)| format!("{} = {}", quoted(name), factor.number()));
        let tools = terms.tools.iter().map(|(name, usd)| format!("{} = {usd}", quoted(name)));
        for (name, entries) in [("tiers", tiers.collect::<Vec<_>>()), ("tools", tools.collect())] {
            if !entries.is_empty() {
                self.line(path, name, &format!("{{ {} }}", entries.join(", ")));
            }
        }
        if let Some(source) = &price.source {
            self.line(path, "source", &quoted(source));
        }
    }

    fn account(&mut self, path: &str, account: &AccountConfig) {
        self.header("[[accounts]]");
        self.line(path, "name", &quoted(&account.name));
        self.line(path, "kind", &quoted(account.upstream.kind()));
        if let UpstreamConfig::Api(endpoint) = &account.upstream {
            self.line(path, "protocol", &quoted(endpoint.protocol.as_str()));
            if endpoint.protocol == AccountProtocol::Responses {
                self.line(path, "host_model", &quoted(&endpoint.host_model));
            }
            self.line(path, "image_urls", &quoted(endpoint.image_urls.as_str()));
            self.line(path, "base_url", &quoted(&endpoint.base_url.to_string()));
            match &endpoint.credentials {
                AccountCredentials::ApiKey(_) => self.line(path, "api_key", &quoted(REDACTED)),
                AccountCredentials::Oauth(oauth) => self.oauth(path, oauth),
            }
        }
        self.line(path, "tier", &quoted(account.tier.as_str()));
        self.line(path, "groups", &list(&account.groups));
        self.line(path, "priority", &account.priority.to_string());
        self.line(path, "concurrency", &account.concurrency.to_string());
        self.line(path, "large_concurrency", &account.large_concurrency.to_string());
        let UpstreamConfig::Api(endpoint) = &account.upstream else { return };
        let FailurePhrases { refusals, limits } = &endpoint.phrases;
        for (name, phrases) in [("refusal_phrases", refusals), ("limit_phrases", limits)] {
            if !phrases.is_empty() {
                self.line(path, name, &list(phrases));
            }
        }
        if !endpoint.headers.is_empty() {
            self.line(path, "headers", &headers(&endpoint.headers));
        }
    }

    fn oauth(&mut self, path: &str, oauth: &OauthConfig) {
        self.line(path, "token_url", &quoted(&oauth.token_url.to_string()));
        self.line(path, "grant", &quoted(oauth.grant.as_str()));
        if let GrantConfig::RefreshToken(_) = oauth.grant {
            self.line(path, "refresh_token", &quoted(REDACTED));
        }
        self.optional(path, "client_id", oauth.client_id.as_deref());
        if oauth.client_secret.is_some() {
            self.line(path, "client_secret", &quoted(REDACTED));
            self.line(path, "client_auth", &quoted(oauth.client_auth.as_str()));
        }
        self.optional(path, "scope", oauth.scope.as_deref());
        self.optional(path, "audience", oauth.audience.as_deref());
    }

    fn group(&mut self, path: &str, group: &GroupConfig) {
        self.header("[[groups]]");
        self.line(path, "name", &quoted(&group.name));
        self.line(path, "delivery", &quoted(group.delivery.as_str()));
        self.line(path, "image_deadline", &quoted_duration(group.deadlines.image));
        self.line(path, "fallback", &quoted(group.fallback.as_str()));
        self.line(path, "inject_image_tool", &group.inject_image_tool.to_string());
        self.optional(path, "stored_context", group.stored_context.map(StoredContextPolicy::as_str));
        self.line(path, "budget_mode", &quoted(group.response_budget.mode.as_str()));
        group
            .response_budget
            .max_response
            .iter()
            .for_each(|most| self.line(path, "max_response_usd", &most.to_string()));
        if group.dialects != DialectSet::default() {
            let words: Vec<_> = group.dialects.iter().map(|dialect| dialect.as_str().to_owned()).collect();
            self.line(path, "dialects", &list(&words));
        }
        for (name, list_of) in [("text_models", &group.text_models), ("tools", &group.tools)] {
            list_of.iter().for_each(|words| self.line(path, name, &list(words)));
        }
        if group.filter != FilterConfig::default() || group.filter_files != FilterFilePolicy::Refuse {
            self.line(path, "filter_files", &quoted(group.filter_files.as_str()));
        }
        self.limits(&format!("{path}.limits"), &group.limits);
        let FilterConfig { words, patterns, moderation } = &group.filter;
        if words.is_empty() && patterns.is_empty() && moderation.is_none() {
            return;
        }
        let path = format!("{path}.filter");
        self.header("[groups.filter]");
        self.line(&path, "words", &list(words));
        self.line(&path, "patterns", &list(patterns));
        if let Some(moderation) = moderation {
            self.moderation(&format!("{path}.moderation"), moderation);
        }
    }

    fn limits(&mut self, path: &str, limits: &RequestLimits) {
        if *limits == RequestLimits::default() {
            return;
        }
        self.header("[groups.limits]");
        let counts = [
            ("requests_per_minute", limits.requests_per_minute),
            ("images_per_minute", limits.images_per_minute),
            ("concurrent_jobs", limits.concurrent_jobs),
            ("work_per_minute", limits.work_per_minute),
            ("images_per_day", limits.images_per_day),
        ];
        for (name, limit) in counts {
            self.optional_value(path, name, limit.and_then(|limit| usize::try_from(limit).ok()));
        }
        self.optional(path, "max_size", limits.max_size.map(|size| size.to_string()).as_deref());
        self.optional(path, "max_quality", limits.max_quality.map(QualityLimit::as_str));
        limits.models.iter().for_each(|models| self.line(path, "models", &list(models)));
        if let Some(budget) = limits.budget {
            self.line(path, "budget_usd", &budget.usd.to_string());
            self.line(path, "budget_period", &quoted(budget.period.as_str()));
            let share = budget.alert.dollars() / budget.usd.dollars();
            self.line(path, "budget_alert", &if share.is_finite() { share.to_string() } else { "0.8".to_owned() });
        }
    }

    fn moderation(&mut self, path: &str, moderation: &ModerationConfig) {
        self.header("[groups.filter.moderation]");
        self.line(path, "base_url", &quoted(&moderation.base_url.to_string()));
        if moderation.api_key.is_some() {
            self.line(path, "api_key", &quoted(REDACTED));
        }
        self.line(path, "model", &quoted(&moderation.model));
        self.line(path, "on_error", &quoted(moderation.on_error.as_str()));
        self.line(path, "timeout", &quoted_duration(moderation.timeout));
    }

    fn optional(&mut self, path: &str, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.line(path, name, &quoted(value));
        }
    }

    fn optional_value(&mut self, path: &str, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.line(path, name, &value.to_string());
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
            SettingSource::Default => "default",
            SettingSource::File => "file",
            SettingSource::Environment(name) | SettingSource::Flag(name) => name,
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

fn quoted_duration(period: Duration) -> String {
    quoted(&duration::format(period))
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
