//! Tests of keys: which requests are authenticated, the number of queries, and changes to keys.

mod double;
mod key_cache;
mod refusals;

use std::sync::atomic::Ordering;

use tempfile::TempDir;

use super::*;
use crate::gateway::names::MAX_NAME_CHARS;
use crate::gateway::store::testing::new_store;
use crate::gateway::store::{
    GroupStore as _, InstallationStore as _, PepperKey, SqlStore, UserChange, UserChangeOutcome, UserStore as _,
};
use double::KeyStoreDouble;

struct Fixture {
    keys: ApiKeys,
    store: Arc<KeyStoreDouble>,
    sqlite: Arc<SqlStore>,
    dir: TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let (dir, sqlite) = new_store().await;
        let store = KeyStoreDouble::wrapping(&sqlite);
        let pepper = Pepper::new(sqlite.pepper_key());
        let keys = ApiKeys::with_stores(Arc::clone(&store) as _, Arc::clone(&sqlite) as _, pepper);
        Self { keys, store, sqlite, dir }
    }

    async fn create(&self) -> IssuedKey {
        self.keys.create_for_test("laptop", "ada", "default").await
    }

    async fn authenticate(&self, header: &str) -> Result<Caller, AuthenticationError> {
        self.keys.authenticate(Some(header.as_bytes()), &GroupPolicies::for_test()).await
    }

    async fn is_invalid(&self, header: &str) -> bool {
        matches!(self.authenticate(header).await, Err(AuthenticationError::Invalid))
    }

    async fn change(&self, key: &KeyId, change: KeyChange) -> Result<KeyRow, KeyError> {
        self.keys.change(&AuditContext::command(), key.as_str(), None, change).await
    }

    fn refreshes(&self) -> usize {
        self.store.refreshes.load(Ordering::Relaxed)
    }

    fn calls(&self) -> usize {
        self.store.calls.load(Ordering::Relaxed)
    }
}

fn header(created: &IssuedKey) -> String {
    format!("Bearer {}", created.secret.expose())
}

#[tokio::test]
async fn a_new_key_authenticates_its_owner() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let caller = fixture.authenticate(&header(&created)).await.unwrap();
    assert_eq!((caller.key(), caller.user()), (&created.row.id, &created.row.user));
    assert_eq!(caller.public_id(), &created.secret.public_id());
    assert_eq!(caller.group_name(), "default");
}

#[tokio::test]
async fn the_scheme_is_case_insensitive_and_extra_spaces_are_allowed() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let secret = created.secret.expose();
    for header in [format!("bearer {secret}"), format!("BEARER   {secret} "), format!(" Bearer\t{secret}\t")] {
        assert!(fixture.authenticate(&header).await.is_ok(), "{header:?}");
    }
}

#[tokio::test]
async fn a_malformed_key_is_refused_without_a_query() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let secret = created.secret.expose();
    let second = fixture.create().await;
    let calls_before = fixture.calls();
    let headers = [
        String::new(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        secret.to_owned(),
        format!("Basic {secret}"),
        format!("Bearer{secret}"),
        format!("Bearer {secret}, Bearer {secret}"),
        format!("Bearer {secret} {}", second.secret.expose()),
        format!("Bearer {}", &secret[..secret.len() - 1]),
        format!("Bearer {}", secret.to_lowercase()),
        format!("Bearer {}", secret.replacen("sk-img-", "sk-proj", 1)),
        format!("Bearer {secret}' OR '1'='1"),
        "Bearer eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl".to_owned(),
        format!("Bearer {}", "x".repeat(1 << 20)),
    ];
    for header in headers {
        assert!(fixture.is_invalid(&header).await, "{header:.80}");
    }
    assert!(matches!(
        fixture.keys.authenticate(None, &GroupPolicies::for_test()).await,
        Err(AuthenticationError::Invalid)
    ));
    assert!(matches!(
        fixture.keys.authenticate(Some(b"Bearer \xff\xfe\x00"), &GroupPolicies::for_test()).await,
        Err(AuthenticationError::Invalid)
    ));
    assert_eq!(fixture.calls(), calls_before);
}

