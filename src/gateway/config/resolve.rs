//! From layers of settings as written to one set as usable.
//!
//! Pure: what it needs of the machine it is handed. It never stops at the first problem; where a value is wrong it goes
//! on with the default, and the result is thrown away at the end.

mod accounts;
mod endpoint;
mod groups;
mod models;
mod oauth;
mod secrets;
mod uploads;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::problem::{Place, Problem};
use super::raw::{Period, RawConfig, RawDeadlines, RawReplay, SecretSource};
use super::surroundings::{Surroundings, data_dir};
use super::written::Written;
use super::{
    Account, CONFIG_VARIABLE, Config, Deadlines, Group, LONGEST_IMAGE_DEADLINE, Listen, Overrides, Proxies, PublicUrl,
    Replay, Retention, Source, duration, proxies,
};
use crate::tables::{ANSWER_DEADLINE_SECONDS, REQUEST_TOTAL_SECONDS, UPSTREAM_CONNECT_SECONDS};

const DEFAULT_PORT: u16 = 8080;
/// Longer than the longest call to an upstream, with time to send the answer and to record it.
const DRAIN_MARGIN: Duration = Duration::from_secs(30);
/// An upstream that takes longer to greet is down.
const DEFAULT_CONNECT: Duration = Duration::from_secs(UPSTREAM_CONNECT_SECONDS);
/// The specification gives a normal image 120 s and one in 4K 300 s.
const DEFAULT_IMAGE: Duration = Duration::from_secs(REQUEST_TOTAL_SECONDS);
const DEFAULT_ANSWER: Duration = Duration::from_secs(ANSWER_DEADLINE_SECONDS);
/// Clients come back within minutes; with an idempotency key they may come back the next day.
const DEFAULT_REPLAY: Replay = Replay {
    orphans: true,
    orphan_window: Duration::from_secs(300),
    idempotency_window: Duration::from_secs(86_400),
    max_bytes: 1 << 30,
};
/// Below it nothing would ever be found again.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
/// At least a day, because counts are by day; at most a hundred years.
const RETENTION: RangeInclusive<Duration> = Duration::from_secs(86_400)..=Duration::from_secs(36_500 * 86_400);
const SHORTEST_DEADLINE: Duration = Duration::from_millis(100);

/// What a setting is called outside of the file.
#[derive(Clone, Copy)]
struct Names {
    variable: &'static str,
    /// Empty where the command line has no such argument.
    flag: &'static str,
}

const LISTEN: Names = Names { variable: "IMAGATE_LISTEN", flag: "--listen" };
const METRICS_LISTEN: Names = Names { variable: "IMAGATE_METRICS_LISTEN", flag: "" };
const PUBLIC_URL: Names = Names { variable: "IMAGATE_PUBLIC_URL", flag: "" };
const DATA_DIR: Names = Names { variable: "IMAGATE_DATA_DIR", flag: "--data-dir" };
const DATABASE_URL: Names = Names { variable: "IMAGATE_DATABASE_URL", flag: "" };
const ADMIN_TOKEN: Names = Names { variable: "IMAGATE_ADMIN_TOKEN", flag: "" };
const MASTER_KEY: Names = Names { variable: "IMAGATE_MASTER_KEY", flag: "" };
const LOG_FORMAT: Names = Names { variable: "IMAGATE_LOG_FORMAT", flag: "" };
const DRAIN_TIMEOUT: Names = Names { variable: "IMAGATE_DRAIN_TIMEOUT", flag: "" };
const ANSWER_DEADLINE: Names = Names { variable: "IMAGATE_ANSWER_DEADLINE", flag: "" };

/// Enough for all programs of one person, and few enough to stop a loop that makes keys (ours).
const MAX_KEYS_PER_MEMBER: u32 = 50;

/// The settings as written, by who wrote them.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    flags: RawConfig,
    variables: RawConfig,
    written: Written,
    problems: Vec<Problem>,
}

