//! The accounts as a page for people: complete without a script, and nothing on it comes from elsewhere.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Console, Operator};
use crate::error::Error;
use crate::wire::admin::types;

const HEADINGS: [&str; 7] = ["Name", "Kind", "Tier", "Groups", "State", "Why", "Until"];

// === impl Console ===

impl Console {
    /// Every account with its state, and why it is out or rests.
    ///
    /// # Errors
    ///
    /// Where the store has trouble.
    pub(crate) async fn accounts_page(&self, operator: &Operator) -> Result<String, Error> {
        Ok(page(&self.list_accounts(operator).await?.data))
    }

    /// Checks what a browser sends: the admin token as the password of whatever user.
    ///
    /// # Errors
    ///
    /// As [`Console::admit`].
    pub(crate) fn admit_browser(&self, authorization: Option<&[u8]>) -> Result<Operator, Error> {
        let bearer = authorization.and_then(password).map(|token| [b"Bearer ", token.as_slice()].concat());
        self.admit(bearer.as_deref())
    }
}

/// The password of a `Basic` header.
fn password(header: &[u8]) -> Option<Vec<u8>> {
    let (scheme, encoded) = header.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let pair = STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

fn page(accounts: &[types::Account]) -> String {
    let mut rows = String::new();
    for account in accounts {
        let cells = cells(account).map(|text| format!("<td>{}</td>", escaped(&text))).concat();
        // Writing to a text cannot fail.
        let _ = writeln!(rows, "<tr>{cells}</tr>");
    }
    let headings = HEADINGS.map(|text| format!("<th scope=\"col\">{text}</th>")).concat();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Accounts - imagate</title>\n</head>\n<body>\n\
         <main>\n<h1>Accounts</h1>\n<table>\n<thead><tr>{headings}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n\
         </main>\n</body>\n</html>\n"
    )
}

fn cells(account: &types::Account) -> [String; HEADINGS.len()] {
    let why = account.disabled_reason.as_ref().or(account.cooling_cause.as_ref()).or(account.problem.as_ref());
    [
        account.name.clone(),
        account.kind.to_string(),
        account.tier.to_string(),
        account.groups.join(", "),
        account.state.to_string(),
        why.cloned().unwrap_or_default(),
        account.cooling_until.map(|until| until.to_rfc3339()).unwrap_or_default(),
    ]
}

/// Text as it may stand between two tags.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_a_browser_is_what_stands_behind_the_first_colon() {
        let header = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        assert_eq!(password(header("admin:a:b").as_bytes()).as_deref(), Some(&b"a:b"[..]));
        assert_eq!(password(format!("bAsIc {}", STANDARD.encode(":x")).as_bytes()).as_deref(), Some(&b"x"[..]));
        for wrong in ["", "Basic", "Bearer x", "Basic !", &header("no colon")] {
            assert_eq!(password(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn nothing_of_a_text_becomes_a_tag() {
        assert_eq!(escaped("<b>\"&'"), "&lt;b&gt;&quot;&amp;&#39;");
    }
}
