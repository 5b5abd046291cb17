//! Which page stands at which path.

use http::Method;
use percent_encoding::percent_decode_str;

use super::desk::Desk;
use super::failure::Failure;
use super::visit::Shown;
use super::{
    accounts, audit, door, group, groups, key, keys, people, person, preferences, profile, records, start, usage,
};

/// One page, or one form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Root,
    Asset(String),
    SignIn,
    SendSignIn,
    SignOut,
    Setup(String),
    SendSetup(String),
    Invitation(String),
    SendInvitation(String),
    Preferences,
    Start,
    Keys,
    CreateKey,
    Key(String),
    KeyAct(String, KeyAct),
    DeleteKey(String),
    Usage,
    UsageTable,
    Records,
    RecordsTable,
    Record(String),
    People,
    Invite,
    Person(String),
    PersonAct(String, PersonAct),
    Groups,
    CreateGroup,
    Group(String),
    ChangeGroup(String),
    DeleteGroup(String),
    Accounts,
    AccountAct(String, bool),
    Audit,
    Profile,
    Password,
    SignOutEverywhere,
    CreateToken,
    RevokeToken(String),
}

/// What a form does with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyAct {
    Disable,
    Enable,
    Change,
    Rotate,
    Delete,
}

/// What a form does with a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PersonAct {
    Change,
    Disable,
    Enable,
    Reset,
    SignOut,
}

/// What stands at a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Here(Target),
    /// Something, for these methods.
    OtherMethod(&'static str),
    Nothing,
}

/// Looks a path up.
pub(super) fn find(method: &Method, path: &str) -> Found {
    let Some(path) = path.strip_prefix('/') else { return Found::Nothing };
    let segments: Option<Vec<String>> = path
        .split('/')
        .map(|segment| percent_decode_str(segment).decode_utf8().ok().map(std::borrow::Cow::into_owned))
        .collect();
    let Some(segments) = segments else { return Found::Nothing };
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (shown, sent) = (shown(&segments), sent(&segments));
    let target = match *method {
        Method::GET | Method::HEAD => shown.clone(),
        Method::POST => sent.clone(),
        _ => None,
    };
    match (target, shown, sent) {
        (Some(target), _, _) => Found::Here(target),
        (None, None, None) => Found::Nothing,
        (None, Some(_), None) => Found::OtherMethod("GET, HEAD"),
        (None, None, Some(_)) => Found::OtherMethod("POST"),
        (None, Some(_), Some(_)) => Found::OtherMethod("GET, HEAD, POST"),
    }
}

/// What is shown there.
fn shown(segments: &[&str]) -> Option<Target> {
    Some(match *segments {
        [""] => Target::Root,
        ["assets", name] => Target::Asset(name.to_owned()),
        ["sign-in"] => Target::SignIn,
        ["setup", link] => Target::Setup(link.to_owned()),
        ["invitation", link] => Target::Invitation(link.to_owned()),
        ["start"] => Target::Start,
        ["keys"] => Target::Keys,
        ["keys", key] if !key.is_empty() => Target::Key(key.to_owned()),
        ["keys", key, "delete"] => Target::DeleteKey(key.to_owned()),
        ["usage"] => Target::Usage,
        ["usage.csv"] => Target::UsageTable,
        ["records"] => Target::Records,
        ["records.csv"] => Target::RecordsTable,
        ["records", record] if !record.is_empty() => Target::Record(record.to_owned()),
        ["people"] => Target::People,
        ["people", user] if !user.is_empty() => Target::Person(user.to_owned()),
        ["groups"] => Target::Groups,
        ["groups", group] if !group.is_empty() => Target::Group(group.to_owned()),
        ["accounts"] => Target::Accounts,
        ["audit"] => Target::Audit,
        ["profile"] => Target::Profile,
        _ => return None,
    })
}

/// What takes a form there.
fn sent(segments: &[&str]) -> Option<Target> {
    Some(match *segments {
        ["sign-in"] => Target::SendSignIn,
        ["sign-out"] => Target::SignOut,
        ["setup", link] => Target::SendSetup(link.to_owned()),
        ["invitation", link] => Target::SendInvitation(link.to_owned()),
        ["preferences"] => Target::Preferences,
        ["keys"] => Target::CreateKey,
        ["keys", key, act] => Target::KeyAct(key.to_owned(), key_act(act)?),
        ["people"] => Target::Invite,
        ["people", user, act] => Target::PersonAct(user.to_owned(), person_act(act)?),
        ["groups"] => Target::CreateGroup,
        ["groups", group, "change"] => Target::ChangeGroup(group.to_owned()),
        ["groups", group, "delete"] => Target::DeleteGroup(group.to_owned()),
        ["accounts", account, "disable"] => Target::AccountAct(account.to_owned(), false),
        ["accounts", account, "enable"] => Target::AccountAct(account.to_owned(), true),
        ["profile", "password"] => Target::Password,
        ["profile", "sign-out"] => Target::SignOutEverywhere,
        ["profile", "tokens"] => Target::CreateToken,
        ["profile", "tokens", token, "revoke"] => Target::RevokeToken(token.to_owned()),
        _ => return None,
    })
}

