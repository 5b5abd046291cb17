//! Usual mistakes in the base URL and the key of an account or a moderation service.

use super::*;

#[test]
fn a_base_url_with_an_operation_is_refused_with_what_to_write() {
    let key = "api_key = { env = \"OPENAI_API_KEY\" }";
    for (url, operation, meant) in [
        ("https://A.example/v1/images/generations", "/images/generations", "https://a.example/v1"),
        ("https://a.example:8443/v1/images/edits/", "/images/edits", "https://a.example:8443/v1"),
        ("https://a.example/openai/v1/responses", "/responses", "https://a.example/openai/v1"),
        ("https://a.example/v1/Chat/Completions", "/Chat/Completions", "https://a.example/v1"),
        ("http://127.0.0.1:9/models", "/models", "http://127.0.0.1:9"),
    ] {
        let fault = format!("must end before `{operation}`, which the gateway adds: write \"{meant}\"");
        check_account(&format!("base_url = \"{url}\"\n{key}"), &[&format!("4:12: `base_url` {fault}")]);
        let filter = format!("[[groups]]\nname = \"default\"\n[groups.filter.moderation]\nbase_url = \"{url}\"");
        check(&format!("{filter}\non_error = \"closed\"\n"), &[&format!("4:12: `base_url` {fault}")]);
    }
    let account =
        format!("[[accounts]]\nname = \"a\"\nkind = \"api_key\"\nbase_url = \"https://a.example/images\"\n{key}");
    assert!(load_from(test_host(), &account).is_ok(), "a folder of that name is no operation");
}

#[test]
fn a_key_is_the_key_alone_and_a_byte_order_mark_is_skipped() {
    let load_key = |value: &str| {
        let host = test_host().variable("A_KEY", value).file("etc/a.txt", value);
        let account = |number, source| {
            format!(
                "[[accounts]]\nname = \"a{number}\"\nkind = \"api_key\"\nbase_url = \"https://a.example/v1\"\napi_key = {{ {source} }}\n"
            )
        };
        let text = account(1, "env = \"A_KEY\"") + &account(2, "file = \"a.txt\"");
        load_from(host, &text).map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    for (value, fault) in [
        ("Bearer sk-hidden", "begins with `Bearer`, which is added when it is sent: write the key alone"),
        ("bearer  sk-hidden", "begins with `Bearer`, which is added when it is sent: write the key alone"),
        ("\"sk-hidden\"\n", "stands in quotes: write it without them"),
        ("'sk-hidden'", "stands in quotes: write it without them"),
        ("\u{201c}sk-hidden\u{201d}", "stands in quotes: write it without them"),
        ("Authorization: Bearer sk-hidden", "is a whole header: write the key alone, without `Authorization: Bearer`"),
    ] {
        let problems = load_key(value).map(|config| config.to_annotated_toml()).unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert_eq!(problems[0], format!("etc/config.toml:5:11: `api_key` {fault} (environment variable `A_KEY`)"));
        assert_eq!(problems[1], format!("etc/config.toml:10:11: `api_key` {fault} (file)"));
    }
    for value in ["\u{feff}sk-hidden\r\n", "\n\u{feff} sk-hidden"] {
        let config = load_key(value).unwrap();
        for account in &config.accounts {
            let UpstreamConfig::Api(endpoint) = &account.upstream else { panic!("the account has no endpoint") };
            assert!(matches!(&endpoint.credentials, AccountCredentials::ApiKey(key) if key.expose() == "sk-hidden"));
        }
    }
    assert!(load_key("\u{feff}\n").is_err(), "it is empty");
}
