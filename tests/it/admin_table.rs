//! The permissions of the admin API: every operation is called in every role, for an object of the caller's own,
//! of another user, and for a missing one. `tests/cases/admin.json` lists the expected statuses: one row for each
//! operation, and further rows, each with a `case` that names it, for objects in special states.

use std::cell::Cell;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, FakeUpstream, Gateway, request};

const TOKEN: &str = "admin-token-canary-0123456789abcdef";

/// The roles of callers, as the rows name them.
const ROLES: [&str; 6] = ["none", "caller", "disabled", "member", "admin", "settings"];
/// The owners of the object of a call, relative to the caller. `nobody` stands for a missing object.
const OWNERS: [&str; 3] = ["own", "other", "nobody"];

/// The first day of the prices that are made.
const PRICE_DAY: &str = "2026-04-21";

/// A user, with a token for programs and a record.
struct Person {
    id: String,
    name: String,
    token: String,
    record: String,
}

/// A gateway with users of several roles.
struct Fixture {
    gateway: Gateway,
    _upstream: FakeUpstream,
    people: BTreeMap<&'static str, Person>,
    /// The number of fresh names that were made.
    count: Cell<u32>,
}

/// An operation of the document.
struct Operation {
    id: String,
    method: String,
    path: String,
}

fn document() -> Value {
    serde_json::from_str(include_str!("../../openapi/admin.json")).expect("the document is JSON")
}

fn rows() -> Vec<Value> {
    serde_json::from_str(include_str!("../cases/admin.json")).expect("the rows are JSON")
}

fn operations(document: &Value) -> Vec<Operation> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("methods") {
            let id = operation["operationId"].as_str().expect("an id").to_owned();
            found.push(Operation { id, method: method.to_uppercase(), path: path.clone() });
        }
    }
    found
}

/// One line for each missing row or cell, and for each row without an operation.
fn gaps(operations: &[Operation], rows: &[Value]) -> Vec<String> {
    let mut gaps = Vec::new();
    for Operation { id, .. } in operations {
        match rows.iter().filter(|row| row["operation"] == *id && row["case"].is_null()).count() {
            1 => {}
            count => gaps.push(format!("{id} has {count} rows")),
        }
    }
    for row in rows {
        if operations.iter().all(|operation| row["operation"] != operation.id) {
            gaps.push(format!("{} is no operation", row["operation"]));
        }
        for role in ROLES {
            let cell = &row[role];
            let is_common = cell.is_u64() && (row["target"].is_null() || cell == 401);
            if !is_common && OWNERS.iter().any(|owner| cell[owner].is_null()) {
                gaps.push(format!("{} has no cell for {role}", row["operation"]));
            }
        }
    }
    gaps
}

// === impl Fixture ===

impl Fixture {
    fn open() -> Self {
        let upstream = FakeUpstream::start();
        let secrets = [("IT_ADMIN", TOKEN)];
        let accounts = [Account::for_upstream("only", &upstream)];
        let gateway = Gateway::with_secrets("admin_token = { env = \"IT_ADMIN\" }", &accounts, &secrets);
        let mut fixture = Self { gateway, _upstream: upstream, people: BTreeMap::new(), count: Cell::new(0) };
        for (name, role) in [("member", "member"), ("other", "member"), ("admin", "admin"), ("disabled", "member")] {
            // The prefix is needed because the first start has already made a user `admin`.
            let person = fixture.add_person(&format!("table-{name}"), role);
            fixture.people.insert(name, person);
        }
        fixture.good(Call::patch("/admin/v1/users/table-disabled").json(&json!({"enabled": false})));
        fixture
    }

    fn add_person(&self, name: &str, role: &str) -> Person {
        let made = self.good(Call::post("/admin/v1/users").json(&json!({"name": name, "role": role})));
        let token = self.good(Call::post("/admin/v1/tokens").json(&json!({"name": "table", "user": name})));
        let key = self.good(Call::post("/admin/v1/keys").json(&json!({"name": "table", "user": name})));
        let secret = key["secret"].as_str().expect("a secret");
        let image = Call::generation().json(&request(json!({}))).key(secret).send(self.gateway.address());
        image.ok_json();
        Person {
            id: made["user"]["id"].as_str().expect("an id").to_owned(),
            name: name.to_owned(),
            token: token["secret"].as_str().expect("a secret").to_owned(),
            record: image.header("x-request-id").expect("an id").to_owned(),
        }
    }

    /// The body of a call with the admin token of the settings, which must succeed.
    #[track_caller]
    fn good(&self, call: Call) -> Value {
        call.key(TOKEN).send(self.gateway.address()).ok_json()
    }

    /// A new name.
    fn fresh(&self) -> String {
        self.count.set(self.count.get() + 1);
        format!("fresh-{}", self.count.get())
    }

    /// The credential of a role.
    fn credential_of(&self, role: &str) -> Option<String> {
        match role {
            "none" => None,
            "caller" => Some(self.gateway.secret().to_owned()),
            "settings" => Some(TOKEN.to_owned()),
            user => Some(self.people[user].token.clone()),
        }
    }

    /// The owner of the object of a call. `own` means the member for roles that are no user.
    fn owner(&self, role: &str, owner: &str) -> Option<&Person> {
        let own = if self.people.contains_key(role) { role } else { "member" };
        match owner {
            "own" => Some(&self.people[own]),
            "other" => Some(&self.people["other"]),
            _ => None,
        }
    }

