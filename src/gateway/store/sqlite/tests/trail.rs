//! Tests of the audit trail: every change writes its row, in the transaction of the change.
//!
//! Each step is executed twice: once while the trail accepts no rows, so that the step must fail and change nothing,
//! and once as usual. The methods of the steps are compared with the methods of the traits, so that the test fails
//! until each new method that makes a change has a step here.

use super::*;
use crate::gateway::store::sql::people::sessions::{UNKNOWN_USER_REFUSALS_PER_DAY, USER_REFUSALS_PER_DAY};
use crate::gateway::store::testing::{add_key, replace_credentials};
use crate::gateway::store::{
    AccountChange, AdminTokenRow, AdminTokenStore as _, AuditContext, AuditFilter, GroupStore as _, IdentityStore as _,
    KeyChange, KeyHash, KeyRow, KeyStore as _, LinkRedemption, LinkStore as _, NewAccount, NewIdentity, NewLink,
    NewSecondFactor, NewSession, NewUser, PasswordHash, PeopleStore as _, SecondFactorStore as _, SecretHash,
    SecretRotation, SessionStore as _, SignInProof, StoredEjection, UserChange, UserId, UserRole,
};

struct Trail {
    store: Arc<SqlStore>,
    last_seq: i64,
    checked_methods: Vec<&'static str>,
    _dir: TempDir,
}

impl Trail {
    async fn block(&self) -> String {
        self.run("CREATE TRIGGER block BEFORE INSERT ON audit BEGIN SELECT raise(ABORT, 'blocked'); END").await;
        self.dump().await
    }

    async fn unblock(&self, before: &str, method: &str) {
        self.run("DROP TRIGGER block").await;
        assert_eq!(self.dump().await, before, "{method} must change nothing without its audit row");
    }

    async fn run(&self, statement: &'static str) {
        sqlx::query(statement).execute(self.store.writer.sqlite()).await.unwrap();
    }

    /// Returns every row of every table, except the audit trail and the list of migrations.
    async fn dump(&self) -> String {
        let tables =
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('audit', '_sqlx_migrations')";
        let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(self.store.writer.sqlite()).await.unwrap();
        let mut all = String::new();
        for table in tables {
            let columns =
                format!("SELECT group_concat('quote(' || name || ')', '||'',''||') FROM pragma_table_info('{table}')");
            let columns: String =
                sqlx::query_scalar(sqlx::AssertSqlSafe(columns)).fetch_one(self.store.writer.sqlite()).await.unwrap();
            let rows = format!("SELECT coalesce(group_concat({columns}, ';'), '') FROM {table}");
            let rows: String =
                sqlx::query_scalar(sqlx::AssertSqlSafe(rows)).fetch_one(self.store.writer.sqlite()).await.unwrap();
            all.push_str(&format!("{table}: {rows}\n"));
        }
        all
    }

    async fn expect(&mut self, method: &'static str, actions: &[&str]) {
        let filter = AuditFilter { limit: 100, ..AuditFilter::default() };
        let mut rows = self.store.list_audit_page(&filter).await.unwrap().items;
        rows.retain(|row| row.seq > self.last_seq);
        rows.reverse();
        self.last_seq = rows.last().map_or(self.last_seq, |row| row.seq);
        assert_eq!(rows.iter().map(|row| row.action.as_str()).collect::<Vec<_>>(), actions, "{method}");
        self.checked_methods.push(method);
    }
}

macro_rules! step {
    ($trail:ident, $method:literal, [$($action:literal),*], $call:expr) => {{
        let before = $trail.block().await;
        assert!($call.await.is_err(), "{} must fail without its audit row", $method);
        $trail.unblock(&before, $method).await;
        let result = $call.await.unwrap();
        $trail.expect($method, &[$($action),*]).await;
        result
    }};
}

fn link(byte: u8) -> NewLink {
    NewLink { hash: SecretHash([byte; 32]), expires_at: "2100-01-01T00:00:00Z".parse().unwrap() }
}

