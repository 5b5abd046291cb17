//! docs/limits-and-cost.md: its commands, on a gateway with the built-in simulator.

use serde_json::Value;

use super::machine::{TestMachine, blocks_of};

const PAGE: &str = include_str!("../../../docs/limits-and-cost.md");
const GATEWAY: &str = "127.0.0.1:8080";

#[test]
fn the_commands_of_the_page_run_from_top_to_bottom() {
    let mut machine = TestMachine::new();
    machine.install_program();
    machine.run_services(&format!("imagate serve --listen {GATEWAY} &\n"));
    machine.wait_until_ready(GATEWAY);
    machine.run("imagate user invite kim\nimagate user invite ada --admin");
    let shown = machine.run("imagate key create --name page --user kim --json").stdout;
    let key: Value = serde_json::from_str(&shown).expect("JSON");
    let token = machine.run("imagate token create --name page --user ada").stdout;
    machine.replace("key_01hzy3v7k2m4", key["id"].as_str().expect("an id"));
    let secret = key["secret"].as_str().expect("a secret");
    let settings = format!(
        "export IMAGATE_API_KEY={secret} IMAGATE_ADMIN={} IMAGATE_BASE_URL=http://{GATEWAY}/v1\n",
        token.trim()
    );
    let commands = blocks_of(PAGE, "sh");
    assert!(commands.len() >= 5, "{}", commands.len());
    for block in commands {
        if block.contains(" &\n") {
            machine.run_services(block);
            continue;
        }
        let output = machine.run(&format!("{settings}{block}"));
        assert!(!output.stdout.contains("\"error\""), "{block}\n{output:#?}");
    }
    let limits = machine.run("imagate user list --json").stdout;
    assert!(limits.contains("\"budget_usd\":10"), "{limits}");
    assert_eq!(machine.status_of_image(GATEWAY, secret), 200);
}