#[tokio::test]
async fn an_unknown_well_formed_key_is_refused() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let unknown = BearerSecret::generate(BearerSecretKind::Key).unwrap();
    assert!(fixture.is_invalid(&format!("Bearer {}", unknown.expose())).await);

    // The public id of a valid key, with another secret.
    let forged = with_public_id(&unknown, &created.secret);
    assert!(BearerSecret::parse(BearerSecretKind::Key, forged.as_bytes()).is_some());
    assert!(fixture.is_invalid(&format!("Bearer {forged}")).await);
}

/// A well-formed key with the secret of the first key and the public id of the second.
fn with_public_id(secret: &BearerSecret, id_source: &BearerSecret) -> String {
    let body = format!("{}{}", &id_source.expose()[..20], &secret.expose()[20..52]);
    format!("{body}{}", BearerSecret::checksum_of(&body))
}

#[tokio::test]
async fn a_disabled_or_deleted_key_is_refused() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let header = header(&created);

    fixture.change(&created.row.id, KeyChange::Disable).await.unwrap();
    assert!(fixture.is_invalid(&header).await);
    fixture.change(&created.row.id, KeyChange::Enable).await.unwrap();
    assert!(fixture.authenticate(&header).await.is_ok());
    fixture.change(&created.row.id, KeyChange::Delete).await.unwrap();
    assert!(fixture.is_invalid(&header).await);

    assert!(matches!(fixture.change(&created.row.id, KeyChange::Enable).await, Err(KeyError::Unknown)));
    assert!(matches!(fixture.change(&"key_nobody".into(), KeyChange::Disable).await, Err(KeyError::Unknown)));
    assert!(fixture.sqlite.list_keys().await.unwrap().is_empty());
}

fn entry(keys: &ApiKeys, secret: &BearerSecret) -> KeyCacheEntry {
    KeyCacheEntry {
        id: "key_1".into(),
        user: "usr_1".into(),
        group_name: "default".into(),
        hash: keys.pepper.hash(secret),
        previous_hash: None,
        expires_at: None,
        refused: false,
        limits: None,
        user_limits: None,
        dialects: DialectSet::default(),
        last_noted_use: super::key_cache::LastNotedUse::default(),
    }
}

#[tokio::test]
async fn a_key_is_valid_until_it_expires() {
    let timestamp = |text: &str| text.parse::<Timestamp>().unwrap();
    let Fixture { keys, .. } = Fixture::new().await;
    let secret = BearerSecret::generate(BearerSecretKind::Key).unwrap();
    let key = KeyCacheEntry { expires_at: Some(timestamp("2026-06-01T00:00:00Z")), ..entry(&keys, &secret) };
    assert!(is_valid(&key, timestamp("2026-05-31T23:59:59.999Z")));
    assert!(!is_valid(&key, timestamp("2026-06-01T00:00:00Z")));
    assert!(!is_valid(&KeyCacheEntry { refused: true, ..key }, timestamp("2026-05-31T00:00:00Z")));
}

#[tokio::test]
async fn the_former_secret_is_valid_during_the_grace_period() {
    let timestamp = |text: &str| text.parse::<Timestamp>().unwrap();
    let Fixture { keys, .. } = Fixture::new().await;
    let [old, new] = [0; 2].map(|_| BearerSecret::generate(BearerSecretKind::Key).unwrap());
    let valid_until = timestamp("2026-06-01T00:00:00Z");
    let key = KeyCacheEntry { previous_hash: Some((keys.pepper.hash(&old), valid_until)), ..entry(&keys, &new) };
    for (secret, now, expected) in [
        (&old, "2026-05-31T23:59:59.999Z", true),
        (&old, "2026-06-01T00:00:00Z", false),
        (&new, "2026-05-31T23:59:59.999Z", true),
        (&new, "2026-06-01T00:00:00Z", true),
    ] {
        assert_eq!(keys.matches_secret(secret, &key, timestamp(now)), expected, "{now}");
    }
}