fn key_act(word: &str) -> Option<KeyAct> {
    Some(match word {
        "disable" => KeyAct::Disable,
        "enable" => KeyAct::Enable,
        "change" => KeyAct::Change,
        "rotate" => KeyAct::Rotate,
        "delete" => KeyAct::Delete,
        _ => return None,
    })
}

fn person_act(word: &str) -> Option<PersonAct> {
    Some(match word {
        "change" => PersonAct::Change,
        "disable" => PersonAct::Disable,
        "enable" => PersonAct::Enable,
        "reset" => PersonAct::Reset,
        "sign-out" => PersonAct::SignOut,
        _ => return None,
    })
}

/// Goes there.
pub(super) async fn serve(desk: &Desk<'_>, target: Target) -> Result<Shown, Failure> {
    match target {
        Target::Root => Ok(Shown::see("/keys")),
        Target::Asset(_) => Err(Failure::NotFound),
        Target::SignIn => Ok(door::sign_in(desk)),
        Target::SendSignIn => door::send_sign_in(desk).await,
        Target::SignOut => door::sign_out(desk).await,
        Target::Setup(link) => door::setup(desk, &link).await,
        Target::SendSetup(link) => door::send_setup(desk, &link).await,
        Target::Invitation(link) => door::invitation(desk, &link).await,
        Target::SendInvitation(link) => door::send_invitation(desk, &link).await,
        Target::Preferences => Ok(preferences::change(desk)),
        target => {
            if desk.session.is_none() {
                return Err(Failure::See(desk.to_sign_in()));
            }
            serve_signed(desk, target).await
        }
    }
}

/// Goes where only somebody who has signed in can go.
async fn serve_signed(desk: &Desk<'_>, target: Target) -> Result<Shown, Failure> {
    match target {
        Target::Start => start::show(desk).await,
        Target::Keys => keys::show(desk).await,
        Target::CreateKey => keys::create(desk).await,
        Target::Key(id) => key::show(desk, &id).await,
        Target::KeyAct(id, act) => key::act(desk, &id, act).await,
        Target::DeleteKey(id) => key::ask_delete(desk, &id).await,
        Target::Usage => usage::show(desk).await,
        Target::UsageTable => usage::table(desk).await,
        Target::Records => records::show(desk).await,
        Target::RecordsTable => records::table(desk).await,
        Target::Record(id) => records::one(desk, &id).await,
        Target::People => people::show(desk).await,
        Target::Invite => people::invite(desk).await,
        Target::Person(id) => person::show(desk, &id).await,
        Target::PersonAct(id, act) => person::act(desk, &id, act).await,
        Target::Groups => groups::show(desk).await,
        Target::CreateGroup => groups::create(desk).await,
        Target::Group(name) => group::show(desk, &name).await,
        Target::ChangeGroup(name) => group::change(desk, &name).await,
        Target::DeleteGroup(name) => groups::delete(desk, &name).await,
        Target::Accounts => accounts::show(desk).await,
        Target::AccountAct(name, enabled) => accounts::change(desk, &name, enabled).await,
        Target::Audit => audit::show(desk).await,
        Target::Profile => profile::show(desk).await,
        Target::Password => profile::change_password(desk).await,
        Target::SignOutEverywhere => profile::sign_out_everywhere(desk).await,
        Target::CreateToken => profile::create_token(desk).await,
        Target::RevokeToken(id) => profile::revoke_token(desk, &id).await,
        _ => Err(Failure::NotFound),
    }
}

// === impl Target ===

impl Target {
    /// Whether it is for somebody who is not signed in: its forms are bound to a cookie of their own.
    pub(super) const fn is_door(&self) -> bool {
        matches!(
            self,
            Self::SignIn
                | Self::SendSignIn
                | Self::Setup(_)
                | Self::SendSetup(_)
                | Self::Invitation(_)
                | Self::SendInvitation(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_its_page_and_its_methods() {
        assert_eq!(find(&Method::GET, "/"), Found::Here(Target::Root));
        assert_eq!(find(&Method::HEAD, "/keys"), Found::Here(Target::Keys));
        assert_eq!(find(&Method::POST, "/keys"), Found::Here(Target::CreateKey));
        assert_eq!(find(&Method::GET, "/keys/a%20b"), Found::Here(Target::Key("a b".to_owned())));
        assert_eq!(find(&Method::GET, "/keys/a%2Fdelete"), Found::Here(Target::Key("a/delete".to_owned())));
        assert_eq!(find(&Method::PUT, "/keys"), Found::OtherMethod("GET, HEAD, POST"));
        assert_eq!(find(&Method::GET, "/sign-out"), Found::OtherMethod("POST"));
        assert_eq!(find(&Method::POST, "/usage"), Found::OtherMethod("GET, HEAD"));
        for nothing in ["/keys/", "/keys/a/b", "/nothing", "/keys/%ff", "keys", "/keys/a/rotate/b", "//keys"] {
            assert_eq!(find(&Method::GET, nothing), Found::Nothing, "{nothing}");
        }
    }
}
