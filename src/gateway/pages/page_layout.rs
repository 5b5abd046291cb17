//! The layout of every page: language, theme, signed-in user, section, and a notice about a completed change.

use super::assets::{AssetLinks, LINKS};
use super::format::CountValue;
use super::language::{Language, PageTexts};
use crate::words::word_enum;

word_enum! {
    /// The color theme.
    pub(super) enum Theme {
        /// The setting of the device.
        Auto = "auto",
        Light = "light",
        Dark = "dark",
    }
}

/// The signed-in user as the layout shows it.
#[derive(Debug, Clone)]
pub(super) struct SignedInUser {
    pub(super) name: String,
    pub(super) is_admin: bool,
}

/// A notice above a page.
#[derive(Debug, Clone)]
pub(super) struct PageNotice {
    /// `good`, `warn` or `bad`.
    pub(super) kind: &'static str,
    pub(super) text: String,
}

/// The layout of one page.
#[derive(Debug)]
pub(super) struct PageLayout {
    pub(super) texts: PageTexts,
    pub(super) language: Language,
    pub(super) theme: Theme,
    pub(super) links: &'static AssetLinks,
    pub(super) user: Option<SignedInUser>,
    /// The CSRF token of the forms on this page; empty if it has no forms.
    pub(super) csrf: String,
    /// The path to return to after a change of language or theme; if there is none, the page does not offer the change.
    pub(super) back: Option<String>,
    pub(super) notice: Option<PageNotice>,
    /// The section of the page, usually the first segment of its path; empty for pages outside the sections, such as
    /// sign-in and errors.
    pub(super) section: &'static str,
}

/// One entry of the navigation.
pub(super) struct NavItem {
    pub(super) path: &'static str,
    pub(super) icon: &'static str,
    pub(super) label: &'static str,
    pub(super) is_current: bool,
    /// True if the entry is the first of those for admins.
    pub(super) begins_admin: bool,
}

/// The entries of the navigation: path, section, and key of the text. The last entries are for admins.
const NAV: [(&str, &str, &str); 12] = [
    ("/studio", "playground", "nav.playground"),
    ("/start", "start", "nav.start"),
    ("/keys", "keys", "nav.keys"),
    ("/usage", "usage", "nav.usage"),
    ("/records", "records", "nav.records"),
    ("/docs", "docs", "nav.docs"),
    ("/people", "people", "nav.people"),
    ("/groups", "groups", "nav.groups"),
    ("/accounts", "accounts", "nav.accounts"),
    ("/prices", "prices", "nav.prices"),
    ("/alerts", "alerts", "nav.alerts"),
    ("/audit", "audit", "nav.audit"),
];
/// The number of entries that all users see.
const NAV_FOR_ALL: usize = 6;
/// The entries for visitors who are not signed in, on pages that need no session.
const NAV_FOR_VISITORS: [(&str, &str, &str); 2] =
    [("/docs", "docs", "nav.docs"), ("/sign-in", "profile", "nav.sign_in")];

// === impl Theme ===

impl Theme {
    /// The theme with this code; [`Theme::Auto`] for any other text.
    pub(super) fn from_code_or_auto(code: Option<&str>) -> Self {
        code.and_then(|code| code.parse().ok()).unwrap_or(Self::Auto)
    }

    /// The key of the text for the theme.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Auto => "preferences.auto",
            Self::Light => "preferences.light",
            Self::Dark => "preferences.dark",
        }
    }

    /// The code of the theme, unless it is [`Theme::Auto`].
    pub(super) fn forced(self) -> Option<&'static str> {
        (self != Self::Auto).then(|| self.as_str())
    }
}

// === impl PageNotice ===

impl PageNotice {
    pub(super) fn icon(&self) -> &'static str {
        if self.kind == "good" { "tick" } else { "warn" }
    }
}

// === impl PageLayout ===

impl PageLayout {
    /// The layout of a page without a signed-in user and without forms.
    pub(super) fn bare(language: Language, theme: Theme) -> Self {
        Self {
            texts: PageTexts(language),
            language,
            theme,
            links: &LINKS,
            user: None,
            csrf: String::new(),
            back: None,
            notice: None,
            section: "",
        }
    }

    /// The text of a key.
    pub(super) fn text<'k>(&self, key: &'k str) -> &'k str {
        self.texts.get(key)
    }

    /// The text of a key, in which a value replaces the placeholder.
    pub(super) fn text_with(&self, key: &str, placeholder: &str, value: impl std::fmt::Display) -> String {
        self.texts.get_with(key, placeholder, value)
    }

    /// The text of a key for a number, in the singular or plural, in which the number replaces `{n}`.
    pub(super) fn count(&self, key: &str, number: impl CountValue) -> String {
        self.texts.count(key, number.count())
    }

    pub(super) fn is_admin(&self) -> bool {
        self.user.as_ref().is_some_and(|user| user.is_admin)
    }

    pub(super) fn is_in_section(&self, section: &str) -> bool {
        self.section == section
    }

    /// The entries of the navigation for the signed-in user or the visitor.
    pub(super) fn nav(&self) -> Vec<NavItem> {
        let entries = match &self.user {
            None => &NAV_FOR_VISITORS[..],
            Some(_) if self.is_admin() => &NAV[..],
            Some(_) => &NAV[..NAV_FOR_ALL],
        };
        let item = |(index, (path, section, label)): (usize, &(&'static str, &'static str, &'static str))| NavItem {
            path,
            icon: section,
            label,
            is_current: self.section == *section,
            begins_admin: index == NAV_FOR_ALL,
        };
        entries.iter().enumerate().map(item).collect()
    }
}
