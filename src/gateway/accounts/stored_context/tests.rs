use super::*;

const TODAY: &str = "2026-11-28";

fn part(name: &str, is_stored: bool) -> ContextPart {
    ContextPart { param: name.to_owned(), digest: BindingDigest::of_id(name), is_stored }
}

fn binding(name: &str, owner: &str, account: &str) -> AccountBinding {
    let (owner, account) = (owner.to_owned(), account.to_owned());
    AccountBinding { digest: BindingDigest::of_id(name), owner, account, used_on: TODAY.parse().unwrap() }
}

fn decide_for_me(
    parts: &[ContextPart],
    session: Option<&str>,
    bindings: &[AccountBinding],
    policy: StoredContextPolicy,
) -> Result<ServingAccounts, ContextRefusal> {
    let rules = ContextRules {
        policy: &|| policy,
        is_owner: &|owner| owner == "me",
        serves: &|account| account != "gone",
        today: TODAY.parse().unwrap(),
    };
    decide(parts, session.map(BindingDigest::of_id), bindings, &rules)
}

fn refusal(param: &str, is_gone: bool) -> Result<ServingAccounts, ContextRefusal> {
    Err(ContextRefusal { param: param.to_owned(), is_gone })
}

#[test]
fn what_belongs_to_another_user_is_refused_and_what_is_unknown_as_the_group_says() {
    let bindings = [binding("resp_eve", "eve", "a"), binding("resp_me", "me", "b"), binding("resp_old", "me", "gone")];
    for policy in [StoredContextPolicy::Any, StoredContextPolicy::Own] {
        let decide = |name, is_stored| decide_for_me(&[part(name, is_stored)], None, &bindings, policy);
        for is_stored in [true, false] {
            assert_eq!(decide("resp_eve", is_stored), refusal("resp_eve", false), "{policy:?}");
        }
        assert_eq!(decide("resp_me", true).unwrap().only.as_deref(), Some("b"));
        assert_eq!(decide("resp_old", true), refusal("resp_old", true));
        assert_eq!(decide("resp_old", false).unwrap().home, None, "the content may still be readable");
        assert_eq!(decide("rs_unknown", false).unwrap(), ServingAccounts::default());
    }
    let unknown = |policy| decide_for_me(&[part("resp_unknown", true)], None, &bindings, policy);
    assert_eq!(unknown(StoredContextPolicy::Any).unwrap(), ServingAccounts::default());
    assert_eq!(unknown(StoredContextPolicy::Own), refusal("resp_unknown", false));
}

#[test]
fn an_id_that_an_upstream_gives_to_two_users_belongs_to_both() {
    let bindings = [binding("resp_1", "me", "a"), binding("resp_1", "eve", "b")];
    let accounts = decide_for_me(&[part("resp_1", true)], None, &bindings, StoredContextPolicy::Own).unwrap();
    assert_eq!(accounts.only.as_deref(), Some("a"));
}

#[test]
fn the_newest_known_part_decides_before_the_conversation() {
    let bindings = [binding("rs_1", "me", "a"), binding("rs_2", "me", "b"), binding("s", "me", "c")];
    let parts = [part("rs_1", false), part("rs_2", false), part("rs_3", false)];
    let decide = |parts: &[ContextPart], bindings: &[AccountBinding]| {
        decide_for_me(parts, Some("s"), bindings, StoredContextPolicy::Own).unwrap().home
    };
    assert_eq!(decide(&parts, &bindings).as_deref(), Some("b"));
    assert_eq!(decide(&parts[..1], &bindings).as_deref(), Some("a"));
    assert_eq!(decide(&[], &bindings).as_deref(), Some("c"));
    assert_eq!(decide(&[], &[binding("s", "me", "gone")]), None);
    assert_eq!(decide(&[], &[binding("s", "eve", "c")]), None, "the conversation of another user");
}

#[test]
fn only_bindings_that_change_are_written() {
    let old = AccountBinding { used_on: "2026-11-27".parse().unwrap(), ..binding("rs_1", "me", "a") };
    let bindings = [old, binding("rs_2", "me", "a"), binding("s", "me", "a")];
    let parts = [part("rs_1", false), part("rs_2", false), part("rs_unknown", false)];
    let accounts = decide_for_me(&parts, Some("s"), &bindings, StoredContextPolicy::Own).unwrap();
    let written = |account| {
        let mut digests: Vec<_> = accounts.values_to_bind(Some(account)).cloned().collect();
        digests.sort_unstable();
        digests
    };
    let digests = |names: &[&str]| {
        let mut digests: Vec<_> = names.iter().map(|name| BindingDigest::of_id(name)).collect();
        digests.sort_unstable();
        digests
    };
    assert_eq!(written("a"), digests(&["rs_1"]), "the day of the last use");
    assert_eq!(written("b"), digests(&["rs_1", "rs_2", "s"]), "the conversation moves");
    let many: Vec<_> = (0..100).map(|number| part(&format!("m{number}"), false)).collect();
    let bindings: Vec<_> = many.iter().map(|part| binding(&part.param, "me", "b")).collect();
    let accounts = decide_for_me(&many, None, &bindings, StoredContextPolicy::Own).unwrap();
    assert_eq!(accounts.values_to_bind(Some("a")).count(), RENEWED_MAX);
}