impl Layers {
    /// Reads the file that the command line or the environment names, and everything else that is said.
    pub(super) fn read(overrides: Overrides, surroundings: &dyn Surroundings) -> Result<Self, Problem> {
        let named = surroundings.variable(CONFIG_VARIABLE).map(PathBuf::from);
        let written = match overrides.config.or(named) {
            Some(path) => read_file(&path, surroundings)?,
            None => Written::default(),
        };
        let flags = RawConfig { listen: overrides.listen, data_dir: overrides.data_dir, ..RawConfig::default() };
        Ok(Self::default().with_variables(surroundings).with_flags(flags).with_written(written))
    }

    fn with_variables(mut self, surroundings: &dyn Surroundings) -> Self {
        let problems = &mut self.problems;
        let mut text = |name: &str| match surroundings.variable(name)?.into_string() {
            Ok(text) => Some(text),
            Err(_) => {
                problems.push(Problem::new(Place::Named(name.to_owned()), "must be text in UTF-8"));
                None
            }
        };
        let secret =
            |names: Names| surroundings.variable(names.variable).map(|_| SecretSource::Env(names.variable.to_owned()));
        let log_format = text(LOG_FORMAT.variable).map(|word| word.parse());
        self.variables = RawConfig {
            listen: text(LISTEN.variable),
            metrics_listen: text(METRICS_LISTEN.variable),
            public_url: text(PUBLIC_URL.variable),
            drain_timeout: text(DRAIN_TIMEOUT.variable).map(Period),
            answer_deadline: text(ANSWER_DEADLINE.variable).map(Period),
            data_dir: surroundings.variable(DATA_DIR.variable).map(PathBuf::from),
            // The address can carry a password, so it is read like every other secret.
            database_url: secret(DATABASE_URL),
            master_key: secret(MASTER_KEY),
            admin_token: secret(ADMIN_TOKEN),
            ..RawConfig::default()
        };
        match log_format {
            Some(Ok(format)) => self.variables.log_format = Some(format),
            Some(Err(fault)) => self.problems.push(Problem::new(Place::Named(LOG_FORMAT.variable.to_owned()), fault)),
            None => {}
        }
        self
    }

    fn with_flags(mut self, flags: RawConfig) -> Self {
        self.flags = flags;
        self
    }

    pub(super) fn with_written(mut self, mut written: Written) -> Self {
        self.problems.append(&mut written.problems);
        self.written = written;
        self
    }
}

fn read_file(path: &Path, surroundings: &dyn Surroundings) -> Result<Written, Problem> {
    let name = path.display().to_string();
    let text = surroundings.read(path);
    let text = text.map_err(|error| Problem::new(Place::Named(name.clone()), format!("cannot be read: {error}")))?;
    let mut written = Written::parse(&name, &text);
    written.folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    Ok(written)
}

/// Turns what was written into what can be used.
///
/// # Errors
///
/// Everything that is wrong, in the order of the file.
pub(crate) fn resolve(layers: &Layers, surroundings: &dyn Surroundings) -> Result<Config, Vec<Problem>> {
    resolve_at(Desk::new(layers, surroundings))
}

/// The same for a command beside the gateway, which opens the store and calls nobody: of the secrets only those of the
/// store must be there.
///
/// # Errors
///
/// Everything else that is wrong, in the order of the file.
pub(super) fn resolve_for_command(layers: &Layers, surroundings: &dyn Surroundings) -> Result<Config, Vec<Problem>> {
    resolve_at(Desk { calls_nobody: true, ..Desk::new(layers, surroundings) })
}

