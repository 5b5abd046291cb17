//! A gateway that has been in use for a month: several users, keys in all states, records with all outcomes.

use serde_json::json;

use super::accounts::account_path;
use super::hostile::HOSTILE_TEXTS;
use super::users::{ADAS_PASSWORD, invite, make_key, sign_in_ada, sign_in_ben};
use super::visitor::Visitor;
use crate::kit::{Account, Call, FakeUpstream, Gateway, OutputChannel, request};

/// The scripts of the fake upstream for the calls of one key.
const OUTCOMES: [&str; 8] = ["", "", "status=400 body=policy", "", "", "", "status=400 body=parameter", ""];
/// The script of the last call. Accounts are in cooldown after it.
const LAST_SCRIPT: &str = "status=500";
/// Key name, end user, and how many times the calls of [`OUTCOMES`] are made.
const KEYS: [(&str, Option<&str>, usize); 9] = [
    ("trial-of-march", None, 1),
    ("design-mockups", None, 1),
    ("print-shop", Some("counter-2"), 1),
    ("documentation", None, 1),
    ("newsletter", Some("issue-88"), 1),
    ("nightly-thumbnails", Some(HOSTILE_TEXTS[0]), 2),
    ("staging", None, 2),
    ("laptop", None, 1),
    ("production", Some("customer-1041"), 3),
];

const STAGING_INDEX: usize = 6;
const LAPTOP_INDEX: usize = 7;
const PRODUCTION_INDEX: usize = 8;

/// The gateway and its upstream.
pub(super) struct Seeded {
    pub(super) gateway: Gateway,
    _upstream: FakeUpstream,
}

/// The paths of the pages of single items.
pub(super) struct ItemPaths {
    /// Keys by their state: active, disabled, rotated.
    pub(super) active: String,
    pub(super) disabled: String,
    pub(super) rotated: String,
    pub(super) person: String,
    pub(super) succeeded_record: String,
    pub(super) failed_record: String,
    /// Records whose cost is not exact.
    pub(super) estimated_record: String,
    pub(super) unknown_record: String,
}

/// A further group, and a provider of OpenID Connect that cannot be reached.
const SETTINGS: &str = "[[groups]]\nname = \"research\"\n\
    [oidc]\nissuer = \"http://127.0.0.1:1\"\nclient_id = \"imagate\"\nlabel = \"Example\"\n";

// === impl Seeded ===

impl Seeded {
    #[track_caller]
    pub(super) fn start() -> Self {
        let upstream = FakeUpstream::start();
        let accounts = [
            Account::for_upstream("azure-east", &upstream),
            Account::for_upstream("azure-west", &upstream).with_free_tier(),
            Account::for_upstream("reserve", &upstream).with_free_tier(),
        ];
        // The statements that spread the records over a month are of SQLite.
        let gateway = Gateway::with_secrets(SETTINGS, &accounts, &[("IMAGATE_DATABASE_URL", "sqlite:")]);
        Self { gateway, _upstream: upstream }
    }

    /// Fills the gateway with the data of a month; returns Ada and Ben, signed in, and the paths of single pages.
    #[track_caller]
    pub(super) fn fill_with_data(&self) -> (Visitor<'_>, Visitor<'_>, ItemPaths) {
        let gateway = &self.gateway;
        let mut ada = sign_in_ada(gateway);
        let mut ben = sign_in_ben(&mut ada);
        for (name, role) in [("carla", "member"), ("noor", "admin")] {
            let path = invite(&mut ada, name, role);
            if name == "noor" {
                let mut noor = Visitor::new(gateway);
                noor.submit(&path, &path, &[("password", ADAS_PASSWORD), ("again", ADAS_PASSWORD)]);
            }
        }
        for text in HOSTILE_TEXTS {
            make_key(&mut ada, text);
        }
        let mut keys = KEYS.map(|(name, user, times)| (make_key(&mut ada, name), user, times)).to_vec();
        keys.push((make_key(&mut ben, "phone"), None, 1));
        for ((_, secret), user, times) in &keys {
            send_calls(gateway, secret, *user, *times);
        }
        let ((_, secret), ..) = &keys[PRODUCTION_INDEX];
        send_call(gateway, secret, None, LAST_SCRIPT);
        let paths: Vec<&String> = keys.iter().map(|((path, _), ..)| path).collect();
        ada.submit(paths[LAPTOP_INDEX], &format!("{}/disable", paths[LAPTOP_INDEX]), &[]);
        let answer = ada.submit(paths[STAGING_INDEX], &format!("{}/rotate", paths[STAGING_INDEX]), &[]);
        gateway.watch_secret(
            "a key",
            &super::users::secret_in(&answer.text()).expect("a secret"),
            &[OutputChannel::Key],
        );
        ada.submit("/groups", "/groups", &[("name", "batch")]);
        let reserve = account_path(&mut ada, "reserve");
        ada.submit(&format!("{reserve}/disable"), &format!("{reserve}/disable"), &[]);
        let records = gateway.final_records(30);
        gateway.execute_sql(SPREAD_OVER_A_MONTH);
        let record = |state: &str| {
            let found = records.iter().rfind(|record| record["state"] == state).expect("a record");
            format!("/records/{}", found["request_id"].as_str().expect("an id"))
        };
        let people = ada.get("/people").text();
        let person_path =
            people.split("href=\"").find(|link| link.starts_with("/people/") && link.contains(">ben@desk<"));
        let person_path = person_path.and_then(|link| link.split('"').next()).expect("a link").to_owned();
        let things = ItemPaths {
            active: paths[PRODUCTION_INDEX].clone(),
            disabled: paths[LAPTOP_INDEX].clone(),
            rotated: paths[STAGING_INDEX].clone(),
            person: person_path,
            succeeded_record: record("succeeded"),
            failed_record: record("failed"),
            estimated_record: record_with(&mut ada, ",estimated,"),
            unknown_record: record_with(&mut ada, ",unknown,"),
        };
        (ada, ben, things)
    }
}

