//! Checks which rules match which prompts, and that a disguise does not hide a word.

use super::*;
use crate::gateway::config::GroupConfig;
use std::time::Duration;

fn filter(words: &[&str], patterns: &[&str]) -> Result<PromptFilter, FilterError> {
    let owned = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect();
    PromptFilter::new("default", &FilterConfig { words: owned(words), patterns: owned(patterns), moderation: None })
}

#[track_caller]
fn check(filter: &PromptFilter, prompt: &str, expected: Option<&str>) {
    assert_eq!(filter.find(prompt).as_deref(), expected, "{}", prompt.escape_unicode());
}

#[test]
fn a_word_matches_only_as_a_whole_word() {
    let filter = filter(&["ass", "Acme  Corp", "c++", "漢字", "naïve"], &[]).unwrap();
    for (prompt, expected) in [
        ("an ass in a meadow", Some("words[0]")),
        ("ASS", Some("words[0]")),
        ("(ass)", Some("words[0]")),
        ("big_ass.png", Some("words[0]")),
        ("a bass, a class, an assassin, Assam", None),
        ("the logo of ACME\n\t corp", Some("words[1]")),
        ("acme-corp", Some("words[1]")),
        ("acme, corp", None),
        ("acme corporation", None),
        ("acme", None),
        ("C++ on a mug", Some("words[2]")),
        ("c + a", None),
        ("この漢字は", Some("words[3]")),
        ("漢の字", None),
        ("a NAIVE painting", Some("words[4]")),
        ("", None),
    ] {
        check(&filter, prompt, expected);
    }
}

#[test]
fn a_disguised_word_matches() {
    let filter = filter(&["forbidden", "two words"], &[]).unwrap();
    for prompt in [
        "FORBIDDEN",
        "forb\u{200b}idden",
        "f\u{ad}o\u{200d}r\u{2060}bidden",
        "forbidden\u{200b}thing",
        "forb\u{131}dden",
        "f\u{336}o\u{336}r\u{336}b\u{336}i\u{336}d\u{336}d\u{336}e\u{336}n\u{336}",
        "ｆｏｒｂｉｄｄｅｎ",
        "𝓯𝓸𝓻𝓫𝓲𝓭𝓭𝓮𝓷",
        "ⓕⓞⓡⓑⓘⓓⓓⓔⓝ",
        "fоrbiddеn",
        "f o r b i d d e n",
        "f.o.r.b.i.d.d.e.n",
        "ꜰᴏʀʙɪᴅᴅᴇɴ",
    ] {
        check(&filter, prompt, Some("words[0]"));
    }
    for prompt in ["two\u{a0}words", "two\u{200b}words", "two  \r\n words", "TWO_WORDS", "ｔｗｏ　ｗｏｒｄｓ"]
    {
        check(&filter, prompt, Some("words[1]"));
    }
}

#[test]
fn patterns_match_the_original_and_the_normalized_prompt() {
    let filter = filter(&[], &[r"\bpassport\s+of\b", r"id[ -]?\d{4}", r"[\u{200b}]{3}"]).unwrap();
    check(&filter, "the Passport\n of a spy", Some("patterns[0]"));
    check(&filter, "pass\u{200b}port of", Some("patterns[0]"));
    check(&filter, "ＩＤ－１２３４", Some("patterns[1]"));
    check(&filter, "\u{200b}\u{200b}\u{200b}", Some("patterns[2]"));
    check(&filter, "passports often", None);
}

#[test]
fn the_moderation_service_may_need_tls() {
    let group = |url: &'static str| {
        let service = ModerationConfig {
            base_url: http::Uri::from_static(url),
            api_key: None,
            model: "judge".to_owned(),
            on_error: crate::gateway::config::ModerationErrorPolicy::Closed,
            timeout: Duration::from_secs(1),
        };
        let filter = FilterConfig { moderation: Some(service), ..FilterConfig::default() };
        GroupConfig { filter, ..GroupConfig::for_test("one") }
    };
    let plain = group("http://127.0.0.1/v1");
    let filter = PromptFilter::new("one", &plain.filter).unwrap();
    assert_eq!(filter.moderation().map(|service| service.model.as_str()), Some("judge"));
    assert!(filter.is_on() && !filter.has_rules());
    assert!(group("https://judge.example/v1").needs_tls());
    assert!(!plain.needs_tls(), "the service is called without encryption");
}

#[test]
fn an_unusable_rule_is_refused() {
    assert!(matches!(filter(&["red", "\u{200b} -"], &[]), Err(FilterError::Word { index: 1, .. })));
    assert!(matches!(filter(&[], &["("]), Err(FilterError::Patterns { .. })));
    assert!(matches!(filter(&[], &[r"\pL{1000}{50}"]), Err(FilterError::Patterns { .. })));
}

