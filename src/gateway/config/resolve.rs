//! Turns layers of written settings into one set of usable settings.
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

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::config_file::ConfigFile;
use super::host_environment::{HostEnvironment, default_data_dir};
use super::problem::{ConfigLocation, ConfigProblem};
use super::raw::{RawConfig, RawDeadlines, RawDuration, SecretSource};
use super::{
    AccountConfig, CONFIG_VARIABLE, Config, ConfigOverrides, DEFAULT_WORK_PER_MINUTE, DeadlineConfig, GroupConfig,
    LONGEST_IMAGE_DEADLINE, ListenAddress, ReplayConfig, RequestLimits, SettingSource, duration,
};
use crate::tables::{
    ADMIN_MIN_IMAGE_DEADLINE_MS, ANSWER_DEADLINE_SECONDS, REQUEST_TOTAL_SECONDS, UPSTREAM_CONNECT_SECONDS,
};

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
/// The shortest replay window (our choice): in a shorter one, no client could retry in time.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
/// The bounds of a retention period: at least a day, because counts are per day; at most a hundred years (our choice).
const RETENTION: RangeInclusive<Duration> = Duration::from_secs(86_400)..=Duration::from_secs(36_500 * 86_400);
/// The shortest deadline that can be set (our choice).
const SHORTEST_DEADLINE: Duration = Duration::from_millis(100);
/// The shortest `image` deadline that can be set.
const SHORTEST_IMAGE_DEADLINE: Duration = Duration::from_millis(ADMIN_MIN_IMAGE_DEADLINE_MS);

/// The names of a setting in the environment and on the command line.
#[derive(Clone, Copy)]
struct SettingNames {
    variable: &'static str,
    /// The flag; empty if the command line has no such argument.
    flag: &'static str,
}

const LISTEN: SettingNames = SettingNames { variable: "IMAGATE_LISTEN", flag: "--listen" };
const METRICS_LISTEN: SettingNames = SettingNames { variable: "IMAGATE_METRICS_LISTEN", flag: "" };
const PUBLIC_URL: SettingNames = SettingNames { variable: "IMAGATE_PUBLIC_URL", flag: "" };
const DATA_DIR: SettingNames = SettingNames { variable: "IMAGATE_DATA_DIR", flag: "--data-dir" };
const DATABASE_URL: SettingNames = SettingNames { variable: "IMAGATE_DATABASE_URL", flag: "" };
const ADMIN_TOKEN: SettingNames = SettingNames { variable: "IMAGATE_ADMIN_TOKEN", flag: "" };
const MASTER_KEY: SettingNames = SettingNames { variable: "IMAGATE_MASTER_KEY", flag: "" };
const LOG_FORMAT: SettingNames = SettingNames { variable: "IMAGATE_LOG_FORMAT", flag: "" };
const DRAIN_TIMEOUT: SettingNames = SettingNames { variable: "IMAGATE_DRAIN_TIMEOUT", flag: "" };
const ANSWER_DEADLINE: SettingNames = SettingNames { variable: "IMAGATE_ANSWER_DEADLINE", flag: "" };

/// The default of `max_keys_per_member` (our choice): enough for all programs of one person, and few enough to stop a
/// loop that creates keys.
const MAX_KEYS_PER_MEMBER: u32 = 50;
/// The default of `max_tokens_per_user` (our choice): as many as keys.
const MAX_TOKENS_PER_USER: u32 = 50;

/// The written settings of each source.
#[derive(Debug, Default)]
pub(crate) struct ConfigLayers {
    flags: RawConfig,
    variables: RawConfig,
    file: ConfigFile,
    problems: Vec<ConfigProblem>,
}

impl ConfigLayers {
    /// Reads the command line, the environment, and the file that one of them names.
    pub(super) fn read(overrides: ConfigOverrides, host: &dyn HostEnvironment) -> Result<Self, ConfigProblem> {
        let named = host.variable(CONFIG_VARIABLE).map(PathBuf::from);
        let file = match overrides.config.or(named) {
            Some(path) => read_file(&path, host)?,
            None => ConfigFile::default(),
        };
        let flags = RawConfig { listen: overrides.listen, data_dir: overrides.data_dir, ..RawConfig::default() };
        Ok(Self { flags, ..Self::default() }.with_variables(host).with_file(file))
    }

