//! The channels of alerts.

use super::*;

const WEBHOOK: &str = "[alerts.webhook]\nurl = \"https://hooks.example.com/imagate\"\nsecret = { env = \"HOOK\" }\n";
const EMAIL: &str = "[alerts.email]\nhost = \"smtp.example.com\"\nuser = \"imagate\"\npassword = { env = \"SMTP\" }\n\
    from = \"imagate <imagate@example.com>\"\nto = [\"ops@example.com\"]\n";

fn load(text: &str) -> Result<Config, Vec<ConfigProblem>> {
    let secret = "whsec_Y2FuYXJ5LW9mLXRoZS13ZWJob29rLTEy";
    load_from(test_host().variable("HOOK", secret).variable("SMTP", "hidden").variable("SHORT", "whsec_YQ=="), text)
}

#[track_caller]
fn assert_refused(text: &str, words: &str) {
    let problems = load(text).unwrap_err();
    assert!(problems.iter().any(|problem| problem.to_string().contains(words)), "{text}: {problems:?}");
}

#[test]
fn a_webhook_and_a_mail_server_are_read_and_printed_without_secrets() {
    let config = load(&format!("{WEBHOOK}{EMAIL}")).unwrap();
    let email = config.alerts.email.as_ref().unwrap();
    assert_eq!((email.port, email.tls, email.to.len()), (587, SmtpTls::Starttls, 1));
    assert!(!config.alerts.webhook.as_ref().unwrap().allow_link_local);
    let printed = config.to_annotated_toml();
    assert!(printed.contains("https://hooks.example.com/imagate") && printed.contains("smtp.example.com"), "{printed}");
    assert!(!printed.contains("whsec_") && !printed.contains("hidden"), "{printed}");
    assert_eq!(load("").unwrap().alerts, AlertConfig::default());
}

#[test]
fn a_webhook_needs_https_and_a_secret_of_the_standard() {
    let with = |url: &str| WEBHOOK.replace("https://hooks.example.com/imagate", url);
    assert_refused(&with("http://hooks.example.com/x"), "https://");
    assert_refused(&with("https://user:secret@hooks.example.com/x"), "user or password");
    assert_refused(&with("ftp://hooks.example.com/x"), "https://");
    assert!(load(&with("http://127.0.0.1:9/hook")).is_ok());
    assert!(load(&format!("{}allow_http = true\n", with("http://hooks.example.com/x"))).is_ok());
    assert_refused(&WEBHOOK.replace("HOOK", "SHORT"), "whsec_");
    assert_refused(&WEBHOOK.replace("HOOK", "SMTP"), "whsec_");
    assert_refused("[alerts.webhook]\nurl = \"https://hooks.example.com\"\n", "secret");
}

#[test]
fn a_mail_server_gets_a_password_only_over_an_encrypted_connection() {
    assert_refused(&EMAIL.replace("user =", "tls = \"none\"\nuser ="), "unencrypted");
    let here = EMAIL.replace("smtp.example.com", "127.0.0.1").replace("user =", "tls = \"none\"\nuser =");
    assert_eq!(load(&here).unwrap().alerts.email.unwrap().port, 25);
    assert_refused(&EMAIL.replace("user = \"imagate\"\n", ""), "without `user`");
    assert_refused(&EMAIL.replace("[\"ops@example.com\"]", "[]"), "recipients");
    assert_refused(&EMAIL.replace("[\"ops@example.com\"]", "[\"ops\"]"), "must be an address");
    assert_refused(&EMAIL.replace("smtp.example.com", "smtp.example.com/x"), "mail server");
}
