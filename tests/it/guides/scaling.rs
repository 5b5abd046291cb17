//! docs/scaling.md: from an installation with SQLite to two nodes on PostgreSQL, and back from a dump.
//!
//! The test passes without a check if the run has no server; `cargo xtask test` starts one.

use std::collections::BTreeSet;

use super::machine::{TestMachine, blocks_of};
use crate::kit::env_setting;

const PAGE: &str = include_str!("../../../docs/scaling.md");
const NODES: [&str; 2] = ["127.0.0.1:8081", "127.0.0.1:8082"];
/// The address of the database on the page, in which a test machine has another port.
const DATABASE: &str = "127.0.0.1:5432";
const SETTINGS: &str = "data_dir = \"/var/lib/imagate\"\ndatabase_url = { env = \"DATABASE_URL\" }\n";

/// Runs the block of the page that contains a text.
struct GuidePage<'a> {
    machine: &'a TestMachine,
    environment: String,
    run: BTreeSet<&'static str>,
}

impl GuidePage<'_> {
    fn block(&mut self, text: &str) -> &'static str {
        let block = blocks_of(PAGE, "sh").into_iter().find(|block| block.contains(text)).expect("a block of the page");
        self.run.insert(block);
        block
    }

    #[track_caller]
    fn run(&mut self, text: &str) -> String {
        let block = self.block(text);
        self.machine.run(&format!("{}\n{block}", self.environment)).stdout
    }
}

#[test]
fn the_commands_of_the_page_lead_to_two_nodes_and_back_from_a_dump() {
    let Some(server) = env_setting("IMAGATE_TEST_POSTGRES") else { return };
    let server = server.into_string().expect("an address");
    let (address, _) = server.rsplit_once('/').expect("the address ends with a database");
    let (_, address) = address.rsplit_once('@').expect("the address names a user");
    let (host, port) = address.split_once(':').expect("the address names a port");
    let mut machine = TestMachine::new();
    machine.replace(DATABASE, address);
    machine.install_program();
    machine.add_script(
        "createuser",
        "test \"$*\" = '--pwprompt imagate'\npsql -qc \"DO \\$\\$ BEGIN CREATE ROLE imagate LOGIN; \
         EXCEPTION WHEN duplicate_object THEN NULL; END \\$\\$\"",
    );
    let environment = format!("export PGHOST={host} PGPORT={port} PGUSER=postgres");
    machine.run(&format!(
        "{environment}\nfor name in imagate imagate_restored; do dropdb --if-exists --force $name; done"
    ));
    let mut page = GuidePage { machine: &machine, environment, run: BTreeSet::new() };

    // An installation with SQLite, and its key.
    machine.run("imagate key create --name page --data-dir /var/lib/imagate > key.txt 2> key.err");
    let key = std::fs::read_to_string(machine.path("key.txt")).expect("a file").trim().to_owned();
    std::fs::write(machine.path("imagate.toml"), machine.localize(SETTINGS)).expect("a file");
    page.run("createuser");
    page.environment += &format!("\nexport DATABASE_URL=postgres://imagate:PASSWORD@{DATABASE}/imagate");
    page.run("imagate migrate");
    let master_key = page.run("master.key");
    assert!(master_key.len() == 64 && master_key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{master_key:?}");

    std::fs::write(
        machine.path("imagate.toml"),
        machine.localize(&format!("{SETTINGS}master_key = {{ env = \"MASTER_KEY\" }}\n")),
    )
    .expect("a file");
    let nodes = page.block("imagate serve").replace("HEXADECIMAL", &master_key);
    machine.run_services(&nodes);
    for node in NODES {
        machine.wait_until_ready(node);
        assert_eq!(machine.status_of_image(node, &key), 200, "the key of the SQLite installation works");
    }
    page.run("pg_dump");
    machine.end_services();
    page.run("pg_restore");
    machine.run_services(&nodes.replace("/imagate MASTER_KEY", "/imagate_restored MASTER_KEY"));
    for node in NODES {
        machine.wait_until_ready(node);
        assert_eq!(machine.status_of_image(node, &key), 200, "the key works after the restore");
    }
    assert_eq!(page.run.len(), blocks_of(PAGE, "sh").len(), "every block of the page was run");
}