    fn with_variables(mut self, host: &dyn HostEnvironment) -> Self {
        let problems = &mut self.problems;
        let mut text = |name: &str| match host.variable(name)?.into_string() {
            Ok(text) => Some(text),
            Err(_) => {
                problems.push(ConfigProblem::new(ConfigLocation::Named(name.to_owned()), "must be text in UTF-8"));
                None
            }
        };
        let secret =
            |names: SettingNames| host.variable(names.variable).map(|_| SecretSource::Env(names.variable.to_owned()));
        let log_format = text(LOG_FORMAT.variable).map(|word| word.parse());
        self.variables = RawConfig {
            listen: text(LISTEN.variable),
            metrics_listen: text(METRICS_LISTEN.variable),
            public_url: text(PUBLIC_URL.variable),
            drain_timeout: text(DRAIN_TIMEOUT.variable).map(RawDuration),
            answer_deadline: text(ANSWER_DEADLINE.variable).map(RawDuration),
            data_dir: host.variable(DATA_DIR.variable).map(PathBuf::from),
            // The address can carry a password, so it is read like every other secret.
            database_url: secret(DATABASE_URL),
            master_key: secret(MASTER_KEY),
            admin_token: secret(ADMIN_TOKEN),
            ..RawConfig::default()
        };
        match log_format {
            Some(Ok(format)) => self.variables.log_format = Some(format),
            Some(Err(fault)) => {
                self.problems.push(ConfigProblem::new(ConfigLocation::Named(LOG_FORMAT.variable.to_owned()), fault));
            }
            None => {}
        }
        self
    }

    pub(super) fn with_file(mut self, mut file: ConfigFile) -> Self {
        self.problems.append(&mut file.problems);
        self.file = file;
        self
    }
}

fn read_file(path: &Path, host: &dyn HostEnvironment) -> Result<ConfigFile, ConfigProblem> {
    let name = path.display().to_string();
    let text = host.read(path);
    let text = text
        .map_err(|error| ConfigProblem::new(ConfigLocation::Named(name.clone()), format!("cannot be read: {error}")))?;
    let mut file = ConfigFile::parse(&name, &text);
    file.folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    Ok(file)
}

/// Turns the written settings into usable settings.
///
/// # Errors
///
/// Returns all problems, in the order of the file.
pub(crate) fn resolve(layers: &ConfigLayers, host: &dyn HostEnvironment) -> Result<Config, Vec<ConfigProblem>> {
    resolve_with(ConfigResolver::new(layers, host))
}

/// Does the same as [`resolve`] for a command that is not the gateway: only the secrets of the store must be present.
///
/// # Errors
///
/// Returns all other problems, in the order of the file.
pub(super) fn resolve_for_command(
    layers: &ConfigLayers,
    host: &dyn HostEnvironment,
) -> Result<Config, Vec<ConfigProblem>> {
    resolve_with(ConfigResolver { allows_absent_secrets: true, ..ConfigResolver::new(layers, host) })
}

fn resolve_with(mut resolver: ConfigResolver<'_>) -> Result<Config, Vec<ConfigProblem>> {
    let listen = resolver.listen_address("listen", LISTEN, |raw| raw.listen.as_ref());
    let deadlines = resolver.deadlines();
    let text_models = resolver.text_models();
    let groups = resolver.groups(deadlines, text_models.as_deref());
    let database_url = resolver.database_url();
    let (image_models, model_aliases) = resolver.image_models(text_models.as_deref(), &groups);
    let mut config = Config {
        listen: listen.unwrap_or_else(|| ListenAddress::new("127.0.0.1".to_owned(), DEFAULT_PORT)),
        metrics_listen: resolver.listen_address("metrics_listen", METRICS_LISTEN, |raw| raw.metrics_listen.as_ref()),
        public_url: resolver.public_url(),
        trusted_proxies: resolver.trusted_proxies(),
        cors_origins: resolver.cors_origins(),
        max_keys_per_member: resolver.layers.file.raw.max_keys_per_member.unwrap_or(MAX_KEYS_PER_MEMBER),
        work_per_minute: resolver.layers.file.raw.work_per_minute.unwrap_or(DEFAULT_WORK_PER_MINUTE),
        max_tokens_per_user: resolver.layers.file.raw.max_tokens_per_user.unwrap_or(MAX_TOKENS_PER_USER),
        allow_link_local: resolver.layers.file.raw.allow_link_local.unwrap_or_default(),
        data_dir: resolver.data_dir(),
        skills_dir: resolver.skills_dir(),
        require_second_factor: resolver.layers.file.raw.require_second_factor.unwrap_or_default(),
        durability: resolver.layers.file.raw.durability.unwrap_or_default(),
        log_format: resolver
            .winning_value("log_format", LOG_FORMAT, |raw| raw.log_format.as_ref())
            .copied()
            .unwrap_or_default(),
        drain_timeout: resolver.drain_timeout(&groups, deadlines),
        answer_deadline: resolver.answer_deadline(),
        shutdown_delay: resolver.shutdown_delay(),
        image_models,
        model_aliases,
        list_image_models: resolver.layers.file.raw.list_image_models.unwrap_or(false),
        text_models,
        prices: resolver.prices(),
        connections: resolver.connections(),
        deadlines,
        alerts: resolver.alerts(),
        oidc: resolver.oidc(),
        accounts: resolver.accounts(Some(&groups)),
        groups,
        replay: resolver.replay(),
        retention: resolver.retention(),
        uploads: resolver.uploads(),
        remote_images: resolver.remote_images(),
        database_url,
        master_key: resolver.master_key(),
        admin_token: resolver.admin_token(),
        absent_secrets: Vec::new(),
        named_secrets: resolver.named_secrets(),
        sources: BTreeMap::new(),
        file: None,
    };
    if config.metrics_listen.as_ref() == Some(&config.listen) && config.listen.port() != 0 {
        resolver.report("metrics_listen", "is the same as `listen`");
    }
    config.absent_secrets.clone_from(&resolver.absent_secrets);
    config.sources = std::mem::take(&mut resolver.sources);
    resolver.finish(config)
}

