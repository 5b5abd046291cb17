//! Fifty responses at once, whose upstream counts what it likes: a budget is passed by at most one of them in the mode
//! `paced`, and never in the mode `strict`, whose limits the upstream keeps. One node, and two nodes that share a database.

use serde_json::{Value, json};

use super::SoakRun;
use crate::kit::{FakeUpstream, Random};
use crate::limits::budget_modes::{Nodes, SETTINGS, scripted_response, with};

/// The number of responses at once.
const AT_ONCE: u64 = 50;
/// The largest context and output of the text model.
const CONTEXT: u64 = 100_000;
const OUTPUT: u64 = 20_000;

/// A request, and the counts of its upstream: in the mode `paced` above what the request states.
fn draw_request(random: &mut Random, is_strict: bool) -> Value {
    let delay = random.between(0, 120);
    let (read, written) = if is_strict { (20, 300) } else { (CONTEXT, OUTPUT) };
    let (read, written) = (random.between(1, read), random.between(0, written));
    let mut script = format!("delay={delay} read={read} written={written}");
    let mut fields = json!({"max_output_tokens": 300});
    if random.between(0, 3) == 0 {
        let images = if is_strict { 1 } else { random.between(1, 10) };
        script = format!("{script} tokens={}", images * random.between(1, 196));
        fields["tools"] = json!([{"type": "image_generation", "size": "1024x1024", "quality": "low"}]);
        fields["max_tool_calls"] = json!(1);
    }
    with(scripted_response(&script), &fields)
}

fn run_bursts(mode: &str, open: impl Fn(&FakeUpstream, &str) -> Option<Nodes>) {
    let title = format!("budgets of responses, 50 at once, {mode}");
    let mut run = SoakRun::new(Box::leak(title.into_boxed_str()), 2, 50);
    let upstream = FakeUpstream::start();
    let settings = format!(
        "{SETTINGS}context_tokens = {CONTEXT}\nmax_output_tokens = {OUTPUT}\n[[groups]]\nname = \"default\"\n\
         budget_mode = \"{mode}\"\n"
    );
    let Some(nodes) = open(&upstream, &settings) else { return };
    let is_strict = mode == "strict";
    let (mut served, mut most_above) = (0, f64::MIN);
    for round in 0..run.rounds {
        let mut random = run.random(round);
        let budget = if is_strict { 0.5 } else { 1.0 };
        let key = nodes.make_key(&json!({"budget_usd": budget}));
        let bodies: Vec<Value> = (0..AT_ONCE).map(|_| draw_request(&mut random, is_strict)).collect();
        let answers = nodes.burst(key["secret"].as_str().expect("a secret"), &bodies);
        let (good, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
        refused.iter().for_each(|answer| assert_eq!(answer.error_object(429)["limit"], "budget_usd"));
        served += good.len();
        let spent = nodes.spent(&key);
        let id = key["key"]["id"].as_str().expect("an id");
        let costs: Vec<f64> = nodes.costs_of(id);
        assert!((costs.iter().sum::<f64>() - spent).abs() < 1e-9, "round {round}: {spent} is not the sum of {costs:?}");
        let dearest = if is_strict { 0.0 } else { costs.iter().copied().fold(0.0, f64::max) };
        assert!(spent <= budget + dearest, "round {round}: {spent} of {budget}, the dearest costs {dearest}");
        most_above = most_above.max(spent - budget);
    }
    assert!(served > run.rounds, "{served} responses in {} rounds", run.rounds);
    run.note("responses", served);
    run.note("dollars above the budget, at most", format_args!("{most_above:.3}"));
    run.print();
}

#[test]
fn a_burst_passes_a_paced_budget_by_at_most_one_response() {
    run_bursts("paced", |upstream, settings| Some(Nodes::single(upstream, settings)));
}

#[test]
fn a_burst_passes_a_paced_budget_by_at_most_one_response_on_two_nodes() {
    run_bursts("paced", Nodes::pair);
}

#[test]
fn a_burst_never_passes_a_strict_budget() {
    run_bursts("strict", |upstream, settings| Some(Nodes::single(upstream, settings)));
}

#[test]
fn a_burst_never_passes_a_strict_budget_on_two_nodes() {
    run_bursts("strict", Nodes::pair);
}
