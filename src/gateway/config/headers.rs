//! The additional headers that an account may send.

use http::HeaderName;

use crate::words::lines_of;

/// Headers that the gateway writes itself, or that describe the length or the recipient of a message.
const GATEWAY_HEADERS: &[&str] = lines_of!("headers/gateway_headers.txt");

/// Words in the name of a header that carries a credential.
const SECRET_WORDS: [&str; 5] = ["auth", "cookie", "key", "secret", "token"];

/// Parses the name of a header that an account may send, and refuses the headers of the gateway.
pub(super) fn parse_name(text: &str) -> Result<HeaderName, String> {
    let name: HeaderName = text.parse().map_err(|_| format!("`{}` is not a valid header name", text.escape_debug()))?;
    if GATEWAY_HEADERS.contains(&name.as_str()) {
        let advice = if name == http::header::AUTHORIZATION { "; put the key into `api_key`" } else { "" };
        return Err(format!("the header `{name}` is set by the gateway itself{advice}"));
    }
    Ok(name)
}

/// True if the name of the header indicates that its value is a credential.
pub(super) fn is_secret(name: &HeaderName) -> bool {
    name.as_str().split(['-', '_']).any(|word| SECRET_WORDS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_gateway_cannot_be_configured() {
        assert!(parse_name("OpenAI-Organization").is_ok());
        for bad in [
            "Authorization",
            "HOST",
            "content-length",
            "User-Agent",
            "Transfer-Encoding",
            "",
            "a b",
            "a:b",
            "ü",
            "a\r\nb",
        ] {
            assert!(parse_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn credentials_are_recognized_by_the_header_name() {
        for (header, secret) in [
            ("api-key", true),
            ("x-auth-token", true),
            ("cookie", true),
            ("openai-project", false),
            ("x-keyboard", false),
        ] {
            assert_eq!(is_secret(&HeaderName::from_static(header)), secret, "{header}");
        }
    }
}