/// Resolves one account that is in no file, or returns all problems.
pub(super) fn resolve_account(
    layers: &ConfigLayers,
    host: &dyn HostEnvironment,
) -> Result<AccountConfig, Vec<ConfigProblem>> {
    let mut resolver = ConfigResolver::new(layers, host);
    let account = resolver.accounts(None).swap_remove(0);
    resolver.finish(account)
}

/// Returns the default of the drain timeout.
pub(super) fn default_drain_timeout(groups: &[GroupConfig], deadlines: DeadlineConfig) -> Duration {
    let longest = groups.iter().map(|group| group.deadlines.image).fold(deadlines.image, Duration::max);
    (longest + DRAIN_MARGIN).min(duration::LONGEST)
}

/// Resolves one group that is in no file, on the basis of `config`, or returns all problems. If `allows_absent_secrets`
/// is true, secrets may be absent.
pub(super) fn resolve_group(
    layers: &ConfigLayers,
    config: &Config,
    (host, allows_absent_secrets): (&dyn HostEnvironment, bool),
) -> Result<GroupConfig, Vec<ConfigProblem>> {
    let mut resolver = ConfigResolver { allows_absent_secrets, ..ConfigResolver::new(layers, host) };
    let group = resolver.groups(config.deadlines, config.text_models.as_deref()).swap_remove(0);
    resolver.finish(group)
}

/// Resolves limits that are in no file: those of the first group, or returns all problems.
pub(super) fn resolve_limits(
    layers: &ConfigLayers,
    host: &dyn HostEnvironment,
) -> Result<RequestLimits, Vec<ConfigProblem>> {
    let mut resolver = ConfigResolver::new(layers, host);
    let deadlines = DeadlineConfig { connect: DEFAULT_CONNECT, image: DEFAULT_IMAGE };
    let group = resolver.groups(deadlines, None).swap_remove(0);
    resolver.finish(RequestLimits::clone(&group.limits))
}

/// The state of the resolution: the layers, and everything noted so far.
struct ConfigResolver<'a> {
    layers: &'a ConfigLayers,
    host: &'a dyn HostEnvironment,
    problems: Vec<ConfigProblem>,
    sources: BTreeMap<String, SettingSource>,
    /// True if all secrets except those of the store may be absent.
    allows_absent_secrets: bool,
    /// The secrets that are absent.
    absent_secrets: Vec<ConfigProblem>,
}

impl<'a> ConfigResolver<'a> {
    fn new(layers: &'a ConfigLayers, host: &'a dyn HostEnvironment) -> Self {
        let sources = layers.file.settings().map(|setting| (setting.to_owned(), SettingSource::File)).collect();
        let problems = layers.problems.clone();
        Self { layers, host, problems, sources, allows_absent_secrets: false, absent_secrets: Vec::new() }
    }

    /// Returns the result, if there is no problem.
    fn finish<T>(mut self, result: T) -> Result<T, Vec<ConfigProblem>> {
        if self.problems.is_empty() {
            return Ok(result);
        }
        // Absent secrets alone are no problem, but they are reported together with other problems.
        self.problems.append(&mut self.absent_secrets);
        self.problems.sort();
        self.problems.dedup_by(|first, second| first.has_same_text(second));
        Err(self.problems)
    }

    /// Reports a problem with a setting at the location where it was set, unless the reader of the file has already
    /// reported one.
    fn report(&mut self, setting: &str, fault: &str) {
        if !self.layers.file.is_flagged(setting) {
            self.problems.push(self.problem(setting, fault));
        }
    }

    fn problem(&self, setting: &str, fault: &str) -> ConfigProblem {
        let location = match self.sources.get(setting).copied().unwrap_or_default() {
            SettingSource::Environment(name) | SettingSource::Flag(name) => ConfigLocation::Named(name.to_owned()),
            SettingSource::File | SettingSource::Default => self.layers.file.location(setting),
        };
        let name = setting.rsplit('.').next().unwrap_or(setting);
        ConfigProblem::new(location, format!("`{name}` {fault}")).with_setting(setting)
    }

