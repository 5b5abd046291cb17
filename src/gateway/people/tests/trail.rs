//! Tests of the audit trail of users: its contents, and the secrets that must never be in it.

use super::*;
use crate::gateway::config::DialectSet;
use crate::gateway::keys::{ApiKeys, NewKey};
use crate::gateway::store::ActorKind;
use crate::gateway::store::InstallationStore as _;

#[tokio::test]
async fn a_row_has_actor_address_action_and_target() {
    let (fixture, issued) = Fixture::set_up().await;
    let actor = issued.session.actor.with_address("192.0.2.7".parse().unwrap());
    fixture.people.invite(&actor.audit_context(), new_user("bob", UserRole::Member, &[])).await.unwrap();
    let row = fixture.trail().await.pop().unwrap();
    let bob = fixture.people.find_user("bob").await.unwrap();
    assert_eq!(
        (row.actor_kind, row.actor_name.as_str(), row.address.as_deref()),
        (ActorKind::User, "ada", Some("192.0.2.7"))
    );
    assert_eq!(row.actor_id.as_deref(), Some(actor.user().unwrap().id.as_str()));
    assert_eq!((row.action.as_str(), row.target_kind.as_str()), ("user.invite", "user"));
    assert_eq!((row.target_id.as_deref(), row.target_name.as_deref()), (Some(bob.id.as_str()), Some("bob")));
    assert_eq!(row.details["role"], "member");
}

#[tokio::test]
async fn the_audit_trail_can_be_filtered_by_actor_action_and_target() {
    let (fixture, issued) = Fixture::set_up().await;
    let actor = issued.session.actor;
    fixture.people.invite(&actor.audit_context(), new_user("bob", UserRole::Member, &[])).await.unwrap();
    fixture.people.change_user(&AuditContext::command(), "bob", UserChange::Disable).await.unwrap();
    let find = async |filter: AuditFilter| {
        let page = fixture.people.audit_page(&AuditFilter { limit: 10, ..filter }).await.unwrap();
        assert_eq!(page.total, u64::try_from(page.items.len()).unwrap());
        page.items.into_iter().map(|row| row.action).collect::<Vec<_>>().join(" ")
    };
    let some = |text: &str| Some(text.to_owned());
    let find_by_actor = async |actor: &str| find(AuditFilter { actor: some(actor), ..AuditFilter::default() }).await;
    assert_eq!(find_by_actor("ada").await, "user.invite session.open setup.done");
    assert_eq!(find_by_actor(actor.user().unwrap().id.as_str()).await, "user.invite session.open setup.done");
    assert_eq!(
        (find_by_actor("command").await, find_by_actor("gateway").await),
        ("user.disable".to_owned(), "setup.link".to_owned())
    );
    let find_by_action =
        async |action: &str| find(AuditFilter { action: some(action), ..AuditFilter::default() }).await;
    assert_eq!(find_by_action("user").await, "user.disable user.invite");
    assert_eq!(find_by_action("user.invite").await, "user.invite");
    assert_eq!(find_by_action("use").await, "");
    let find_by_target =
        async |target: &str| find(AuditFilter { target: some(target), ..AuditFilter::default() }).await;
    assert_eq!(find_by_target("bob").await, "user.disable user.invite");

    let first = fixture.people.audit_page(&AuditFilter { limit: 2, ..AuditFilter::default() }).await.unwrap();
    assert!(first.has_more && first.total == 5);
    let filter = AuditFilter { before: first.items.last().map(|row| row.seq), limit: 3, ..AuditFilter::default() };
    let second = fixture.people.audit_page(&filter).await.unwrap();
    assert!(!second.has_more && second.items[0].action == "session.open");
}

#[tokio::test]
async fn an_unknown_name_is_not_recorded() {
    let (fixture, _) = Fixture::set_up().await;
    assert!(fixture.sign_in("my secret password", "ada", "192.0.2.1").await.is_err());
    assert!(fixture.sign_in("ada", "my secret password", "192.0.2.1").await.is_err());
    let rows = fixture.trail().await;
    let [.., unknown, known] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!(
        (unknown.action.as_str(), &unknown.target_name, unknown.actor_name.as_str()),
        ("session.refuse", &None, "somebody")
    );
    assert_eq!((known.action.as_str(), known.target_name.as_deref()), ("session.refuse", Some("ada")));
    assert!(!format!("{rows:?}").contains("secret"));
}

#[tokio::test]
async fn no_file_or_debug_output_holds_a_credential() {
    let (fixture, first) = Fixture::set_up().await;
    let audit = AuditContext::command();
    let ada = fixture.people.find_user("ada").await.unwrap();
    let (_, invitation) = fixture.people.invite(&audit, new_user("bob", UserRole::Member, &[])).await.unwrap();
    let (token, secret) = fixture.people.create_token(&audit, &ada, new_token("ci", None)).await.unwrap();
    let keys = ApiKeys::new(&(Arc::clone(&fixture.store) as _), Pepper::new(fixture.store.pepper_key()));
    let new_key = NewKey {
        name: "k",
        user: &ada,
        group: "default",
        expires_at: None,
        limits: None,
        dialects: DialectSet::default(),
        max_keys: None,
    };
    let key = keys.create(&audit, new_key).await.unwrap();
    let rotated = keys.rotate(&audit, key.row.id.as_str(), None, Duration::from_secs(60)).await.unwrap();
    let second = fixture.sign_in("ada", PASSWORD, "192.0.2.1").await.unwrap();
    let rows = fixture.trail().await;
    let secrets = [
        PASSWORD,
        first.cookie.expose(),
        second.cookie.expose(),
        &second.session.csrf,
        invitation.token.expose(),
        &secret.expose()[20..],
        &key.secret.expose()[20..],
        &rotated.secret.expose()[20..],
    ];
    let debug_output = format!("{first:?} {invitation:?} {token:?} {secret:?} {key:?} {rows:?} {ada:?}");
    let mut bytes = debug_output.into_bytes();
    for entry in std::fs::read_dir(fixture.dir.path()).unwrap() {
        bytes.extend(std::fs::read(entry.unwrap().path()).unwrap());
    }
    let contains = |part: &str| bytes.windows(part.len()).any(|window| window == part.as_bytes());
    for secret in secrets {
        assert!(!contains(secret));
    }
    assert!(
        contains("$argon2id$") && contains(key.secret.public_id().as_str()),
        "the search finds text that is present"
    );
}
