//! Groups and accounts: names, who serves whom, and what each kind of account needs.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::{Desk, SHORTEST_DEADLINE};
use crate::gateway::config::problem::did_you_mean;
use crate::gateway::config::raw::{Kind, Protocol, RawAccount, RawHeader};
use crate::gateway::config::{
    Account, DEFAULT_GROUP, Deadlines, Delivery, Endpoint, Group, Secret, Tier, Upstream, address, headers,
};

/// Ours: standard images are cheap for an upstream, large ones are kept low as the specification asks.
const DEFAULT_CONCURRENCY: u32 = 8;
const DEFAULT_LARGE_CONCURRENCY: u32 = 2;
const LONGEST_NAME: usize = 64;

impl Desk<'_> {
    /// The groups of the file, and the one that is always there.
    pub(super) fn groups(&mut self, deadlines: Deadlines) -> Vec<Group> {
        let raw = self.layers.written.raw.groups.as_deref().unwrap_or_default();
        let mut taken = BTreeSet::new();
        let mut groups = Vec::new();
        for (index, group) in raw.iter().enumerate() {
            let name = self.name(&format!("groups[{index}].name"), group.name.as_deref(), &mut taken);
            let mut period =
                |field: &str, written| self.period(&format!("groups[{index}].{field}"), written, SHORTEST_DEADLINE);
            let standard = period("standard_deadline", group.standard_deadline.as_ref()).unwrap_or(deadlines.standard);
            let large =
                period("large_deadline", group.large_deadline.as_ref()).unwrap_or(deadlines.large.max(standard));
            let deadlines = Deadlines { standard, large, ..deadlines };
            groups.push(Group { name, delivery: group.delivery.unwrap_or(Delivery::Report), deadlines });
        }
        if !taken.contains(DEFAULT_GROUP) {
            groups.push(Group { name: DEFAULT_GROUP.to_owned(), delivery: Delivery::Report, deadlines });
        }
        groups
    }

    /// The accounts of the file, or else the simulator.
    pub(super) fn accounts(&mut self, groups: &[Group]) -> Vec<Account> {
        let raw = self.layers.written.raw.accounts.as_deref().unwrap_or_default();
        let mut taken = BTreeSet::new();
        let mut accounts = Vec::new();
        for (index, account) in raw.iter().enumerate() {
            let path = format!("accounts[{index}]");
            let name = self.name(&format!("{path}.name"), account.name.as_deref(), &mut taken);
            accounts.push(Account {
                name,
                groups: self.served(&format!("{path}.groups"), account, groups),
                tier: account.tier.unwrap_or(Tier::Paid),
                priority: account.priority.unwrap_or_default(),
                concurrency: at_least_one(account.concurrency.unwrap_or(DEFAULT_CONCURRENCY)),
                large_concurrency: at_least_one(account.large_concurrency.unwrap_or(DEFAULT_LARGE_CONCURRENCY)),
                implicit: false,
                upstream: self.upstream(&path, account).unwrap_or(Upstream::Simulator),
            });
        }
        if accounts.is_empty() {
            accounts.push(simulator());
        }
        accounts
    }

    /// A name that logs, records and headers can carry, and that nobody else has.
    fn name(&mut self, setting: &str, name: Option<&str>, taken: &mut BTreeSet<String>) -> String {
        let name = name.unwrap_or_default();
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(fits) {
            self.wrong(setting, &format!("must be 1 to {LONGEST_NAME} letters, digits, `.`, `_` or `-`"));
        } else if !taken.insert(name.to_owned()) {
            self.wrong(setting, &format!("`{name}` is taken already"));
        }
        name.to_owned()
    }

    /// The groups that an account serves.
    fn served(&mut self, setting: &str, account: &RawAccount, groups: &[Group]) -> Vec<String> {
        let Some(names) = &account.groups else { return vec![DEFAULT_GROUP.to_owned()] };
        if names.is_empty() {
            self.wrong(setting, "must name a group, or else nobody can use the account");
        }
        let known = || groups.iter().map(|group| group.name.as_str());
        for (index, name) in names.iter().enumerate() {
            if !known().any(|group| group == name) {
                let advice = did_you_mean(name, known());
                self.wrong(
                    &format!("{setting}[{index}]"),
                    &format!("names `{}`, which is no group{advice}", name.escape_debug()),
                );
            }
        }
        names.clone()
    }

    fn upstream(&mut self, path: &str, account: &RawAccount) -> Option<Upstream> {
        match account.kind? {
            Kind::Simulator => {
                self.no_endpoint(path, account);
                Some(Upstream::Simulator)
            }
            Kind::Oauth => {
                self.wrong(&format!("{path}.kind"), "\"oauth\" is not in this version yet; use \"api_key\"");
                None
            }
            Kind::ApiKey => self.endpoint(path, account).map(Upstream::Images),
        }
    }

    /// A simulator that was given an address is a mistake: its owner believes that the images are real.
    fn no_endpoint(&mut self, path: &str, account: &RawAccount) {
        let given = [
            ("base_url", account.base_url.is_some()),
            ("api_key", account.api_key.is_some()),
            ("allow_http", account.allow_http.is_some()),
            ("headers", account.headers.is_some()),
        ];
        for (setting, _) in given.into_iter().filter(|(_, given)| *given) {
            self.wrong(&format!("{path}.{setting}"), "has no meaning for a simulator, which calls nobody");
        }
    }

    fn endpoint(&mut self, path: &str, account: &RawAccount) -> Option<Endpoint> {
        if account.protocol == Some(Protocol::Responses) {
            self.wrong(&format!("{path}.protocol"), "\"responses\" is not in this version yet; use \"images\"");
        }
        let base_url = self.base_url(&format!("{path}.base_url"), account);
        let api_key = self.api_key(&format!("{path}.api_key"), account);
        let headers = self.headers(&format!("{path}.headers"), account);
        Some(Endpoint { base_url: base_url?, api_key: api_key?, headers })
    }

    fn base_url(&mut self, setting: &str, account: &RawAccount) -> Option<Uri> {
        let Some(text) = &account.base_url else {
            self.wrong(setting, "is missing, such as \"https://api.openai.com/v1\"");
            return None;
        };
        let uri = address::base_url(text, account.allow_http.unwrap_or_default());
        uri.map_err(|fault| self.wrong(setting, fault)).ok()
    }

    fn api_key(&mut self, setting: &str, account: &RawAccount) -> Option<Secret> {
        let Some(source) = &account.api_key else {
            self.wrong(setting, "is missing, such as { env = \"OPENAI_API_KEY\" }");
            return None;
        };
        self.header_secret(setting, source)
    }

    fn headers(&mut self, path: &str, account: &RawAccount) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (text, written) in account.headers.iter().flatten() {
            let setting = format!("{path}.{text}");
            let Some((name, value)) = self.header(&setting, text, written) else { continue };
            if map.insert(name, value).is_some() {
                self.wrong(&setting, "stands twice, in other letters");
            }
        }
        map
    }

    fn header(&mut self, setting: &str, text: &str, written: &RawHeader) -> Option<(HeaderName, HeaderValue)> {
        let name =
            headers::name(text).map_err(|fault| self.wrong(setting, &format!("cannot be sent: {fault}"))).ok()?;
        let (text, sensitive) = match written {
            RawHeader::Plain(_) if headers::is_secret(&name) => {
                self.wrong(setting, "carries a credential and must be { env = \"NAME\" } or { file = \"PATH\" }");
                return None;
            }
            RawHeader::Plain(text) => (text.clone(), false),
            RawHeader::Secret(source) => (self.header_secret(setting, source)?.expose().to_owned(), true),
        };
        let Ok(mut value) = HeaderValue::from_str(&text) else {
            self.wrong(setting, "holds a character that cannot stand in a header");
            return None;
        };
        value.set_sensitive(sensitive);
        Some((name, value))
    }
}

/// What serves when nobody configured anything.
fn simulator() -> Account {
    Account {
        name: "simulator".to_owned(),
        upstream: Upstream::Simulator,
        tier: Tier::Paid,
        groups: vec![DEFAULT_GROUP.to_owned()],
        priority: 0,
        concurrency: at_least_one(DEFAULT_CONCURRENCY),
        large_concurrency: at_least_one(DEFAULT_LARGE_CONCURRENCY),
        implicit: true,
    }
}

/// The schema refuses 0 with a message of its own.
fn at_least_one(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)
}
