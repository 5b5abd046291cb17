//! One gateway for all cases. Each case and operation has its own group, key, accounts and upstream in the gateway, so
//! that no case affects the accounts of another.

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::first_endpoint::FirstEndpoint;
use super::operation::Operation;
use super::row::Row;
use crate::kit::{Call, FakeUpstream, Gateway};

/// The text that every prompt contains; nothing else contains it.
pub(super) const PROMPT: &str = "a red cube, prompt-canary-5d1f";

/// The `user` of requests before the first case.
pub(super) const WARM_UP: &str = "warm-up";

/// The start of the configuration: the token of the admin API, and the connect deadline.
const CONFIG_START: &str = "admin_token = { env = \"IT_ADMIN\" }\n[deadlines]\nconnect = \"1s\"\n";
/// The token with which the keys are created and the records are read.
const ADMIN_TOKEN: &str = "u-cases-admin-token-0123456789abcdef";
/// The most records that the API lists at once; no case has as many.
const MAX_RECORDS: usize = 500;

pub(super) struct SharedGateway {
    pub(super) gateway: Mutex<Gateway>,
    pub(super) fixtures: Vec<CaseFixture>,
    /// The target of redirects, which the gateway must not follow.
    pub(super) target: FakeUpstream,
    _secrets: TempDir,
}

/// The fixture of one case with one operation.
pub(super) struct CaseFixture {
    pub(super) row: &'static Row,
    pub(super) operation: Operation,
    pub(super) upstream: FakeUpstream,
    /// The upstream token of each account, in the order of their priority.
    pub(super) tokens: Vec<String>,
    /// The secret of the API key.
    pub(super) secret: String,
    /// The id of the API key.
    pub(super) key_id: String,
    pub(super) address: std::net::SocketAddr,
    /// The endpoint of the first account, if it is not the upstream.
    pub(super) first_endpoint: FirstEndpoint,
    group: String,
}

// === impl SharedGateway ===

impl SharedGateway {
    pub(super) fn set_up(rows: &'static [Row]) -> Self {
        let secrets = TempDir::new().expect("a directory");
        let jobs = rows.iter().flat_map(|row| Operation::ALL.map(|operation| (row, operation)));
        let jobs = jobs.filter(|(row, operation)| row.scripts(*operation).is_ok());
        let mut fixtures: Vec<CaseFixture> =
            jobs.enumerate().map(|(at, (row, operation))| CaseFixture::new(at, row, operation)).collect();
        let mut config = CONFIG_START.to_owned();
        for fixture in &fixtures {
            fixture.configure(&mut config, secrets.path());
        }
        let gateway = Gateway::with_secrets(&config, &[], &[("IT_ADMIN", ADMIN_TOKEN)]);
        for fixture in &mut fixtures {
            // A command for each of the hundreds of keys would take a minute.
            let create =
                |path: &str, new: Value| Call::post(path).json(&new).key(ADMIN_TOKEN).send(gateway.address()).ok_json();
            create("/admin/v1/users", json!({"name": fixture.group}));
            let key = create("/admin/v1/keys", json!({"name": "u", "user": fixture.group, "group": fixture.group}));
            let text = |pointer: &str| key.pointer(pointer).and_then(Value::as_str).expect("a text").to_owned();
            (fixture.secret, fixture.key_id, fixture.address) = (text("/secret"), text("/key/id"), gateway.address());
        }
        Self { gateway: Mutex::new(gateway), fixtures, target: FakeUpstream::start(), _secrets: secrets }
    }

    pub(super) fn gateway(&self) -> MutexGuard<'_, Gateway> {
        self.gateway.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl CaseFixture ===

impl CaseFixture {
    fn new(at: usize, row: &'static Row, operation: Operation) -> Self {
        let group = format!("place-{at}");
        Self {
            row,
            operation,
            upstream: FakeUpstream::start(),
            tokens: (0..row.accounts).map(|number| format!("sk-upstream-{group}-{number}-c4n4ry")).collect(),
            secret: String::new(),
            key_id: String::new(),
            address: ([127, 0, 0, 1], 0).into(),
            first_endpoint: FirstEndpoint::new(row.endpoint),
            group,
        }
    }

    fn configure(&self, text: &mut String, secrets: &std::path::Path) {
        let Self { group, row, .. } = self;
        write!(text, "\n[[groups]]\nname = \"{group}\"\n").expect("writing to a string");
        if let Some(time) = row.deadline {
            writeln!(text, "image_deadline = \"{time}ms\"").expect("writing to a string");
        }
        for (number, token) in self.tokens.iter().enumerate() {
            let file = secrets.join(format!("{group}-{number}"));
            std::fs::write(&file, token).expect("a secret");
            let endpoint = self.first_endpoint.base_url().filter(|_| number == 0);
            let base_url = endpoint.unwrap_or_else(|| self.upstream.base_url());
            let (name, file, places) = (self.account(number), file.display(), row.slots_per_account);
            write!(
                text,
                "\n[[accounts]]\nname = \"{name}\"\nkind = \"api_key\"\nbase_url = \"{base_url}\"\n\
                 api_key = {{ file = \"{file}\" }}\ngroups = [\"{group}\"]\npriority = -{number}\n\
                 concurrency = {places}\nlarge_concurrency = {places}\n"
            )
            .expect("writing to a string");
        }
    }

    /// Its records, oldest first. They are read through the API: each command that prints records is a
    /// process, and hundreds of them would disturb the measurement.
    #[track_caller]
    pub(super) fn records(&self) -> Vec<Value> {
        let path = format!("/admin/v1/records?limit={MAX_RECORDS}&key={}", self.key_id);
        let page = Call::get(&path).key(ADMIN_TOKEN).send(self.address).ok_json();
        assert_eq!(page["has_more"], false, "more than {MAX_RECORDS} records");
        let newest_first = page["data"].as_array().expect("records").iter().rev();
        newest_first.filter(|record| record["end_user"] != WARM_UP).cloned().collect()
    }

    /// The name of an account.
    pub(super) fn account(&self, number: usize) -> String {
        format!("{}-account-{number}", self.group)
    }

    /// The texts that no answer may contain.
    pub(super) fn canaries(&self) -> Vec<String> {
        let mut canaries: Vec<String> = (0..self.tokens.len()).map(|number| self.account(number)).collect();
        canaries.extend(self.tokens.iter().cloned());
        canaries.push(self.upstream.address().to_string());
        canaries.extend(self.first_endpoint.base_url().map(|url| url.trim_end_matches("/v1").to_owned()));
        canaries.push(self.secret.clone());
        canaries.extend(["provider-canary", "foreign-marker", "<html", "req_upstream", "c4n4ry"].map(str::to_owned));
        canaries
    }

    /// Sets the script of the first account, and that of the others.
    pub(super) fn script(&self, first: &str, others: &str) {
        for (number, token) in self.tokens.iter().enumerate() {
            self.upstream.always_for_token(token, if number == 0 { first } else { others });
        }
    }
}