fn resolve_at(mut desk: Desk<'_>) -> Result<Config, Vec<Problem>> {
    let listen = desk.address("listen", LISTEN, |raw| raw.listen.as_ref());
    let deadlines = desk.deadlines();
    let text_models = desk.text_models();
    let groups = desk.groups(deadlines, text_models.as_deref());
    desk.database();
    let mut config = Config {
        listen: listen.unwrap_or_else(|| Listen::new("127.0.0.1".to_owned(), DEFAULT_PORT)),
        metrics_listen: desk.address("metrics_listen", METRICS_LISTEN, |raw| raw.metrics_listen.as_ref()),
        public_url: desk.public_url(),
        trusted_proxies: desk.trusted_proxies(),
        max_keys_per_member: desk.layers.written.raw.max_keys_per_member.unwrap_or(MAX_KEYS_PER_MEMBER),
        data_dir: desk.data_dir(),
        skills_dir: desk.skills_dir(),
        log_format: desk.pick("log_format", LOG_FORMAT, |raw| raw.log_format.as_ref()).copied().unwrap_or_default(),
        drain_timeout: desk.drain_timeout(&groups, deadlines),
        answer_deadline: desk.answer_deadline(),
        shutdown_delay: desk.shutdown_delay(),
        image_models: desk.image_models(text_models.as_deref()),
        text_models,
        connections: desk.connections(),
        deadlines,
        accounts: desk.accounts(Some(&groups)),
        groups,
        replay: desk.replay(),
        retention: desk.retention(),
        uploads: desk.uploads(),
        master_key: desk.master_key(),
        admin_token: desk.admin_token(),
        absent: Vec::new(),
        named_secrets: desk.named_secrets(),
        sources: BTreeMap::new(),
        file: None,
    };
    if config.metrics_listen.as_ref() == Some(&config.listen) && config.listen.port() != 0 {
        desk.wrong("metrics_listen", "is the same as `listen`");
    }
    config.absent.clone_from(&desk.absent);
    config.sources = std::mem::take(&mut desk.sources);
    desk.finish(config)
}

/// Turns one account that stands in no file into one as usable.
///
/// # Errors
///
/// Everything that is wrong.
pub(super) fn resolve_account(layers: &Layers, surroundings: &dyn Surroundings) -> Result<Account, Vec<Problem>> {
    let mut desk = Desk::new(layers, surroundings);
    let account = desk.accounts(None).swap_remove(0);
    desk.finish(account)
}

/// The default of the time to finish.
pub(super) fn drain_timeout(groups: &[Group], deadlines: Deadlines) -> Duration {
    let longest = groups.iter().map(|group| group.deadlines.image).fold(deadlines.image, Duration::max);
    (longest + DRAIN_MARGIN).min(duration::LONGEST)
}

/// Turns one group that stands in no file into one as usable, beside these settings. Where nobody is called, secrets may
/// be absent.
///
/// # Errors
///
/// Everything that is wrong.
pub(super) fn resolve_group(
    layers: &Layers,
    beside: &Config,
    (surroundings, calls_nobody): (&dyn Surroundings, bool),
) -> Result<Group, Vec<Problem>> {
    let mut desk = Desk { calls_nobody, ..Desk::new(layers, surroundings) };
    let group = desk.groups(beside.deadlines, beside.text_models.as_deref()).swap_remove(0);
    desk.finish(group)
}

/// Where the layers lie open while they are made into one.
struct Desk<'a> {
    layers: &'a Layers,
    surroundings: &'a dyn Surroundings,
    problems: Vec<Problem>,
    sources: BTreeMap<String, Source>,
    /// True if secrets for upstreams and callers may be absent.
    calls_nobody: bool,
    /// Those that are.
    absent: Vec<Problem>,
}

impl<'a> Desk<'a> {
    fn new(layers: &'a Layers, surroundings: &'a dyn Surroundings) -> Self {
        let sources = layers.written.settings().map(|setting| (setting.to_owned(), Source::File)).collect();
        let problems = layers.problems.clone();
        Self { layers, surroundings, problems, sources, calls_nobody: false, absent: Vec::new() }
    }

    /// The result, if nothing was wrong.
    fn finish<T>(mut self, result: T) -> Result<T, Vec<Problem>> {
        if self.problems.is_empty() {
            return Ok(result);
        }
        // All problems are told at once.
        self.problems.append(&mut self.absent);
        self.problems.sort();
        self.problems.dedup_by(|one, other| one.says_the_same(other));
        Err(self.problems)
    }