#[test]
fn a_result_does_not_repeat_the_prompt() {
    let filter = filter(&["forbidden"], &["secret.*plan"]).unwrap();
    check(&filter, "a forbidden thing", Some("words[0]"));
    check(&filter, "a secret master plan", Some("patterns[0]"));
}

/// Pseudorandom numbers, the same in every run.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % count
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn words(&mut self, count: usize) -> Vec<String> {
        let letters: Vec<char> = "abcdeéжß漢1".chars().collect();
        let mut word = || (0..=self.below(3)).map(|_| self.pick(&letters)).collect();
        (0..count).map(|_| word()).collect()
    }
}

/// A slow reference implementation of the phrase matcher.
fn naive_match(text: &str, rule: &str) -> bool {
    let normalized = |text: &str| {
        let mut text_out = String::from(" ");
        for letter in text_folding::normalize_rule(text).chars() {
            match letter {
                '漢' => text_out.push_str(" 漢 "),
                '-' | '_' => text_out.push(' '),
                letter => text_out.push(letter),
            }
        }
        text_out.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    format!(" {} ", normalized(text)).contains(&format!(" {} ", normalized(rule)))
}

#[test]
fn the_phrase_matcher_agrees_with_a_naive_search() {
    let mut random = SeededRandom(7);
    let mut match_count = 0;
    for _ in 0..3_000 {
        let mut phrase = |max_words| {
            let count = 1 + random.below(max_words);
            random.words(count).join(random.pick(&[" ", "-", "_", "  "]))
        };
        let rules: Vec<String> = (0..4).map(|_| phrase(3)).collect();
        let prompt = phrase(8);
        let filter = filter(&rules.iter().map(String::as_str).collect::<Vec<_>>(), &[]).unwrap();
        let expected = rules.iter().any(|rule| naive_match(&prompt, rule));
        // Unlike the naive search, the matcher also finds words that were spelled out in single letters.
        let spelled =
            text_folding::normalize_rule(&prompt).split([' ', '-', '_']).filter(|word| word.len() == 1).count() >= 3;
        let is_refused = filter.find(&prompt).is_some();
        assert!(is_refused == expected || (is_refused && spelled), "{prompt:?} against {rules:?}: {is_refused}");
        match_count += usize::from(expected);
    }
    assert!((300..2_700).contains(&match_count), "both results must be frequent: {match_count}");
}

#[test]
fn of_several_phrases_the_first_in_the_text_matches_and_of_those_the_shortest() {
    let filter = filter(&["red fox jumps far", "fox jumps", "Red_Fox", "red fox", "jumps"], &[]).unwrap();
    for (prompt, rule) in [
        ("a red fox jumps far", "words[2]"),
        ("a fox jumps far", "words[1]"),
        ("fox far jumps", "words[4]"),
        ("reds fox, jumps", "words[4]"),
    ] {
        check(&filter, prompt, Some(rule));
    }
    // A phrase that begins earlier matches, even if another one ends earlier.
    let filter = self::filter(&["fox jumps", "a red fox jumps far"], &[]).unwrap();
    check(&filter, "a red fox jumps far", Some("words[1]"));
    check(&filter, "a red fox jumps", Some("words[0]"));
}

#[test]
fn a_randomly_disguised_word_matches() {
    let mut random = SeededRandom(11);
    let filter = filter(&["example"], &[]).unwrap();
    for _ in 0..2_000 {
        let mut disguised = String::new();
        for letter in "example".chars() {
            let offset = u32::from(letter) - 0x61;
            let forms =
                [letter as u32, offset + 0x41, offset + 0xff41, offset + 0x24d0, offset + 0x1d41a, offset + 0x1f130];
            disguised.extend(char::from_u32(random.pick(&forms)));
            let marks = ["", "", "", "\u{301}", "\u{200b}", "\u{336}\u{fe0f}", "\u{ad}"];
            disguised.push_str(random.pick(&marks));
        }
        let prompt =
            format!("{}{disguised}{}", random.pick(&["", "an ", "(", "漢"]), random.pick(&["", " here", "!", "_1"]));
        check(&filter, &prompt, Some("words[0]"));
        check(&filter, &format!("counter{disguised}").replace('\u{200b}', ""), None);
    }
}

#[test]
fn many_phrases_are_checked_in_one_pass() {
    let words: Vec<String> = (0..20_000).map(|index| format!("word{index} tail{}", index % 7)).collect();
    let filter = filter(&words.iter().map(String::as_str).collect::<Vec<_>>(), &[]).unwrap();
    let prompt = "word1 tail0 word2 tail1 ".repeat(1_300);
    let started_at = std::time::Instant::now();
    check(&filter, &prompt, None);
    println!("20,000 phrases against {} bytes in {:?}", prompt.len(), started_at.elapsed());
    check(&filter, &format!("{prompt} word19999 tail0"), Some("words[19999]"));
}