fn session(byte: u8) -> NewSession {
    let long_ago = "2000-01-01T00:00:00Z".parse().unwrap();
    NewSession {
        id: format!("ses_{byte}").into(),
        hash: SecretHash([byte; 32]),
        address: "192.0.2.1".to_owned(),
        network: "192.0.2.1".to_owned(),
        agent: String::new(),
        proved_at: Timestamp::now(),
        last_use_cutoff: long_ago,
        opening_cutoff: long_ago,
    }
}

fn redeemed(byte: u8, name: Option<&str>) -> LinkRedemption {
    let password = PasswordHash(format!("hash {byte}"));
    LinkRedemption { link: SecretHash([byte; 32]), name: name.map(str::to_owned), password, session: session(byte) }
}

#[tokio::test]
async fn every_change_writes_its_audit_row_or_fails() {
    let (dir, store) = new_store().await;
    let mut trail = Trail { store: Arc::clone(&store), last_seq: 0, checked_methods: Vec::new(), _dir: dir };
    people(&mut trail, &store).await;
    keys(&mut trail, &store).await;
    accounts(&mut trail, &store).await;

    let traits = [
        include_str!("../../people.rs"),
        include_str!("../../sessions.rs"),
        include_str!("../../second_factors.rs"),
        include_str!("../../identities.rs"),
        include_str!("../../keys.rs"),
        include_str!("../../../store.rs"),
    ];
    let mut expected = Vec::new();
    for declaration in traits.iter().flat_map(|text| text.split("async fn ").skip(1)) {
        let (name, signature) = declaration.split_once('(').unwrap();
        if signature.split(')').next().unwrap().contains("audit: &AuditContext") {
            expected.push(name);
        }
    }
    assert!(expected.len() > 15, "{expected:?}");
    for method in expected {
        assert!(trail.checked_methods.contains(&method), "{method} takes an audit context but is not in this test");
    }
}