    /// Notes what is wrong with a setting, where it was set; once is enough.
    fn wrong(&mut self, setting: &str, fault: &str) {
        if !self.layers.written.is_flagged(setting) {
            self.problems.push(self.problem(setting, fault));
        }
    }

    fn problem(&self, setting: &str, fault: &str) -> Problem {
        let place = match self.sources.get(setting).copied().unwrap_or_default() {
            Source::Environment(name) | Source::Flag(name) => Place::Named(name.to_owned()),
            Source::File | Source::Default => self.layers.written.place(setting),
        };
        let name = setting.rsplit('.').next().unwrap_or(setting);
        Problem::new(place, format!("`{name}` {fault}")).about(setting)
    }

    /// The value that wins, and a note of who set it.
    fn pick<T>(&mut self, setting: &str, names: Names, get: impl Fn(&'a RawConfig) -> Option<&'a T>) -> Option<&'a T> {
        let layers = self.layers;
        let flag = get(&layers.flags).map(|value| (value, Source::Flag(names.flag)));
        let variable = || get(&layers.variables).map(|value| (value, Source::Environment(names.variable)));
        if let Some((value, source)) = flag.or_else(variable) {
            self.sources.insert(setting.to_owned(), source);
            return Some(value);
        }
        get(&layers.written.raw)
    }

