//! `imagate models probe` against a real service: another imagate, whose refusals state the rules of its models.

use crate::kit::{Account, FakeUpstream, Gateway, Program, Random};

const WORDS: [&str; 5] = ["plain", "rich", "x-high", "best", "draft"];
const MODELS: usize = 10;

/// The rules of a model that refusals state, as the lines of a `[[models]]` table.
fn random_rules(random: &mut Random, id: &str) -> Vec<String> {
    let mut chosen = |words: &[&str]| {
        let kept: Vec<_> = words.iter().filter(|_| random.between(0, 2) == 0).collect();
        if kept.is_empty() { format!("{:?}", &words[..1]) } else { format!("{kept:?}") }
    };
    let (formats, fidelities, words) =
        (chosen(&["png", "jpeg", "webp", "gif"]), chosen(&["low", "high"]), chosen(&WORDS));
    let (images, partials) = (random.between(1, 11), random.between(0, 4));
    let (min, max) = (random.between(0, 5), random.between(5, 100));
    [
        "[[models]]".to_owned(),
        format!("id = \"{id}\""),
        format!("formats = {formats}"),
        format!("input_fidelity = {fidelities}"),
        format!("max_images = {images}"),
        format!("max_partial_images = {partials}"),
        "[[models.fields]]".to_owned(),
        "name = \"detail\"".to_owned(),
        "kind = \"choice\"".to_owned(),
        format!("words = {words}"),
        "[[models.fields]]".to_owned(),
        "name = \"frames\"".to_owned(),
        "kind = \"integer\"".to_owned(),
        format!("min = {min}"),
        format!("max = {max}"),
    ]
    .into()
}

#[test]
fn the_rules_of_another_service_are_learned_without_an_image() {
    let mut random = Random::seeded(20_261_127);
    let models: Vec<_> = (0..MODELS).map(|index| format!("m-{index}")).collect();
    let rules: Vec<_> = models.iter().map(|id| random_rules(&mut random, id)).collect();
    let upstream = FakeUpstream::start();
    let service = Gateway::with(&rules.concat().join("\n"), &[Account::for_upstream("only", &upstream)]);
    let home = tempfile::TempDir::new().expect("a directory");
    let config = format!(
        "data_dir = \"data\"\n[[accounts]]\nname = \"other\"\nkind = \"api_key\"\nbase_url = \"{}\"\n\
         api_key = {{ env = \"IT_TOKEN\" }}\n",
        service.base_url()
    );
    std::fs::write(home.path().join("imagate.toml"), config).expect("a configuration");
    for (model, rules) in models.iter().zip(&rules) {
        let words = ["models", "probe", "other", "--model", model, "--field", "detail", "--field", "frames"];
        let program = Program::new(home.path()).env("IMAGATE_CONFIG", "imagate.toml");
        let output = program.env("IT_TOKEN", service.secret()).args(words).run();
        let table = output.ok_stdout();
        for rule in rules {
            assert!(table.lines().any(|line| line == rule), "{rule} is missing:\n{table}");
        }
    }
    assert_eq!((upstream.attempt_count(), service.records().len()), (0, 0), "nothing was made");
}