async fn people(trail: &mut Trail, store: &SqlStore) {
    let context = &AuditContext::command();
    step!(trail, "make_setup_link", ["setup.link"], store.make_setup_link(context, &link(1)));
    let ada = step!(
        trail,
        "redeem_link",
        ["setup.done", "session.open"],
        store.redeem_link(context, &redeemed(1, Some("ada")))
    );
    let ada = ada.unwrap();
    step!(trail, "ensure_user", ["user.create"], store.ensure_user(context, "program"));
    step!(trail, "ensure_group", ["group.create"], store.ensure_group(context, "studio"));
    let bob =
        NewUser { name: "bob".to_owned(), role: UserRole::Member, groups: vec!["default".to_owned()], limits: None };
    step!(trail, "invite_user", ["user.invite"], store.invite_user(context, &bob, &link(2)));
    step!(trail, "redeem_link", ["user.join", "session.open"], store.redeem_link(context, &redeemed(2, None)));
    step!(trail, "make_reset_link", ["user.reset"], store.make_reset_link(context, &ada.id, &link(3)));
    step!(trail, "redeem_link", ["user.password", "session.open"], store.redeem_link(context, &redeemed(3, None)));
    let password = SignInProof { password: Some(PasswordHash("hash 3".to_owned())), ..SignInProof::default() };
    step!(trail, "open_session", ["session.open"], store.open_session(context, &ada.id, &password, &session(4)));
    step!(trail, "record_refused_sign_in", ["session.refuse"], store.record_refused_sign_in(context, None));
    step!(trail, "record_refused_sign_in", ["session.refuse"], store.record_refused_sign_in(context, Some(&ada)));
    let new_password = PasswordHash("other".to_owned());
    step!(
        trail,
        "set_password",
        ["user.password"],
        store.set_password(context, &ada.id, &new_password, &"ses_4".into())
    );
    sessions(trail, store, &ada.id, new_password).await;
    second_factors(trail, store, &ada.id).await;
    identities(trail, store, &ada.id).await;
    step!(trail, "change_user", ["user.role"], store.change_user(context, "bob", &[UserChange::Role(UserRole::Admin)]));
    let studio = [UserChange::Groups(vec!["studio".to_owned()])];
    step!(trail, "change_user", ["user.groups"], store.change_user(context, "bob", &studio));
    step!(trail, "change_user", ["user.disable"], store.change_user(context, "bob", &[UserChange::Disable]));
    step!(trail, "change_user", ["user.enable"], store.change_user(context, "bob", &[UserChange::Enable]));
    let limits = [UserChange::Limit(Some(r#"{"images_per_day":1}"#.to_owned()))];
    step!(trail, "change_user", ["user.limit"], store.change_user(context, "bob", &limits));
    step!(trail, "change_group", ["group.change"], store.change_group(context, "studio", r#"{"delivery":"fail"}"#));
    step!(trail, "delete_group", ["group.delete"], store.delete_group(context, "studio"));
    step!(trail, "create_group", ["group.create"], store.create_group(context, "atelier", Some("{}")));
    let token = AdminTokenRow {
        id: "tok_1".into(),
        public_id: "public".into(),
        name: "ci".to_owned(),
        user: ada.id.clone(),
        user_name: ada.name.clone(),
        created_at: context.at,
        expires_at: None,
        last_used_at: None,
        parent: None,
    };
    let hash = SecretHash([9; 32]);
    step!(trail, "insert_admin_token", ["token.create"], store.insert_admin_token(context, &token, &hash, 50));
    step!(trail, "delete_admin_token", ["token.delete"], store.delete_admin_token(context, "tok_1", None));
}

/// The sessions of a user with this password.
async fn sessions(trail: &mut Trail, store: &SqlStore, user: &UserId, password: PasswordHash) {
    let context = &AuditContext::command();
    let session_of_user = "ses_4".into();
    step!(
        trail,
        "record_session_proof",
        ["session.confirm"],
        store.record_session_proof(context, &session_of_user, None)
    );
    let kept = "ses_of_nobody".into();
    let new_proof = SignInProof { password: Some(password), ..SignInProof::default() };
    step!(trail, "end_sessions", ["session.close_others"], store.end_sessions(context, user, Some(&kept)));
    step!(trail, "open_session", ["session.open"], store.open_session(context, user, &new_proof, &session(4)));
    step!(trail, "end_session", ["session.close"], store.end_session(context, user, &session_of_user));
    step!(trail, "end_sessions", ["session.close_all"], store.end_sessions(context, user, None));
}

/// The second factor of a user.
async fn second_factors(trail: &mut Trail, store: &SqlStore, user: &UserId) {
    let (context, kept) = (&AuditContext::command(), "ses_of_nobody".into());
    let factor = NewSecondFactor { sealed_secret: vec![1], last_step: 7, recovery_codes: vec![SecretHash([1; 32])] };
    step!(trail, "add_second_factor", ["factor.add"], store.add_second_factor(context, user, &factor, &kept));
    let codes = [SecretHash([2; 32])];
    step!(trail, "replace_recovery_codes", ["factor.codes"], store.replace_recovery_codes(context, user, &codes));
    step!(trail, "remove_second_factor", ["factor.remove"], store.remove_second_factor(context, user));
}

/// The identities of a user and of a new one.
async fn identities(trail: &mut Trail, store: &SqlStore, user: &UserId) {
    let context = &AuditContext::command();
    let identity = |subject: &str| NewIdentity {
        issuer: "https://login.example.com".to_owned(),
        subject: subject.to_owned(),
        name: "kim".to_owned(),
    };
    let (first, second) = (identity("person-1"), identity("person-2"));
    let password = store.password_hash(user).await.unwrap();
    let proof = SignInProof { password, ..SignInProof::default() };
    step!(trail, "open_session", ["session.open"], store.open_session(context, user, &proof, &session(5)));
    let of = (user, &"ses_5".into());
    step!(trail, "connect_identity", ["identity.connect"], store.connect_identity(context, of, &first));
    let elsewhere = NewIdentity { issuer: "https://other.example.com".to_owned(), ..first };
    step!(
        trail,
        "connect_identity",
        ["identity.disconnect", "identity.connect"],
        store.connect_identity(context, of, &elsewhere)
    );
    step!(trail, "disconnect_identity", ["identity.disconnect"], store.disconnect_identity(context, user, None));
    step!(
        trail,
        "create_user_with_identity",
        ["user.create", "identity.connect"],
        store.create_user_with_identity(context, "kim", &second)
    );
}

async fn keys(trail: &mut Trail, store: &SqlStore) {
    let context = &AuditContext::command();
    let first_key = add_key(store, "first").await;
    trail.expect("insert_key", &["key.create"]).await;
    let row = KeyRow { id: "key_2".into(), public_id: "other".into(), ..first_key.clone() };
    step!(trail, "insert_key", ["key.create"], store.insert_key(context, &row, None));
    let next = SecretRotation { hash: KeyHash([8; 32]), previous_until: Some(context.at) };
    step!(trail, "rotate_key", ["key.rotate"], store.rotate_key(context, &row.id, None, next.clone()));
    let change = [KeyChange::Rename("second".to_owned())];
    step!(trail, "change_key", ["key.rename"], store.change_key(context, "key_2", None, &change));
    let change = [KeyChange::Expire(None)];
    step!(trail, "change_key", ["key.expire"], store.change_key(context, "key_2", None, &change));
    step!(trail, "change_key", ["key.disable"], store.change_key(context, "key_2", None, &[KeyChange::Disable]));
    step!(trail, "change_key", ["key.enable"], store.change_key(context, "key_2", None, &[KeyChange::Enable]));
    let both = [KeyChange::Disable, KeyChange::Delete];
    step!(trail, "change_key", ["key.disable", "key.delete"], store.change_key(context, "key_2", None, &both));
    let (id, delete) = (first_key.id.as_str(), [KeyChange::Delete]);
    step!(trail, "change_key", ["key.delete"], store.change_key(context, id, None, &delete));
    let row = KeyRow { id: "key_3".into(), public_id: "third".into(), ..first_key.clone() };
    step!(trail, "insert_first_key", ["key.create"], store.insert_first_key(context, &row));
}

async fn accounts(trail: &mut Trail, store: &SqlStore) {
    let context = &AuditContext::command();
    let account = NewAccount {
        name: "mine".to_owned(),
        kind: "api_key".to_owned(),
        protocol: "images".to_owned(),
        tier: "paid".to_owned(),
        settings: "{}".to_owned(),
        sealed_credentials: Some(vec![1]),
    };
    step!(trail, "insert_account", ["account.add"], store.insert_account(context, &account));
    let disable = AccountChange::Disable { reason: "why".to_owned() };
    step!(trail, "change_account", ["account.disable"], store.change_account(context, "mine", disable.clone()));
    step!(trail, "change_account", ["account.enable"], store.change_account(context, "mine", AccountChange::Enable));
    let reseal = replace_credentials(vec![2]);
    step!(trail, "change_account", ["account.rotate"], store.change_account(context, "mine", reseal.clone()));
    // No user decides on a cooldown, so neither its begin nor its end writes a row.
    let cool = AccountChange::StartCooldown { until: "2100-01-01T00:00:00Z".parse().unwrap(), cause: "429".to_owned() };
    for change in [cool, AccountChange::EndCooldown] {
        store.change_account(context, "mine", change).await.unwrap();
        trail.expect("change_account", &[]).await;
    }
    // An ejection writes no row either, but a user who enables the account, and so ends the ejection, does.
    let (since, until) = ("2099-01-01T00:00:00Z".parse().unwrap(), "2100-01-01T00:00:00Z".parse().unwrap());
    let ejection = StoredEjection { since, until, reason: "timeout".to_owned() };
    store.change_account(context, "mine", AccountChange::SetEjection(Some(ejection))).await.unwrap();
    trail.expect("change_account", &[]).await;
    step!(trail, "change_account", ["account.enable"], store.change_account(context, "mine", AccountChange::Enable));
    step!(trail, "delete_account", ["account.delete"], store.delete_account(context, "mine"));
}

#[tokio::test]
async fn a_change_without_effect_leaves_no_row() {
    let (_dir, store) = new_store().await;
    let context = &AuditContext::command();
    let row = add_key(&*store, "one").await;
    let count =
        async || store.list_audit_page(&AuditFilter { limit: 1, ..AuditFilter::default() }).await.unwrap().total;
    let before = count().await;
    let same = [KeyChange::Enable, KeyChange::Rename(row.name.clone()), KeyChange::Expire(row.expires_at)];
    store.change_key(context, row.id.as_str(), None, &same).await.unwrap();
    store.change_user(context, "ada", &[UserChange::Enable, UserChange::Role(UserRole::Member)]).await.unwrap();
    store.ensure_user(context, "ada").await.unwrap();
    store.ensure_group(context, "default").await.unwrap();
    assert!(store.change_key(context, "nothing", None, &[KeyChange::Delete]).await.unwrap().done().is_none());
    assert_eq!(count().await, before);
}

#[tokio::test]
async fn the_rows_of_refused_sign_ins_are_limited_for_each_day() {
    let (_dir, store) = new_store().await;
    let context = |text: &str| AuditContext { at: text.parse().unwrap(), ..AuditContext::command() };
    let ada = store.ensure_user(&context("2026-11-01T00:00:00Z"), "ada").await.unwrap();
    let rows = async |target: Option<&str>| {
        let filter = AuditFilter { action: Some("session.refuse".to_owned()), limit: 1, ..AuditFilter::default() };
        let filter = AuditFilter { target: target.map(str::to_owned), ..filter };
        i64::try_from(store.list_audit_page(&filter).await.unwrap().total).unwrap()
    };
    let day = context("2026-11-22T10:00:00Z");
    for _ in 0..UNKNOWN_USER_REFUSALS_PER_DAY + 20 {
        store.record_refused_sign_in(&day, None).await.unwrap();
    }
    assert_eq!(rows(None).await, UNKNOWN_USER_REFUSALS_PER_DAY);
    // Refused sign-ins with unknown names do not use up the limit of a user.
    for _ in 0..USER_REFUSALS_PER_DAY + 20 {
        store.record_refused_sign_in(&context("2026-11-22T11:00:00Z"), Some(&ada)).await.unwrap();
    }
    assert_eq!(rows(Some("ada")).await, USER_REFUSALS_PER_DAY);
    store.record_refused_sign_in(&context("2026-11-23T09:59:59Z"), None).await.unwrap();
    assert_eq!(rows(None).await, UNKNOWN_USER_REFUSALS_PER_DAY + USER_REFUSALS_PER_DAY);
    store.record_refused_sign_in(&context("2026-11-23T10:00:01Z"), None).await.unwrap();
    assert_eq!(rows(None).await, UNKNOWN_USER_REFUSALS_PER_DAY + USER_REFUSALS_PER_DAY + 1);
}

/// Rows can be removed only while the table `audit_removal` has a row, and only if they are older than the time in it.
#[tokio::test]
async fn only_rows_older_than_the_given_time_can_be_removed() {
    let (_dir, store) = new_store().await;
    store
        .ensure_user(&AuditContext { at: "2026-01-01T00:00:00Z".parse().unwrap(), ..AuditContext::command() }, "ada")
        .await
        .unwrap();
    let removed =
        store.remove_expired_rows(RetentionClass::Audit, "2026-01-01T00:00:00Z".parse().unwrap(), 10).await.unwrap();
    assert_eq!(removed, 0);
    sqlx::query("INSERT INTO audit_removal VALUES (1, '2026-01-01T00:00:00.000Z')")
        .execute(store.writer.sqlite())
        .await
        .unwrap();
    assert!(sqlx::query("DELETE FROM audit WHERE target_name = 'ada'").execute(store.writer.sqlite()).await.is_err());
    sqlx::query("DELETE FROM audit_removal").execute(store.writer.sqlite()).await.unwrap();
    assert_eq!(
        store
            .remove_expired_rows(RetentionClass::Audit, "2026-01-01T00:00:00.001Z".parse().unwrap(), 10)
            .await
            .unwrap(),
        1
    );
    store.ensure_user(&AuditContext::command(), "bob").await.unwrap();
    assert!(sqlx::query("DELETE FROM audit").execute(store.writer.sqlite()).await.is_err());
}

#[tokio::test]
async fn rows_of_the_trail_cannot_be_changed() {
    let (_dir, store) = new_store().await;
    store.ensure_user(&AuditContext::command(), "ada").await.unwrap();
    for statement in ["UPDATE audit SET actor_name = 'eve'", "DELETE FROM audit"] {
        assert!(sqlx::query(statement).execute(store.writer.sqlite()).await.is_err(), "{statement}");
    }
}
