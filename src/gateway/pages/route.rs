//! The routes of the pages: the page at each path.

use http::Method;
use percent_encoding::percent_decode_str;

use super::desk::PageContext;
use super::failure::PageError;
use super::visit::PageResponse;
use super::{
    accounts, audit, door, group, groups, key, keys, people, person, preferences, profile, records, start, usage,
};

/// One page, or one form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PageRoute {
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
    KeyAct(String, KeyFormAction),
    DeleteKey(String),
    Usage,
    UsageTable,
    Records,
    RecordsTable,
    Record(String),
    People,
    Invite,
    Person(String),
    PersonAct(String, PersonFormAction),
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

/// The action of a form on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyFormAction {
    Disable,
    Enable,
    Change,
    Rotate,
    Delete,
}

/// The action of a form on a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PersonFormAction {
    Change,
    Disable,
    Enable,
    Reset,
    SignOut,
}

/// The result of looking up a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RouteMatch {
    Here(PageRoute),
    /// The path exists, for these methods.
    OtherMethod(&'static str),
    Nothing,
}

/// Looks up a path.
pub(super) fn find(method: &Method, path: &str) -> RouteMatch {
    let Some(path) = path.strip_prefix('/') else { return RouteMatch::Nothing };
    let segments: Option<Vec<String>> = path
        .split('/')
        .map(|segment| percent_decode_str(segment).decode_utf8().ok().map(std::borrow::Cow::into_owned))
        .collect();
    let Some(segments) = segments else { return RouteMatch::Nothing };
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (shown, sent) = (shown(&segments), sent(&segments));
    let target = match *method {
        Method::GET | Method::HEAD => shown.clone(),
        Method::POST => sent.clone(),
        _ => None,
    };
    match (target, shown, sent) {
        (Some(target), _, _) => RouteMatch::Here(target),
        (None, None, None) => RouteMatch::Nothing,
        (None, Some(_), None) => RouteMatch::OtherMethod("GET, HEAD"),
        (None, None, Some(_)) => RouteMatch::OtherMethod("POST"),
        (None, Some(_), Some(_)) => RouteMatch::OtherMethod("GET, HEAD, POST"),
    }
}

/// The page at a path.
fn shown(segments: &[&str]) -> Option<PageRoute> {
    Some(match *segments {
        [""] => PageRoute::Root,
        ["assets", name] => PageRoute::Asset(name.to_owned()),
        ["sign-in"] => PageRoute::SignIn,
        ["setup", link] => PageRoute::Setup(link.to_owned()),
        ["invitation", link] => PageRoute::Invitation(link.to_owned()),
        ["start"] => PageRoute::Start,
        ["keys"] => PageRoute::Keys,
        ["keys", key] if !key.is_empty() => PageRoute::Key(key.to_owned()),
        ["keys", key, "delete"] => PageRoute::DeleteKey(key.to_owned()),
        ["usage"] => PageRoute::Usage,
        ["usage.csv"] => PageRoute::UsageTable,
        ["records"] => PageRoute::Records,
        ["records.csv"] => PageRoute::RecordsTable,
        ["records", record] if !record.is_empty() => PageRoute::Record(record.to_owned()),
        ["people"] => PageRoute::People,
        ["people", user] if !user.is_empty() => PageRoute::Person(user.to_owned()),
        ["groups"] => PageRoute::Groups,
        ["groups", group] if !group.is_empty() => PageRoute::Group(group.to_owned()),
        ["accounts"] => PageRoute::Accounts,
        ["audit"] => PageRoute::Audit,
        ["profile"] => PageRoute::Profile,
        _ => return None,
    })
}

/// The form at a path.
fn sent(segments: &[&str]) -> Option<PageRoute> {
    Some(match *segments {
        ["sign-in"] => PageRoute::SendSignIn,
        ["sign-out"] => PageRoute::SignOut,
        ["setup", link] => PageRoute::SendSetup(link.to_owned()),
        ["invitation", link] => PageRoute::SendInvitation(link.to_owned()),
        ["preferences"] => PageRoute::Preferences,
        ["keys"] => PageRoute::CreateKey,
        ["keys", key, act] => PageRoute::KeyAct(key.to_owned(), key_act(act)?),
        ["people"] => PageRoute::Invite,
        ["people", user, act] => PageRoute::PersonAct(user.to_owned(), person_act(act)?),
        ["groups"] => PageRoute::CreateGroup,
        ["groups", group, "change"] => PageRoute::ChangeGroup(group.to_owned()),
        ["groups", group, "delete"] => PageRoute::DeleteGroup(group.to_owned()),
        ["accounts", account, "disable"] => PageRoute::AccountAct(account.to_owned(), false),
        ["accounts", account, "enable"] => PageRoute::AccountAct(account.to_owned(), true),
        ["profile", "password"] => PageRoute::Password,
        ["profile", "sign-out"] => PageRoute::SignOutEverywhere,
        ["profile", "tokens"] => PageRoute::CreateToken,
        ["profile", "tokens", token, "revoke"] => PageRoute::RevokeToken(token.to_owned()),
        _ => return None,
    })
}

