//! Somebody who speaks bytes and keeps cookies: what a browser would never send, and what it sends in full view.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::kit::{Answer, Call, Gateway};

/// Cookies at one gateway.
#[derive(Clone)]
pub(super) struct Visitor<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) cookies: BTreeMap<String, String>,
    /// What is connected from, where it matters.
    from: Option<IpAddr>,
    /// Whom a proxy says that it speaks for.
    forwarded: Option<&'static str>,
    /// Host and origin, where it is not the address itself.
    host: Option<(&'static str, &'static str)>,
}

/// A form on a page, with what stands in it.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) action: String,
    pub(super) fields: Vec<(String, String)>,
}

// === impl Visitor ===

impl<'a> Visitor<'a> {
    pub(super) fn to(gateway: &'a Gateway) -> Self {
        Self { gateway, cookies: BTreeMap::new(), from: None, forwarded: None, host: None }
    }

    /// Somebody at another address of this machine.
    pub(super) fn from(gateway: &'a Gateway, last: u8) -> Self {
        Self { from: Some([127, 0, 0, last].into()), ..Self::to(gateway) }
    }

    /// Somebody who comes by way of a proxy on this machine.
    pub(super) fn by_proxy(gateway: &'a Gateway, forwarded: &'static str) -> Self {
        Self { forwarded: Some(forwarded), ..Self::to(gateway) }
    }

    /// Somebody who comes by a name.
    pub(super) fn to_host(gateway: &'a Gateway, host: &'static str, origin: &'static str) -> Self {
        Self { host: Some((host, origin)), ..Self::to(gateway) }
    }

    pub(super) fn origin(&self) -> String {
        if let Some((_, origin)) = self.host {
            return origin.to_owned();
        }
        format!("http://{}", self.gateway.address())
    }

    /// Sends what is given with the cookies that it keeps, and keeps those that come.
    #[track_caller]
    pub(super) fn send(&mut self, call: Call) -> Answer {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let call = if cookies.is_empty() { call } else { call.header("cookie", &cookies.join("; ")) };
        let call = self.from.into_iter().fold(call, Call::coming_from);
        let call = self.forwarded.into_iter().fold(call, |call, from| call.header("x-forwarded-for", from));
        let call = self.host.into_iter().fold(call, |call, (host, _)| call.header("host", host));
        let answer = call.send(self.gateway.address());
        for (_, cookie) in answer.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let pair = cookie.split(';').next().unwrap_or_default();
            let (name, value) = pair.split_once('=').expect("a cookie");
            let over = value.is_empty() || cookie.contains("Max-Age=0");
            if over {
                self.cookies.remove(name)
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned())
            };
        }
        answer
    }

    #[track_caller]
    pub(super) fn get(&mut self, path: &str) -> Answer {
        self.send(Call::get(path))
    }

    /// A form from our own page.
    #[track_caller]
    pub(super) fn post(&mut self, path: &str, fields: &[(String, String)]) -> Answer {
        let origin = self.origin();
        self.send(post(path, fields).header("origin", &origin))
    }

    /// The form with this action on a page.
    #[track_caller]
    pub(super) fn form(&mut self, page: &str, action: &str) -> Form {
        let answer = self.get(page);
        let found = forms(&answer.text()).into_iter().find(|form| form.action == action);
        found.unwrap_or_else(|| panic!("no form {action} on {page}: {} {}", answer.status, answer.text()))
    }

    /// Fills in the form with this action on a page, and sends it.
    #[track_caller]
    pub(super) fn submit(&mut self, page: &str, action: &str, fields: &[(&str, &str)]) -> Answer {
        let form = self.form(page, action).with(fields);
        self.post(action, &form.fields)
    }
}

/// A form as bytes, without a word of where it came from.
pub(super) fn post(path: &str, fields: &[(String, String)]) -> Call {
    let body: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    Call::post(path).header("content-type", "application/x-www-form-urlencoded").bytes(body.join("&"))
}

