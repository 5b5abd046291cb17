//! Turns written settings into one set of usable settings, and notes the value of each that is in force.
//!
//! The module reads the machine only through [`HostEnvironment`]. It does not stop at the first problem: in place of an
//! invalid value it continues with the default, and it discards the result at the end.

mod accounts;
mod alerts;
mod endpoint;
mod groups;
mod limits;
mod model_fields;
mod models;
mod network;
mod oauth;
mod oidc;
mod prices;
mod secrets;
mod storage;
mod uploads;
mod values;
mod written;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use super::config_printer::EffectiveSetting;
use super::host_environment::{HostEnvironment, default_data_dir};
use super::problem::ConfigProblem;
use super::raw::RawConfig;
use super::{
    Config, DEFAULT_WORK_PER_MINUTE, DeadlineConfig, GroupConfig, LONGEST_IMAGE_DEADLINE, ListenAddress, ReplayConfig,
    duration,
};
use crate::tables::{
    ADMIN_MIN_IMAGE_DEADLINE_MS, ANSWER_DEADLINE_SECONDS, REQUEST_TOTAL_SECONDS, UPSTREAM_CONNECT_SECONDS,
};
pub(super) use written::WrittenConfig;

const DEFAULT_PORT: u16 = 8080;
/// The time that the drain adds to the longest call to an upstream, to send the answer and to record it.
const DRAIN_MARGIN: Duration = Duration::from_secs(30);
/// The default of `deadlines.connect`: an upstream that takes longer to accept a connection is considered unreachable.
const DEFAULT_CONNECT: Duration = Duration::from_secs(UPSTREAM_CONNECT_SECONDS);
/// The default of `deadlines.image`, which is above the 300 s for which clients wait according to the specification.
const DEFAULT_IMAGE: Duration = Duration::from_secs(REQUEST_TOTAL_SECONDS);
/// The default of `answer_deadline`.
const DEFAULT_ANSWER: Duration = Duration::from_secs(ANSWER_DEADLINE_SECONDS);
/// The default of `replay` (our choice): clients retry within minutes, with an idempotency key also on the next day.
const DEFAULT_REPLAY: ReplayConfig = ReplayConfig {
    orphans: true,
    orphan_window: Duration::from_secs(300),
    idempotency_window: Duration::from_secs(86_400),
    max_bytes: 1 << 30,
};
/// The bounds of a duration without others.
const DURATIONS: RangeInclusive<Duration> = Duration::ZERO..=duration::LONGEST;
/// The bounds of a replay window (our choice): in a shorter one, no client could retry in time.
const WINDOWS: RangeInclusive<Duration> = Duration::from_secs(1)..=duration::LONGEST;
/// The bounds of a retention period: at least a day, because counts are per day; at most a hundred years (our choice).
const RETENTION: RangeInclusive<Duration> = Duration::from_secs(86_400)..=Duration::from_secs(36_500 * 86_400);
/// The bounds of a deadline (our choice).
const DEADLINES: RangeInclusive<Duration> = Duration::from_millis(100)..=duration::LONGEST;
/// The bounds of an `image` deadline.
const IMAGE_DEADLINES: RangeInclusive<Duration> =
    Duration::from_millis(ADMIN_MIN_IMAGE_DEADLINE_MS)..=LONGEST_IMAGE_DEADLINE;

/// The default of `max_keys_per_member` (our choice): enough for all programs of one person, and few enough to stop a
/// loop that creates keys.
const MAX_KEYS_PER_MEMBER: u32 = 50;
/// The default of `max_tokens_per_user` (our choice): as many as keys.
const MAX_TOKENS_PER_USER: u32 = 50;

/// Turns the written settings into usable settings. If `allows_absent_secrets` is true, only the secrets of the store
/// must be present.
///
/// # Errors
///
/// Returns all problems, in the order of the file.
pub(super) fn resolve(
    written: &WrittenConfig,
    host: &dyn HostEnvironment,
    allows_absent_secrets: bool,
) -> Result<Config, Vec<ConfigProblem>> {
    resolve_part(written, host, allows_absent_secrets, |resolver| resolver.config())
}

/// Resolves a part of the settings, or returns all problems with it.
pub(super) fn resolve_part<T>(
    written: &WrittenConfig,
    host: &dyn HostEnvironment,
    allows_absent_secrets: bool,
    read: impl FnOnce(&mut ConfigResolver<'_>) -> T,
) -> Result<T, Vec<ConfigProblem>> {
    let mut resolver = ConfigResolver {
        raw: &written.file.raw,
        written,
        host,
        problems: written.file.problems.clone(),
        settings: Vec::new(),
        allows_absent_secrets,
        absent_secrets: Vec::new(),
    };
    let part = read(&mut resolver);
    let mut problems = resolver.problems;
    if problems.is_empty() {
        return Ok(part);
    }
    // Absent secrets alone are no problem, but they are reported together with other problems.
    problems.append(&mut resolver.absent_secrets);
    problems.sort();
    problems.dedup_by(|first, second| first.has_same_text(second));
    Err(problems)
}

/// Returns the default of the drain timeout.
pub(super) fn default_drain_timeout(groups: &[GroupConfig], deadlines: DeadlineConfig) -> Duration {
    let longest = groups.iter().map(|group| group.deadlines.image).fold(deadlines.image, Duration::max);
    (longest + DRAIN_MARGIN).min(duration::LONGEST)
}

/// The state of the resolution: the written settings, and everything noted so far.
///
/// Each function for the settings of a table gets its path, such as `accounts[0]`, which is empty at the top of the file.
pub(super) struct ConfigResolver<'a> {
    written: &'a WrittenConfig,
    raw: &'a RawConfig,
    host: &'a dyn HostEnvironment,
    problems: Vec<ConfigProblem>,
    /// The settings in force, in the order in which they are printed within their table.
    settings: Vec<EffectiveSetting>,
    /// True if all secrets except those of the store may be absent.
    allows_absent_secrets: bool,
    /// The secrets that are absent.
    absent_secrets: Vec<ConfigProblem>,
}

