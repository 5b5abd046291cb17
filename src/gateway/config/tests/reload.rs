//! The comparison of new settings with those in force.

use super::*;

const IN_FORCE: &str = "listen = \"h:1\"\ntext_models = [\"m\"]\ndeadlines = { image = \"2m\" }";
const NEW: &str = "listen = \"h:2\"\nskills_dir = \"skills\"\ntext_models = [\"n\"]\n\
                   deadlines = { image = \"3m\", connect = \"1s\" }";

fn config(lines: &str, token: &str) -> Config {
    let host = test_host().variable("TOKEN", &token.repeat(32));
    load_from(host, &format!("admin_token = {{ env = \"TOKEN\" }}\n{lines}")).unwrap()
}

#[test]
fn a_difference_names_what_changes_at_once_and_what_needs_a_restart() {
    let mut in_force = config(IN_FORCE, "a");
    assert_eq!(config(IN_FORCE, "a").reconcile_with(&in_force).to_string(), "nothing has changed");
    // The settings that need a restart stay different as long as the process runs.
    let restart = "effective after a restart: listen, skills_dir, deadlines.connect";
    let changed = "groups changed: default; settings changed: admin_token, deadlines, drain_timeout, text_models";
    for expected in [format!("{changed}; {restart}"), restart.to_owned()] {
        let mut new = config(NEW, "b");
        let difference = new.reconcile_with(&in_force);
        assert_eq!(difference.to_string(), expected);
        assert_eq!(difference.restart_settings(), ["listen", "skills_dir", "deadlines.connect"]);
        assert_eq!((new.listen.to_string(), &new.skills_dir), ("h:1".to_owned(), &None));
        assert_eq!(new.deadlines.connect, in_force.deadlines.connect);
        in_force = new;
    }
}