pub(super) fn encoded(text: &str) -> String {
    let letter = |byte: u8| {
        if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(letter).collect()
}

// === impl Form ===

impl Form {
    /// The same with other values.
    pub(super) fn with(mut self, fields: &[(&str, &str)]) -> Self {
        for (name, value) in fields {
            self.fields.retain(|(known, _)| known != name);
            self.fields.push(((*name).to_owned(), (*value).to_owned()));
        }
        self
    }

    pub(super) fn without(mut self, name: &str) -> Self {
        self.fields.retain(|(known, _)| known != name);
        self
    }

    pub(super) fn value(&self, name: &str) -> &str {
        self.fields.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// Every form of a page that changes something.
pub(super) fn forms(html: &str) -> Vec<Form> {
    let mut found = Vec::new();
    for piece in html.split("<form ").skip(1) {
        let (head, rest) = piece.split_once('>').unwrap_or_default();
        if attribute(head, "method").as_deref() != Some("post") {
            continue;
        }
        let inside = rest.split("</form>").next().unwrap_or_default();
        found.push(Form { action: attribute(head, "action").unwrap_or_default(), fields: fields(inside) });
    }
    found
}

fn fields(inside: &str) -> Vec<(String, String)> {
    let inputs = inside.split('<').filter(|tag| tag.starts_with("input ") || tag.starts_with("button "));
    let of_input = |tag: &str| {
        let unchosen = tag.contains("type=\"checkbox\"") && !tag.contains(" checked");
        let name = attribute(tag, "name").filter(|_| !unchosen)?;
        Some((name, attribute(tag, "value").unwrap_or_default()))
    };
    let mut found: Vec<(String, String)> = inputs.filter_map(of_input).collect();
    for piece in inside.split("<select ").skip(1) {
        let options = piece.split("</select>").next().unwrap_or_default();
        let options: Vec<&str> = options.split("<option ").skip(1).collect();
        let chosen = options.iter().find(|option| option.contains(" selected")).or(options.first());
        let value = chosen.and_then(|option| attribute(option, "value"));
        found.extend(attribute(piece, "name").zip(value));
    }
    for piece in inside.split("<textarea ").skip(1) {
        let (head, rest) = piece.split_once('>').unwrap_or_default();
        // The first line break belongs to the tag, and a browser sends each other one as two letters.
        let text = rest.split("</textarea>").next().unwrap_or_default();
        let text = unescaped(text.strip_prefix('\n').unwrap_or(text)).replace('\n', "\r\n");
        found.extend(attribute(head, "name").zip(Some(text)));
    }
    found
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let rest = tag.split_once(&format!("{name}=\""))?.1;
    Some(unescaped(rest.split('"').next()?))
}

/// Text as it stood before it was put between tags.
pub(super) fn unescaped(text: &str) -> String {
    let mut pieces = text.split('&');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (entity, rest) = piece.split_once(';').unwrap_or_default();
        let letter = match entity {
            "lt" => Some('<'),
            "gt" => Some('>'),
            "amp" => Some('&'),
            "quot" => Some('"'),
            _ => entity.strip_prefix('#').and_then(|digits| char::from_u32(digits.parse().ok()?)),
        };
        plain.push(letter.unwrap_or('&'));
        plain.push_str(if letter.is_some() { rest } else { piece });
    }
    plain
}

#[test]
fn a_form_is_read_as_a_browser_reads_it() {
    let html = "<form method=\"get\" action=\"/x\"><input name=\"q\"></form><form class=\"a\" method=\"post\" \
        action=\"/y?a=1&#38;b=2\"><input type=\"hidden\" name=\"csrf\" value=\"&#34;t&lt;\"><select name=\"s\">\
        <option value=\"1\">A</option><option value=\"2\" selected>B</option></select></form>";
    let [form] = forms(html).try_into().expect("one form");
    assert_eq!(form.action, "/y?a=1&b=2");
    assert_eq!((form.value("csrf"), form.value("s")), ("\"t<", "2"));
}