fn key_act(word: &str) -> Option<KeyFormAction> {
    Some(match word {
        "disable" => KeyFormAction::Disable,
        "enable" => KeyFormAction::Enable,
        "change" => KeyFormAction::Change,
        "rotate" => KeyFormAction::Rotate,
        "delete" => KeyFormAction::Delete,
        _ => return None,
    })
}

fn person_act(word: &str) -> Option<PersonFormAction> {
    Some(match word {
        "change" => PersonFormAction::Change,
        "disable" => PersonFormAction::Disable,
        "enable" => PersonFormAction::Enable,
        "reset" => PersonFormAction::Reset,
        "sign-out" => PersonFormAction::SignOut,
        _ => return None,
    })
}

/// Serves a route.
pub(super) async fn serve(desk: &PageContext<'_>, target: PageRoute) -> Result<PageResponse, PageError> {
    match target {
        PageRoute::Root => Ok(PageResponse::see("/keys")),
        PageRoute::Asset(_) => Err(PageError::NotFound),
        PageRoute::SignIn => Ok(door::sign_in(desk)),
        PageRoute::SendSignIn => door::send_sign_in(desk).await,
        PageRoute::SignOut => door::sign_out(desk).await,
        PageRoute::Setup(link) => door::setup(desk, &link).await,
        PageRoute::SendSetup(link) => door::send_setup(desk, &link).await,
        PageRoute::Invitation(link) => door::invitation(desk, &link).await,
        PageRoute::SendInvitation(link) => door::send_invitation(desk, &link).await,
        PageRoute::Preferences => Ok(preferences::change(desk)),
        target => {
            if desk.session.is_none() {
                return Err(PageError::See(desk.to_sign_in()));
            }
            serve_signed(desk, target).await
        }
    }
}

/// Serves a route that requires a session.
async fn serve_signed(desk: &PageContext<'_>, target: PageRoute) -> Result<PageResponse, PageError> {
    match target {
        PageRoute::Start => start::show(desk).await,
        PageRoute::Keys => keys::show(desk).await,
        PageRoute::CreateKey => keys::create(desk).await,
        PageRoute::Key(id) => key::show(desk, &id).await,
        PageRoute::KeyAct(id, act) => key::act(desk, &id, act).await,
        PageRoute::DeleteKey(id) => key::ask_delete(desk, &id).await,
        PageRoute::Usage => usage::show(desk).await,
        PageRoute::UsageTable => usage::table(desk).await,
        PageRoute::Records => records::show(desk).await,
        PageRoute::RecordsTable => records::table(desk).await,
        PageRoute::Record(id) => records::one(desk, &id).await,
        PageRoute::People => people::show(desk).await,
        PageRoute::Invite => people::invite(desk).await,
        PageRoute::Person(id) => person::show(desk, &id).await,
        PageRoute::PersonAct(id, act) => person::act(desk, &id, act).await,
        PageRoute::Groups => groups::show(desk).await,
        PageRoute::CreateGroup => groups::create(desk).await,
        PageRoute::Group(name) => group::show(desk, &name).await,
        PageRoute::ChangeGroup(name) => group::change(desk, &name).await,
        PageRoute::DeleteGroup(name) => groups::delete(desk, &name).await,
        PageRoute::Accounts => accounts::show(desk).await,
        PageRoute::AccountAct(name, enabled) => accounts::change(desk, &name, enabled).await,
        PageRoute::Audit => audit::show(desk).await,
        PageRoute::Profile => profile::show(desk).await,
        PageRoute::Password => profile::change_password(desk).await,
        PageRoute::SignOutEverywhere => profile::sign_out_everywhere(desk).await,
        PageRoute::CreateToken => profile::create_token(desk).await,
        PageRoute::RevokeToken(id) => profile::revoke_token(desk, &id).await,
        _ => Err(PageError::NotFound),
    }
}

// === impl PageRoute ===

impl PageRoute {
    /// True for the routes of visitors without a session; their forms are bound to a cookie of their own.
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
        assert_eq!(find(&Method::GET, "/"), RouteMatch::Here(PageRoute::Root));
        assert_eq!(find(&Method::HEAD, "/keys"), RouteMatch::Here(PageRoute::Keys));
        assert_eq!(find(&Method::POST, "/keys"), RouteMatch::Here(PageRoute::CreateKey));
        assert_eq!(find(&Method::GET, "/keys/a%20b"), RouteMatch::Here(PageRoute::Key("a b".to_owned())));
        assert_eq!(find(&Method::GET, "/keys/a%2Fdelete"), RouteMatch::Here(PageRoute::Key("a/delete".to_owned())));
        assert_eq!(find(&Method::PUT, "/keys"), RouteMatch::OtherMethod("GET, HEAD, POST"));
        assert_eq!(find(&Method::GET, "/sign-out"), RouteMatch::OtherMethod("POST"));
        assert_eq!(find(&Method::POST, "/usage"), RouteMatch::OtherMethod("GET, HEAD"));
        for nothing in ["/keys/", "/keys/a/b", "/nothing", "/keys/%ff", "keys", "/keys/a/rotate/b", "//keys"] {
            assert_eq!(find(&Method::GET, nothing), RouteMatch::Nothing, "{nothing}");
        }
    }
}