#[tokio::test]
async fn a_rotated_key_has_two_secrets_during_the_grace_period() {
    let fixture = Fixture::new().await;
    let first = fixture.create().await;
    let rotate = async |grace| {
        fixture
            .keys
            .rotate(&AuditContext::command(), first.row.id.as_str(), None, Duration::from_secs(grace))
            .await
            .unwrap()
    };
    let second = rotate(3600).await;
    assert_eq!((&second.row.id, second.secret.public_id()), (&first.row.id, first.secret.public_id()));
    assert!(second.row.previous_until.is_some() && second.secret.expose() != first.secret.expose());
    for key in [&first, &second] {
        assert_eq!(fixture.authenticate(&header(key)).await.unwrap().key(), &first.row.id);
    }
    // A second rotation, without a grace period, ends both former secrets.
    let third = rotate(0).await;
    assert_eq!(third.row.previous_until, None);
    assert!(fixture.is_invalid(&header(&first)).await && fixture.is_invalid(&header(&second)).await);
    assert!(fixture.authenticate(&header(&third)).await.is_ok());

    let id = first.row.id.as_str();
    let too_long = LONGEST_GRACE + Duration::from_secs(1);
    let error = fixture.keys.rotate(&AuditContext::command(), id, None, too_long).await.unwrap_err();
    assert!(matches!(error, KeyError::InvalidField { field: "grace_seconds", .. }));
    let other_user = UserId::from("usr_2");
    let error = fixture.keys.rotate(&AuditContext::command(), id, Some(&other_user), Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, KeyError::Unknown));
    assert!(fixture.authenticate(&header(&third)).await.is_ok());
}

#[tokio::test]
async fn members_create_keys_only_in_their_groups() {
    let fixture = Fixture::new().await;
    let command = AuditContext::command();
    let ada = fixture.sqlite.ensure_user(&command, "ada").await.unwrap();
    fixture.sqlite.ensure_group(&command, "studio").await.unwrap();
    let by_ada = AuditContext { kind: ActorKind::User, user: Some(ada.id.clone()), ..AuditContext::command() };
    let by_admin = AuditContext { kind: ActorKind::User, user: Some("usr_admin".into()), ..AuditContext::command() };
    let create = async |audit: &AuditContext, user: &UserRow, group: &str| {
        let result = fixture
            .keys
            .create(
                audit,
                NewKey {
                    name: "k",
                    user,
                    group,
                    expires_at: None,
                    limits: None,
                    dialects: DialectSet::default(),
                    max_keys: None,
                },
            )
            .await;
        result.map(|key| key.row.group_name).map_err(|error| error.to_string())
    };
    let no_group = Err("the group does not exist".to_owned());
    assert_eq!(create(&by_ada, &ada, "default").await, Ok("default".to_owned()));
    assert_eq!(create(&by_ada, &ada, "studio").await, no_group);
    assert_eq!(create(&by_admin, &ada, "studio").await, Ok("studio".to_owned()));
    assert_eq!(create(&by_admin, &ada, "nowhere").await, no_group);
    assert_eq!(create(&command, &ada, "elsewhere").await, Ok("elsewhere".to_owned()));

    let groups = [UserChange::Groups(vec!["studio".to_owned()])];
    let UserChangeOutcome::Done(ada, _) = fixture.sqlite.change_user(&command, "ada", &groups).await.unwrap() else {
        panic!("ada was not changed")
    };
    assert_eq!(create(&by_ada, &ada, "studio").await, Ok("studio".to_owned()));
    assert_eq!(create(&by_ada, &ada, "default").await, no_group);
}

#[tokio::test]
async fn a_copied_key_row_is_not_accepted_in_another_installation() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let other_installation = ApiKeys::new(&(Arc::clone(&fixture.sqlite) as _), Pepper::new(&PepperKey::for_test(1)));
    let header = header(&created);
    assert!(matches!(
        other_installation.authenticate(Some(header.as_bytes()), &GroupPolicies::for_test()).await,
        Err(AuthenticationError::Invalid)
    ));
}