impl ConfigResolver<'_> {
    fn config(&mut self) -> Config {
        let raw = self.raw;
        let deadlines = self.deadlines();
        let text_models = raw.text_models.clone();
        let groups = self.groups(deadlines, text_models.as_deref());
        let (image_models, model_aliases) = self.image_models(text_models.as_deref(), &groups);
        let (listen, drain) = (self.listen(), default_drain_timeout(&groups, deadlines));
        let answer = raw.answer_deadline.as_ref();
        // The order is that of the printed settings.
        Config {
            metrics_listen: self.metrics_listen(&listen),
            listen,
            public_url: self.public_url(),
            trusted_proxies: self.trusted_proxies(),
            cors_origins: self.cors_origins(),
            data_dir: self.data_dir(),
            skills_dir: self.skills_dir(),
            durability: self.value_or_default("", "durability", raw.durability),
            require_second_factor: self.value_or_default("", "require_second_factor", raw.require_second_factor),
            max_keys_per_member: self.value_or("", "max_keys_per_member", raw.max_keys_per_member, MAX_KEYS_PER_MEMBER),
            work_per_minute: self.value_or("", "work_per_minute", raw.work_per_minute, DEFAULT_WORK_PER_MINUTE),
            max_tokens_per_user: self.value_or("", "max_tokens_per_user", raw.max_tokens_per_user, MAX_TOKENS_PER_USER),
            allow_link_local: self.value_or_default("", "allow_link_local", raw.allow_link_local),
            drain_timeout: self.duration(("", "drain_timeout"), raw.drain_timeout.as_ref(), DURATIONS, drain),
            answer_deadline: self.duration(("", "answer_deadline"), answer, DEADLINES, DEFAULT_ANSWER),
            log_format: self.value_or_default("", "log_format", raw.log_format),
            shutdown_delay: self.duration(
                ("", "shutdown_delay"),
                raw.shutdown_delay.as_ref(),
                DURATIONS,
                Duration::ZERO,
            ),
            list_image_models: self.value_or_default("", "list_image_models", raw.list_image_models),
            text_models: self.model_ids("", "text_models", raw.text_models.as_deref()),
            database_url: self.database_url(),
            master_key: self.master_key(),
            admin_token: self.admin_token(),
            connections: self.connections(),
            deadlines,
            replay: self.replay(),
            uploads: self.uploads(),
            remote_images: self.remote_images(),
            retention: self.retention(),
            alerts: self.alerts(),
            oidc: self.oidc(),
            image_models,
            model_aliases,
            prices: self.prices(),
            accounts: self.accounts(Some(&groups)),
            groups,
            named_secrets: self.written.named_secrets.clone(),
            sources: self.written.sources.clone(),
            absent_secrets: self.absent_secrets.clone(),
            settings: std::mem::take(&mut self.settings),
            file: None,
        }
    }

    fn listen(&mut self) -> ListenAddress {
        let address = self.raw.listen.as_deref().and_then(|text| self.accept("listen", text.parse()));
        self.text("", "listen", address.unwrap_or_else(|| ListenAddress::new("127.0.0.1".to_owned(), DEFAULT_PORT)))
    }

    fn metrics_listen(&mut self, listen: &ListenAddress) -> Option<ListenAddress> {
        let address = self.raw.metrics_listen.as_deref()?.parse::<ListenAddress>();
        let address = self.accept("metrics_listen", address)?;
        if address == *listen && listen.port() != 0 {
            self.report("metrics_listen", "is the same as `listen`");
        }
        Some(self.text("", "metrics_listen", address))
    }

    fn data_dir(&mut self) -> PathBuf {
        const SETTING: &str = "data_dir";
        let folder = match &self.raw.data_dir {
            Some(path) => Some(self.resolve_path(SETTING, path)),
            None => default_data_dir(self.host),
        };
        if folder.is_none() {
            self.report(SETTING, "must be set, because the environment does not name a home folder");
        }
        self.folder(SETTING, folder.unwrap_or_default())
    }

    fn skills_dir(&mut self) -> Option<PathBuf> {
        let path = self.resolve_path("skills_dir", self.raw.skills_dir.as_deref()?);
        Some(self.folder("skills_dir", path))
    }

    fn deadlines(&mut self) -> DeadlineConfig {
        let raw = self.raw.deadlines.clone().unwrap_or_default();
        DeadlineConfig {
            connect: self.duration(("deadlines", "connect"), raw.connect.as_ref(), DEADLINES, DEFAULT_CONNECT),
            image: self.duration(("deadlines", "image"), raw.image.as_ref(), IMAGE_DEADLINES, DEFAULT_IMAGE),
        }
    }
}
