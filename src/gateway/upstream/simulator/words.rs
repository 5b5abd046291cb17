//! What the prompt asks for, as far as the simulator understands it.
//!
//! Decides place, time of day, dye and extras from single words, and draws lots for the rest.
//! Refuses to know how anything is drawn. It is not a language model and does not try to be.

use super::colour::{Colour, Mood};
use super::number::Dice;

/// Where the picture is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Mountain,
    Sea,
    Forest,
    City,
    Desert,
    Meadow,
}

/// Something small in the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    Nothing,
    Birds,
    Balloons,
    Boat,
    Cabin,
    Lighthouse,
}

/// Everything that is settled before the first pixel.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) place: Place,
    pub(super) mood: Mood,
    pub(super) dye: Option<Colour>,
    pub(super) water: bool,
    pub(super) snow: bool,
    pub(super) clouds: f32,
    pub(super) extra: Extra,
    pub(super) dice: Dice,
}

const PLACES: [(Place, &str); 6] = [
    (
        Place::Mountain,
        "mountain alp peak hill cliff volcano rock valley canyon hike dragon fjord waterfall lake river eagle",
    ),
    (
        Place::Sea,
        "sea ocean beach island coast ship boat sail wave harbour harbor fish whale otter lighthouse surf tropical",
    ),
    (Place::Forest, "forest tree wood jungle fox bear wolf deer owl cabin pine mushroom hedgehog squirrel"),
    (
        Place::City,
        "city town street building skyline tower robot car office neon cyberpunk skyscraper urban tokyo york",
    ),
    (Place::Desert, "desert dune sand camel pyramid mars planet sahara cactus astronaut"),
    (
        Place::Meadow,
        "meadow field farm flower garden grass horse cow sheep cat dog rabbit bee village house park windmill",
    ),
];

const MOODS: [(Mood, &str); 8] = [
    (Mood::Dawn, "dawn morning sunrise pastel soft spring cherry"),
    (Mood::Day, "day noon sunny bright summer sky clear"),
    (Mood::Golden, "golden warm autumn fall evening vintage harvest"),
    (Mood::Dusk, "dusk sunset twilight romantic dramatic retro"),
    (Mood::Violet, "magic magical fantasy neon cyberpunk dream dreamy synthwave vaporwave"),
    (Mood::Night, "night star moon dark midnight space galaxy moonlight starry"),
    (Mood::Aurora, "aurora northern arctic polar iceland norway"),
    (Mood::Misty, "mist misty fog foggy rain rainy storm overcast haze quiet calm"),
];

const DYES: [(u32, &str); 11] = [
    (0xe0302a, "red crimson scarlet ruby fire lava blood"),
    (0xf07a1e, "orange amber copper rust tangerine"),
    (0xf2c63a, "yellow gold lemon honey"),
    (0x3fa34d, "green emerald olive lime jade mint"),
    (0x1fa8a0, "teal turquoise cyan aqua"),
    (0x2f6fe0, "blue azure navy sapphire indigo cobalt"),
    (0x8a46d0, "purple violet lavender lilac"),
    (0xf06aa8, "pink rose magenta fuchsia coral"),
    (0x9a6a43, "brown sepia chocolate coffee"),
    (0x9098a0, "grey gray silver monochrome black"),
    (0xdfe6ee, "white ivory pearl"),
];

const EXTRAS: [(Extra, &str); 5] = [
    (Extra::Lighthouse, "lighthouse coast harbour harbor cape"),
    (Extra::Birds, "bird birds gull eagle crane swallow goose raven"),
    (Extra::Balloons, "balloon airship festival adventure"),
    (Extra::Boat, "boat ship sail sailing yacht sailboat"),
    (Extra::Cabin, "cabin house hut home cottage cosy cozy"),
];

/// What is drawn by lot where no word asks; birds twice, because they suit every place.
const LOTS: [Extra; 7] =
    [Extra::Birds, Extra::Balloons, Extra::Boat, Extra::Cabin, Extra::Lighthouse, Extra::Birds, Extra::Nothing];

const WATER: &str = "lake water river reflection reflecting pond fjord canal bay";
const SNOW: &str = "snow snowy winter ice icy frozen christmas glacier ski arctic penguin";
const CLOUDY: &str = "cloud cloudy storm stormy dramatic overcast rain";

impl Plan {
    /// The plan for one image of one prompt; the same prompt and index always give the same plan.
    pub(super) fn of(prompt: &str, index: u32) -> Self {
        let words = words(prompt);
        let dice = Dice::of(prompt, index);
        let mut lots = dice.fork(1);
        // Lots are drawn whether or not a word decides, so that what one list finds
        // does not shift the lots of the next.
        let place = *lots_or(&PLACES, &words, &mut lots);
        let drawn_mood = Mood::ALL[lots.pick(Mood::ALL.len())];
        let mood = find(&MOODS, &words).copied().unwrap_or(drawn_mood);
        let dye = find(&DYES, &words).copied().map(Colour::hex);
        let (wet, white, cloudy) = (lots.chance(0.55), lots.chance(0.3), lots.unit());
        let drawn_extra = LOTS[lots.pick(LOTS.len())];
        Self {
            place,
            mood,
            dye,
            water: any(WATER, &words) || place == Place::Sea || wet,
            snow: any(SNOW, &words) || white && place == Place::Mountain,
            clouds: if any(CLOUDY, &words) { 0.9 } else { 0.15 + 0.6 * cloudy },
            extra: find(&EXTRAS, &words).copied().unwrap_or(drawn_extra),
            dice,
        }
    }
}

/// The prompt's words in lower case; an English plural also counts as its singular.
pub(super) fn words(prompt: &str) -> Vec<String> {
    prompt
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .flat_map(|word| {
            let singular = word.strip_suffix('s').map(str::to_owned);
            [Some(word), singular].into_iter().flatten()
        })
        .collect()
}

/// Whether one of `list` is among `words`.
pub(super) fn any(list: &str, words: &[String]) -> bool {
    words.iter().any(|word| holds(list, word))
}

fn holds(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one == word)
}

/// What the first word that means anything means.
fn find<'a, T>(table: &'a [(T, &str)], words: &[String]) -> Option<&'a T> {
    words.iter().find_map(|word| {
        let row = table.iter().find(|(_, list)| holds(list, word));
        row.map(|(meaning, _)| meaning)
    })
}

fn lots_or<'a>(table: &'a [(Place, &str); 6], words: &[String], lots: &mut Dice) -> &'a Place {
    let drawn = &table[lots.pick(table.len())].0;
    find(table, words).unwrap_or(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_prompt_choose_place_mood_and_dye() {
        let plan = Plan::of("Red mountains at night, with a lake", 0);
        assert_eq!((plan.place, plan.mood, plan.water), (Place::Mountain, Mood::Night, true));
        assert_eq!(plan.dye, Some(Colour::hex(0xe0302a)));
        let plan = Plan::of("snowy CITY at dusk", 3);
        assert_eq!((plan.place, plan.mood, plan.snow), (Place::City, Mood::Dusk, true));
    }

    #[test]
    fn a_prompt_without_known_words_still_varies_with_the_index() {
        let plans: Vec<_> =
            (0..10).map(|index| Plan::of("qwertz", index)).map(|plan| (plan.place, plan.mood)).collect();
        assert!(plans.iter().any(|plan| *plan != plans[0]));
    }
}