    /// Makes an object of this kind and owner, and returns the name or id for the path of the call.
    fn make_object(&self, kind: &str, owner: Option<&Person>) -> String {
        let Some(owner) = owner else { return "nobody".to_owned() };
        let new = json!({"name": self.fresh(), "user": owner.name});
        let named = |body: Value, at: &str| body.pointer(at).and_then(Value::as_str).expect("an id").to_owned();
        match kind {
            "user" => owner.id.clone(),
            "record" => owner.record.clone(),
            // A disabled user can get no key or token, and its calls are refused before the object is looked up.
            "key" | "ended key" | "token" if owner.name == "table-disabled" => {
                self.make_object(kind, self.owner("member", "other"))
            }
            "locked key" => {
                let id = self.make_object("key", Some(owner));
                self.good(Call::patch(&format!("/admin/v1/keys/{id}")).json(&json!({"enabled": false})));
                id
            }
            "ended key" => {
                let new = json!({"name": self.fresh(), "user": owner.name, "expires_at": "2099-01-01T00:00:00Z"});
                named(self.good(Call::post("/admin/v1/keys").json(&new)), "/key/id")
            }
            "key" => named(self.good(Call::post("/admin/v1/keys").json(&new)), "/key/id"),
            "token" => named(self.good(Call::post("/admin/v1/tokens").json(&new)), "/token/id"),
            "group" => named(self.good(Call::post("/admin/v1/groups").json(&json!({"name": self.fresh()}))), "/name"),
            "account" => {
                let new = json!({"name": self.fresh(), "kind": "simulator"});
                named(self.good(Call::post("/admin/v1/accounts").json(&new)), "/id")
            }
            "price" => {
                let new = json!({"model": self.fresh(), "from": PRICE_DAY, "image_output": 30});
                named(self.good(Call::put("/admin/v1/prices").json(&new)), "/model")
            }
            kind => panic!("no object of kind {kind} can be made"),
        }
    }

    fn ask(&self, operation: &Operation, row: &Value, role: &str, object: &str) -> Answer {
        let filled = |text: &str| text.replace("{user}", object).replace("{fresh}", &self.fresh());
        // The first day of a price is the second part of its path.
        let mut path = operation.path.replace("{from}", PRICE_DAY);
        if let (Some(from), Some(to)) = (path.find('{'), path.find('}')) {
            path.replace_range(from..=to, object);
        }
        if let Some(query) = row["query"].as_str() {
            path = format!("{path}?{}", filled(query));
        }
        let call = match operation.method.as_str() {
            "GET" => Call::get(&path),
            "POST" => Call::post(&path),
            "PATCH" => Call::patch(&path),
            "PUT" => Call::put(&path),
            "DELETE" => Call::delete(&path),
            method => panic!("unknown method {method}"),
        };
        let call = match &row["body"] {
            Value::Null => call,
            body => call.header("content-type", "application/json").bytes(filled(&body.to_string())),
        };
        let call = self.credential_of(role).into_iter().fold(call, |call, key| call.key(&key));
        call.send(self.gateway.address())
    }

    /// The number of entries in the audit trail.
    fn changes(&self) -> u64 {
        self.good(Call::get("/admin/v1/audit?limit=1"))["total"].as_u64().expect("a count")
    }

    /// Checks one cell, and returns a description of the error if there is one.
    fn check(&self, operation: &Operation, row: &Value, role: &str, owner: &str) -> Option<String> {
        let cell = &row[role];
        let expected = if cell.is_object() { &cell[owner] } else { cell };
        let object =
            row["target"].as_str().map_or_else(String::new, |kind| self.make_object(kind, self.owner(role, owner)));
        let before = self.changes();
        let answer = self.ask(operation, row, role, &object);
        let changed = self.changes() != before;
        let case = row["case"].as_str().map_or_else(String::new, |case| format!(" ({case})"));
        let place = format!("{}{case} of {owner} by {role}", operation.id);
        if answer.status != *expected {
            return Some(format!("{place}: status {} instead of {expected}: {}", answer.status, answer.text()));
        }
        if answer.header("cache-control") != Some("no-store") {
            return Some(format!("{place}: the answer may be cached"));
        }
        // A change without an effect adds no entry to the audit trail; its row has `changes: false`.
        let changes = operation.method != "GET" && answer.status == 200 && row["changes"] != false;
        (changed != changes).then(|| format!("{place}: it has {}changed something", if changed { "" } else { "not " }))
    }
}

#[test]
fn every_operation_has_a_row_and_every_row_all_its_cells() {
    let gaps = gaps(&operations(&document()), &rows());
    assert!(gaps.is_empty(), "{gaps:#?}");
}

#[test]
fn an_operation_without_a_row_is_reported() {
    let mut fewer = rows();
    let gone = fewer.pop().expect("a row");
    fewer[0]["member"] = Value::Null;
    let gaps = gaps(&operations(&document()), &fewer);
    let name = gone["operation"].as_str().expect("a name");
    assert_eq!(gaps, [format!("{name} has 0 rows"), "\"list_keys\" has no cell for member".to_owned()]);
}

#[test]
fn every_role_gets_the_statuses_of_the_table() {
    let fixture = Fixture::open();
    let rows = rows();
    let mut wrong = Vec::new();
    for operation in operations(&document()) {
        // Another test reports missing rows.
        for row in rows.iter().filter(|row| row["operation"] == operation.id) {
            let owners = OWNERS.iter().filter(|owner| row["target"].is_string() || **owner == "own");
            let cells = owners.flat_map(|owner| ROLES.map(|role| (role, owner)));
            wrong.extend(cells.filter_map(|(role, owner)| fixture.check(&operation, row, role, owner)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
