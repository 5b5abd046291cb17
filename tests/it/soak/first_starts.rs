//! Three nodes start for the first time at the same moment, on an empty database.

use std::time::Instant;

use tempfile::TempDir;

use super::{MASTER_KEY, SoakRun};
use crate::kit::{Call, PostgresDatabase, Program, Server};

const NODES: usize = 3;
/// Queries that find exactly one installation, with the numbers that they must return.
const FACTS: [(&str, i64); 4] = [
    ("SELECT count(*) FROM _sqlx_migrations WHERE NOT success", 0),
    // One for secrets, and one for the hashes of keys.
    ("SELECT count(*) FROM data_keys", 2),
    ("SELECT count(*) FROM links WHERE purpose = 'setup'", 1),
    ("SELECT count(*) FROM nodes", 3),
];

fn program(home: &TempDir, database: &PostgresDatabase) -> Program {
    let program = Program::new(home.path()).env("IMAGATE_CONFIG", "imagate.toml");
    program.env("IMAGATE_DATABASE_URL", database.url()).env("IMAGATE_MASTER_KEY", MASTER_KEY)
}

/// A folder with settings. A node with an account prints no first key.
fn home() -> TempDir {
    let home = TempDir::new().expect("a directory");
    let settings = "listen = \"127.0.0.1:0\"\ndata_dir = \"data\"\n[[accounts]]\nname = \"a\"\nkind = \"simulator\"\n";
    std::fs::write(home.path().join("imagate.toml"), settings).expect("a file");
    home
}

/// Starts all nodes at once, checks that they are one installation, and that a key of the first is valid on all.
#[track_caller]
fn start_together(database: &PostgresDatabase) {
    let homes: Vec<TempDir> = (0..NODES).map(|_| home()).collect();
    let servers: Vec<Server> = std::thread::scope(|scope| {
        let starts: Vec<_> =
            homes.iter().map(|home| scope.spawn(|| program(home, database).args(["serve"]).serve())).collect();
        starts.into_iter().map(|start| start.join().expect("a node")).collect()
    });
    for (query, expected) in FACTS {
        assert_eq!(database.count(query), expected, "{query}");
    }
    let words = ["key", "create", "--name", "it", "--user", "admin", "--json"];
    let key = program(&homes[0], database).args(words).run().json();
    for server in &servers {
        let call = Call::get("/v1/models").key(key["secret"].as_str().expect("a secret"));
        call.send(server.address()).ok_json();
    }
}

#[test]
fn three_nodes_that_start_at_once_on_an_empty_database_are_one_installation() {
    let mut run = SoakRun::new("first starts of three nodes at once", 1, 50);
    let mut times = Vec::new();
    for _ in 0..run.rounds {
        let Some(database) = PostgresDatabase::create() else { return };
        let begun = Instant::now();
        start_together(&database);
        times.push(begun.elapsed());
        database.remove();
    }
    run.note("nodes started", NODES * run.rounds);
    run.note_times("time of a start of three nodes, with the checks", times);
    run.print();
}
