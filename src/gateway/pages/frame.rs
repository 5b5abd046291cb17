//! What every page has around its own matter: language, theme, who is signed in, where one is, and what was just done.

use super::assets::{LINKS, Links};
use super::format::Number;
use super::language::{Language, Texts};

/// Light or dark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Theme {
    /// As the device says.
    Auto,
    Light,
    Dark,
}

/// Whoever is signed in, as the frame shows them.
#[derive(Debug, Clone)]
pub(super) struct Who {
    pub(super) name: String,
    pub(super) is_admin: bool,
}

/// Something said above a page.
#[derive(Debug, Clone)]
pub(super) struct Notice {
    /// `good`, `warn` or `bad`.
    pub(super) kind: &'static str,
    pub(super) text: String,
}

/// The frame of one page.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) texts: Texts,
    pub(super) language: Language,
    pub(super) theme: Theme,
    pub(super) links: &'static Links,
    pub(super) who: Option<Who>,
    /// The token of the forms on this page.
    pub(super) csrf: String,
    /// Where a change of language or theme comes back to; without one there is no such change on this page.
    pub(super) back: Option<String>,
    pub(super) notice: Option<Notice>,
    /// The section, by the first segment of its path.
    pub(super) here: &'static str,
}

/// One entry of the navigation.
pub(super) struct NavItem {
    pub(super) path: &'static str,
    pub(super) icon: &'static str,
    pub(super) label: &'static str,
    pub(super) is_here: bool,
    /// Whether it is the first of those for admins.
    pub(super) begins_admin: bool,
}

/// Path, section and text; the last ones are for admins.
const NAV: [(&str, &str, &str); 8] = [
    ("/start", "start", "nav.start"),
    ("/keys", "keys", "nav.keys"),
    ("/usage", "usage", "nav.usage"),
    ("/records", "records", "nav.records"),
    ("/people", "people", "nav.people"),
    ("/groups", "groups", "nav.groups"),
    ("/accounts", "accounts", "nav.accounts"),
    ("/audit", "audit", "nav.audit"),
];
const NAV_FOR_ALL: usize = 4;

// === impl Theme ===

impl Theme {
    /// In the order in which they are offered.
    pub(super) const ALL: [Self; 3] = [Self::Auto, Self::Light, Self::Dark];

    /// By its code; [`Theme::Auto`] for whatever is none.
    pub(super) fn of(code: Option<&str>) -> Self {
        Self::ALL.into_iter().find(|theme| Some(theme.code()) == code).unwrap_or(Self::Auto)
    }

    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Auto => "preferences.auto",
            Self::Light => "preferences.light",
            Self::Dark => "preferences.dark",
        }
    }

    pub(super) fn forced(self) -> Option<&'static str> {
        (self != Self::Auto).then(|| self.code())
    }
}

// === impl Notice ===

impl Notice {
    pub(super) fn icon(&self) -> &'static str {
        if self.kind == "good" { "tick" } else { "warn" }
    }
}

// === impl Page ===

impl Page {
    /// The frame of a page without anybody signed in and without forms.
    pub(super) fn bare(language: Language, theme: Theme) -> Self {
        Self {
            texts: Texts(language),
            language,
            theme,
            links: &LINKS,
            who: None,
            csrf: String::new(),
            back: None,
            notice: None,
            here: "",
        }
    }

    pub(super) fn of<'k>(&self, key: &'k str) -> &'k str {
        self.texts.of(key)
    }

    pub(super) fn put(&self, key: &str, place: &str, value: impl std::fmt::Display) -> String {
        self.texts.put(key, place, value)
    }

    pub(super) fn count(&self, key: &str, number: impl Number) -> String {
        self.texts.count(key, number.count())
    }

    pub(super) fn is_admin(&self) -> bool {
        self.who.as_ref().is_some_and(|who| who.is_admin)
    }

    pub(super) fn is_here(&self, section: &str) -> bool {
        self.here == section
    }

    pub(super) fn nav(&self) -> Vec<NavItem> {
        let offered = if self.is_admin() { &NAV[..] } else { &NAV[..NAV_FOR_ALL] };
        let item = |(at, (path, section, label)): (usize, &(&'static str, &'static str, &'static str))| NavItem {
            path,
            icon: section,
            label,
            is_here: self.here == *section,
            begins_admin: at == NAV_FOR_ALL,
        };
        offered.iter().enumerate().map(item).collect()
    }
}