    fn address(
        &mut self,
        setting: &str,
        names: Names,
        get: impl Fn(&'a RawConfig) -> Option<&'a String>,
    ) -> Option<Listen> {
        let text = self.pick(setting, names, get)?;
        let address = text.parse();
        address.map_err(|fault| self.wrong(setting, fault)).ok()
    }

    fn public_url(&mut self) -> Option<PublicUrl> {
        let text = self.pick("public_url", PUBLIC_URL, |raw| raw.public_url.as_ref())?;
        let url = PublicUrl::parse(text);
        url.map_err(|fault| self.wrong("public_url", fault)).ok()
    }

    fn trusted_proxies(&mut self) -> Proxies {
        let raw = self.layers.written.raw.trusted_proxies.as_deref().unwrap_or_default();
        let networks = raw.iter().enumerate().filter_map(|(index, text)| {
            let network = proxies::network(text);
            network.map_err(|fault| self.wrong(&format!("trusted_proxies[{index}]"), fault)).ok()
        });
        Proxies::new(networks.collect())
    }

    fn data_dir(&mut self) -> PathBuf {
        const SETTING: &str = "data_dir";
        if let Some(path) = self.pick(SETTING, DATA_DIR, |raw| raw.data_dir.as_ref()) {
            return self.path(SETTING, path);
        }
        data_dir(self.surroundings).unwrap_or_else(|| {
            self.wrong(SETTING, "must be set, because this environment names no home folder");
            PathBuf::new()
        })
    }

    fn skills_dir(&mut self) -> Option<PathBuf> {
        let path = self.layers.written.raw.skills_dir.as_deref()?;
        Some(self.path("skills_dir", path))
    }

    /// A path of the file starts at the folder of the file, so that every command finds the same data from everywhere.
    fn path(&mut self, setting: &str, path: &Path) -> PathBuf {
        if path.starts_with("~") {
            self.wrong(setting, "begins with `~`, which only a shell understands; write the whole path");
        }
        match self.sources.get(setting) {
            Some(Source::File) => self.layers.written.folder.join(path),
            _ => path.to_path_buf(),
        }
    }

    /// There is one database so far, so that the address can only be wrong.
    fn database(&mut self) {
        const SETTING: &str = "database_url";
        let source = self.pick(SETTING, DATABASE_URL, |raw| raw.database_url.as_ref());
        let Some(url) = source.and_then(|source| self.secret(SETTING, source)) else { return };
        let (scheme, path) = url.expose().split_once(':').unwrap_or((url.expose(), ""));
        let fault = match (scheme, path) {
            ("sqlite", "" | "//") => return,
            ("sqlite", _) => "cannot move the SQLite database out of `data_dir`; set `data_dir` instead",
            ("postgres" | "postgresql", _) => {
                "is PostgreSQL, which is not in this version yet; without it SQLite keeps the data in `data_dir`"
            }
            _ => "is of no database that imagate knows; without it SQLite keeps the data in `data_dir`",
        };
        self.wrong(SETTING, fault);
    }

    fn drain_timeout(&mut self, groups: &[Group], deadlines: Deadlines) -> Duration {
        let written = self.pick("drain_timeout", DRAIN_TIMEOUT, |raw| raw.drain_timeout.as_ref());
        self.period("drain_timeout", written, Duration::ZERO).unwrap_or_else(|| drain_timeout(groups, deadlines))
    }

    fn answer_deadline(&mut self) -> Duration {
        let written = self.pick("answer_deadline", ANSWER_DEADLINE, |raw| raw.answer_deadline.as_ref());
        self.period("answer_deadline", written, SHORTEST_DEADLINE).unwrap_or(DEFAULT_ANSWER)
    }

    fn shutdown_delay(&mut self) -> Duration {
        let written = self.layers.written.raw.shutdown_delay.as_ref();
        self.period("shutdown_delay", written, Duration::ZERO).unwrap_or_default()
    }

    fn deadlines(&mut self) -> Deadlines {
        let none = RawDeadlines::default();
        let raw = self.layers.written.raw.deadlines.as_ref().unwrap_or(&none);
        let connect = self.period("deadlines.connect", raw.connect.as_ref(), SHORTEST_DEADLINE);
        let image = self.image_deadline("deadlines.image", raw.image.as_ref());
        Deadlines { connect: connect.unwrap_or(DEFAULT_CONNECT), image: image.unwrap_or(DEFAULT_IMAGE) }
    }

    fn image_deadline(&mut self, setting: &str, written: Option<&Period>) -> Option<Duration> {
        self.period_within(setting, written, SHORTEST_DEADLINE..=LONGEST_IMAGE_DEADLINE)
    }

    fn replay(&mut self) -> Replay {
        let none = RawReplay::default();
        let raw = self.layers.written.raw.replay.as_ref().unwrap_or(&none);
        let mut window = |setting, written| self.period(setting, written, SHORTEST_WINDOW);
        Replay {
            orphans: raw.orphans.unwrap_or(DEFAULT_REPLAY.orphans),
            orphan_window: window("replay.orphan_window", raw.orphan_window.as_ref())
                .unwrap_or(DEFAULT_REPLAY.orphan_window),
            idempotency_window: window("replay.idempotency_window", raw.idempotency_window.as_ref())
                .unwrap_or(DEFAULT_REPLAY.idempotency_window),
            max_bytes: raw.max_megabytes.map_or(DEFAULT_REPLAY.max_bytes, |megabytes| u64::from(megabytes) << 20),
        }
    }

    fn retention(&mut self) -> Retention {
        let Some(raw) = &self.layers.written.raw.retention else { return Retention::default() };
        let mut kept = |setting, written| self.period_within(setting, written, RETENTION);
        Retention {
            records: kept("retention.records", raw.records.as_ref()),
            audit: kept("retention.audit", raw.audit.as_ref()),
            usage: kept("retention.usage", raw.usage.as_ref()),
        }
    }

    fn period(&mut self, setting: &str, written: Option<&Period>, least: Duration) -> Option<Duration> {
        self.period_within(setting, written, least..=duration::LONGEST)
    }

    fn period_within(
        &mut self,
        setting: &str,
        written: Option<&Period>,
        bounds: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let Some(period) = duration::parse(&written?.0) else {
            self.wrong(setting, &format!("must be {}", duration::EXPECTED));
            return None;
        };
        if !bounds.contains(&period) {
            let (least, most) = (duration::print(*bounds.start()), duration::print(*bounds.end()));
            self.wrong(setting, &format!("must be from {least} to {most}"));
        }
        Some(period)
    }
}