/// The page of the newest record whose line in the CSV file has this text.
#[track_caller]
fn record_with(visitor: &mut Visitor<'_>, text: &str) -> String {
    let csv = visitor.get("/records.csv").text();
    let line = csv.lines().find(|line| line.contains(text)).expect("a record");
    format!("/records/{}", line.rsplit(',').next().unwrap_or_default())
}

fn send_calls(gateway: &Gateway, secret: &str, user: Option<&str>, times: usize) {
    for script in std::iter::repeat_n(OUTCOMES, times).flatten() {
        send_call(gateway, secret, user, script);
    }
}

fn send_call(gateway: &Gateway, secret: &str, user: Option<&str>, script: &str) {
    let mut body = request(json!({ "prompt": format!("a harbour at dusk [[{script}]]") }));
    if let Some(user) = user {
        body["user"] = json!(user);
    }
    drop(Call::generation().key(secret).json(&body).send(gateway.address()));
}

/// Copies the records to the days before, some days with more and some with fewer, and counts them there.
const SPREAD_OVER_A_MONTH: &str = "
BEGIN IMMEDIATE;
CREATE TEMP TABLE month AS
    WITH RECURSIVE days (day) AS (SELECT 1 UNION ALL SELECT day + 1 FROM days WHERE day < 29)
    SELECT records.*, day FROM records JOIN days WHERE (seq * 7 + day * 13) % 11 < 1 + day % 6;
UPDATE month SET
    request_id = printf('%08x', seq * 100 + day) || substr(request_id, 9),
    created_at = strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '-' || day || ' days', '-' || (seq * 11 % 180) || ' minutes'),
    seq = seq - day * 1000;
ALTER TABLE month DROP COLUMN day;
UPDATE month SET document = json_set(document, '$.request_id', request_id, '$.created_at', created_at);
UPDATE month SET document = json_set(document, '$.cost_basis', 'estimated', '$.cost_reason', 'interrupted',
        '$.usage.cached_tokens_details', json_object('text_tokens', 16))
    WHERE state = 'succeeded' AND seq % 5 = 0;
UPDATE month SET cost_nano_usd = NULL, document = json_set(json_remove(document, '$.cost_usd', '$.price_version'),
        '$.cost_basis', 'unknown', '$.cost_reason', 'no_price')
    WHERE state = 'succeeded' AND seq % 9 = 0;
INSERT INTO records SELECT * FROM month;
CREATE TEMP TABLE sums AS
    SELECT end_user, substr(created_at, 1, 10) AS day, key_id, user_id, group_name, count(*) AS requests,
        count(*) FILTER (WHERE state = 'succeeded') AS succeeded, count(*) FILTER (WHERE state <> 'succeeded') AS failed,
        sum(images) AS images, total(input_tokens) AS input_tokens, total(output_tokens) AS output_tokens,
        total(total_tokens) AS total_tokens, total(cost_nano_usd) AS cost_nano_usd,
        count(*) - count(cost_nano_usd) AS cost_unknown
    FROM month GROUP BY 1, 2, 3, 4, 5;
INSERT INTO end_user_days SELECT * FROM sums WHERE end_user IS NOT NULL;
INSERT INTO usage_days (key_id, day, user_id, group_name, requests, succeeded, failed, images, input_tokens, output_tokens,
        total_tokens, cost_nano_usd, cost_unknown)
    SELECT key_id, day, user_id, group_name, sum(requests), sum(succeeded), sum(failed), sum(images), sum(input_tokens),
        sum(output_tokens), sum(total_tokens), sum(cost_nano_usd), sum(cost_unknown)
    FROM sums GROUP BY 1, 2, 3, 4;
UPDATE keys SET created_at = strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '-' || (70 - rowid * 3) || ' days');
UPDATE keys SET expires_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-20 days') WHERE name = 'trial-of-march';
UPDATE keys SET expires_at = strftime('%Y-%m-%dT00:00:00.000Z', 'now', '+90 days') WHERE name IN ('staging', 'print-shop');
COMMIT;
";