#[tokio::test]
async fn the_use_of_a_key_is_not_stored_for_every_request() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    for _ in 0..20 {
        fixture.authenticate(&header(&created)).await.unwrap();
    }
    while fixture.store.touches.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    assert!(fixture.sqlite.list_keys().await.unwrap()[0].last_used_at.is_some());
    assert_eq!(fixture.store.touches.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn uses_of_several_keys_share_a_commit() {
    let fixture = Fixture::new().await;
    let (first, second) = (fixture.create().await, fixture.create().await);
    for created in [&first, &second] {
        fixture.authenticate(&header(created)).await.unwrap();
    }
    while fixture.store.touches.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    assert!(fixture.sqlite.list_keys().await.unwrap().iter().all(|key| key.last_used_at.is_some()));
    assert_eq!(fixture.store.touches.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn no_file_or_debug_output_holds_a_secret() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let caller = fixture.authenticate(&header(&created)).await.unwrap();
    let rows = fixture.sqlite.list_keys().await.unwrap();
    let secret = &created.secret.expose()[20..];
    let debug_output =
        format!("{created:?} {caller:?} {rows:?} {:?} {:?}", fixture.sqlite.pepper_key(), fixture.keys.pepper);
    assert!(!debug_output.contains(secret));

    let mut searched_bytes = 0;
    for entry in std::fs::read_dir(fixture.dir.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        searched_bytes += bytes.len();
        assert!(!contains(&bytes, secret.as_bytes()));
        // The file also holds no plain digest, with which guesses could be tested without the pepper.
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, created.secret.expose().as_bytes());
        assert!(!contains(&bytes, digest.as_ref()));
    }
    // The search works: it finds the public id, which is stored as text.
    let log = std::fs::read(fixture.dir.path().join("imagate.db-wal")).unwrap();
    assert!(contains(&log, created.secret.public_id().as_str().as_bytes()) && searched_bytes > log.len());
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn invalid_key_properties_are_refused_before_anything_is_stored() {
    let fixture = Fixture::new().await;
    let audit = AuditContext::command();
    let user = fixture.sqlite.ensure_user(&audit, "ada").await.unwrap();
    let disabled = UserRow { disabled_at: Some(audit.at), ..user.clone() };
    let long_name = "x".repeat(MAX_NAME_CHARS + 1);
    let (calls_before, groups_before) = (fixture.calls(), fixture.sqlite.list_groups().await.unwrap());
    let new_key = |name, group, expires_at| NewKey {
        name,
        user: &user,
        group,
        expires_at,
        limits: None,
        dialects: DialectSet::default(),
        max_keys: None,
    };
    for (new_key, expected_field) in [
        (new_key("", "b", None), "name"),
        (new_key("a\n", "b", None), "name"),
        (new_key("a\u{202e}b", "b", None), "name"),
        (new_key("a", "\u{200b}", None), "group"),
        (new_key("a", &long_name, None), "group"),
        (new_key("a", " ", None), "group"),
        (new_key("a", "b", Some(audit.at)), "expires_at"),
        (NewKey { user: &disabled, ..new_key("a", "b", None) }, "user"),
    ] {
        let error = fixture.keys.create(&audit, new_key).await.unwrap_err();
        assert!(matches!(error, KeyError::InvalidField { field, .. } if field == expected_field), "{error:?}");
    }
    for (change, expected_field) in
        [(KeyChange::Rename(long_name), "name"), (KeyChange::Expire(Some(audit.at)), "expires_at")]
    {
        let error = fixture.keys.change(&audit, "key_1", None, change).await.unwrap_err();
        assert!(matches!(error, KeyError::InvalidField { field, .. } if field == expected_field), "{error:?}");
    }
    assert_eq!(fixture.calls(), calls_before);
    assert_eq!(fixture.sqlite.list_groups().await.unwrap(), groups_before);
}

#[tokio::test]
async fn an_owner_finds_a_valid_key_without_its_secret_and_only_a_request_uses_it() {
    let fixture = Fixture::new().await;
    let created = fixture.create().await;
    let (id, policies) = (created.secret.public_id(), GroupPolicies::for_test());
    let find = async |owner: &UserId| fixture.keys.find_caller(&id, owner, &policies).await.unwrap();
    let caller = find(&created.row.user).await.unwrap();
    assert_eq!((caller.key(), caller.user()), (&created.row.id, &created.row.user));
    assert!(find(&UserId::from("usr_2")).await.is_none(), "another user");
    assert!(fixture.keys.unwritten_uses.lock().unwrap().is_empty(), "a look is no use");
    fixture.keys.note_request(&caller);
    assert_eq!(fixture.keys.unwritten_uses.lock().unwrap().first(), Some(&created.row.id));
    fixture.change(&created.row.id, KeyChange::Disable).await.unwrap();
    assert!(find(&created.row.user).await.is_none(), "a disabled key");
}