    /// Returns the value of the source that takes precedence, and records that source.
    fn winning_value<T>(
        &mut self,
        setting: &str,
        names: SettingNames,
        get: impl Fn(&'a RawConfig) -> Option<&'a T>,
    ) -> Option<&'a T> {
        let layers = self.layers;
        let flag = get(&layers.flags).map(|value| (value, SettingSource::Flag(names.flag)));
        let variable = || get(&layers.variables).map(|value| (value, SettingSource::Environment(names.variable)));
        if let Some((value, source)) = flag.or_else(variable) {
            self.sources.insert(setting.to_owned(), source);
            return Some(value);
        }
        get(&layers.file.raw)
    }

    fn listen_address(
        &mut self,
        setting: &str,
        names: SettingNames,
        get: impl Fn(&'a RawConfig) -> Option<&'a String>,
    ) -> Option<ListenAddress> {
        let text = self.winning_value(setting, names, get)?;
        let address = text.parse();
        address.map_err(|fault| self.report(setting, fault)).ok()
    }

    fn data_dir(&mut self) -> PathBuf {
        const SETTING: &str = "data_dir";
        if let Some(path) = self.winning_value(SETTING, DATA_DIR, |raw| raw.data_dir.as_ref()) {
            return self.resolve_path(SETTING, path);
        }
        default_data_dir(self.host).unwrap_or_else(|| {
            self.report(SETTING, "must be set, because the environment does not name a home folder");
            PathBuf::new()
        })
    }

    fn skills_dir(&mut self) -> Option<PathBuf> {
        let path = self.layers.file.raw.skills_dir.as_deref()?;
        Some(self.resolve_path("skills_dir", path))
    }

    /// Resolves a path. A relative path in the file starts at the file's folder, so that every command finds the data.
    fn resolve_path(&mut self, setting: &str, path: &Path) -> PathBuf {
        if path.starts_with("~") {
            self.report(setting, "begins with `~`, which only a shell expands; write the full path");
        }
        match self.sources.get(setting) {
            Some(SettingSource::File) => self.layers.file.folder.join(path),
            _ => path.to_path_buf(),
        }
    }

    fn drain_timeout(&mut self, groups: &[GroupConfig], deadlines: DeadlineConfig) -> Duration {
        let value = self.winning_value("drain_timeout", DRAIN_TIMEOUT, |raw| raw.drain_timeout.as_ref());
        self.duration("drain_timeout", value, Duration::ZERO)
            .unwrap_or_else(|| default_drain_timeout(groups, deadlines))
    }

    fn answer_deadline(&mut self) -> Duration {
        let value = self.winning_value("answer_deadline", ANSWER_DEADLINE, |raw| raw.answer_deadline.as_ref());
        self.duration("answer_deadline", value, SHORTEST_DEADLINE).unwrap_or(DEFAULT_ANSWER)
    }

    fn shutdown_delay(&mut self) -> Duration {
        let value = self.layers.file.raw.shutdown_delay.as_ref();
        self.duration("shutdown_delay", value, Duration::ZERO).unwrap_or_default()
    }

    fn deadlines(&mut self) -> DeadlineConfig {
        let empty = RawDeadlines::default();
        let raw = self.layers.file.raw.deadlines.as_ref().unwrap_or(&empty);
        let connect = self.duration("deadlines.connect", raw.connect.as_ref(), SHORTEST_DEADLINE);
        let image = self.image_deadline("deadlines.image", raw.image.as_ref());
        DeadlineConfig { connect: connect.unwrap_or(DEFAULT_CONNECT), image: image.unwrap_or(DEFAULT_IMAGE) }
    }

    fn image_deadline(&mut self, setting: &str, value: Option<&RawDuration>) -> Option<Duration> {
        self.duration_within(setting, value, SHORTEST_IMAGE_DEADLINE..=LONGEST_IMAGE_DEADLINE)
    }

    fn duration(&mut self, setting: &str, value: Option<&RawDuration>, shortest: Duration) -> Option<Duration> {
        self.duration_within(setting, value, shortest..=duration::LONGEST)
    }

    fn duration_within(
        &mut self,
        setting: &str,
        value: Option<&RawDuration>,
        bounds: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let Some(period) = duration::parse(&value?.0) else {
            self.report(setting, &format!("must be {}", duration::EXPECTED));
            return None;
        };
        if !bounds.contains(&period) {
            let (shortest, longest) = (duration::format(*bounds.start()), duration::format(*bounds.end()));
            self.report(setting, &format!("must be from {shortest} to {longest}"));
        }
        Some(period)
    }
}
