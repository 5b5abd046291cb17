//! The composition that all places share.
//!
//! Decides palette, horizon and light, and offers the layers that more than one place needs.
//! Refuses to know the order of a place's layers; that is `places`.

use super::canvas::Canvas;
use super::colour::{Colour, Palette};
use super::land::{self, Haze, Range};
use super::number::{Dice, floor};
use super::plants::{self, Growth};
use super::sky::{Light, Sky};
use super::skyline::{self, Skyline};
use super::water::Water;
use super::words::{Extra, Place, Plan};
use super::{Detail, extras};

/// What every layer needs to know.
pub(super) struct Scene<'a> {
    pub(super) plan: &'a Plan,
    pub(super) palette: Palette,
    pub(super) light: Light,
    /// Where the farthest land or the water begins.
    pub(super) horizon: f32,
    pub(super) octaves: u32,
    pub(super) height: f32,
    pub(super) unit: f32,
}

/// Paints the whole picture, without the label.
pub(super) fn paint(canvas: &mut Canvas, plan: &Plan, detail: Detail) {
    let scene = Scene::new(canvas, plan, detail);
    let sky = Sky {
        palette: &scene.palette,
        mood: plan.mood,
        light: scene.light,
        horizon: scene.horizon,
        clouds: plan.clouds,
        cells: detail.choose(150, 220, 320),
        octaves: detail.choose(4, 5, 6),
    };
    sky.paint(canvas, &plan.dice);
    match plan.place {
        Place::Mountain => scene.mountain(canvas),
        Place::Sea => scene.sea(canvas),
        Place::Forest => scene.forest(canvas),
        Place::City => scene.city(canvas),
        Place::Desert => scene.desert(canvas),
        Place::Meadow => scene.meadow(canvas),
    }
}

impl<'a> Scene<'a> {
    fn new(canvas: &Canvas, plan: &'a Plan, detail: Detail) -> Self {
        let mut dice = plan.dice.fork(2);
        let palette = plan.mood.palette();
        let palette = match (plan.place, plan.snow) {
            (Place::Meadow | Place::Forest, true) => palette.white(),
            (Place::Meadow, false) => palette.green(),
            (Place::Mountain | Place::Sea | Place::Forest | Place::City | Place::Desert, _) => palette,
        };
        let palette = match plan.dye {
            Some(dye) => palette.tinted(dye, 0.62),
            None => palette,
        };
        let (width, height, unit) = (canvas.width as f32, canvas.height as f32, canvas.unit);
        let level = match plan.place {
            Place::Mountain | Place::City => dice.between(0.66, 0.71),
            Place::Sea => dice.between(0.54, 0.6),
            Place::Forest => dice.between(0.7, 0.76),
            Place::Desert | Place::Meadow => dice.between(0.6, 0.66),
        };
        let horizon = height * level;
        let side = if dice.chance(0.5) { dice.between(0.22, 0.42) } else { dice.between(0.58, 0.78) };
        let rise = if palette.night { dice.between(0.2, 0.42) } else { dice.between(0.36, 0.7) };
        let radius = if palette.night { dice.between(27.0, 40.0) } else { dice.between(32.0, 50.0) };
        let light = Light { x: width * side, y: horizon * rise, radius: radius * unit };
        Self { plan, palette, light, horizon, octaves: detail.choose(5, 6, 8), height, unit }
    }

    pub(super) fn dice(&self, part: u64) -> Dice {
        self.plan.dice.fork(part)
    }

    /// The air in front of a layer between two rows.
    pub(super) fn haze(&self, near: f32, top: f32, base: f32, mist: f32) -> Haze<'_> {
        Haze { palette: &self.palette, near, top, base, mist }
    }

    pub(super) fn range<'b>(&'b self, line: &'b Skyline, haze: Haze<'b>, bottom: f32) -> Range<'b> {
        Range { line, haze, bottom: floor(bottom), light: self.light }
    }

    /// Jagged mountains, `tall` units high, standing on row `base`.
    pub(super) fn peaks(&self, canvas: &Canvas, (base, tall): (f32, f32), pitch: f32, seed: u32) -> Skyline {
        let (unit, octaves) = (self.unit, self.octaves);
        Skyline::new(canvas, |x| base - skyline::peaks(seed, x * pitch, octaves) * tall * unit)
    }

    /// Soft hills, `tall` units high, standing on row `base`.
    pub(super) fn hills(&self, canvas: &Canvas, (base, tall): (f32, f32), pitch: f32, seed: u32) -> Skyline {
        let (unit, octaves) = (self.unit, self.octaves.min(4));
        Skyline::new(canvas, |x| base - skyline::hills(seed, x * pitch, octaves) * tall * unit)
    }

    /// A bank at our feet that rises towards both edges and so frames the picture.
    pub(super) fn bank(&self, canvas: &Canvas, level: f32, seed: u32) -> Skyline {
        let (unit, base, width) = (self.unit, self.height * level, canvas.width as f32 / self.unit);
        Skyline::new(canvas, |x| {
            let side = (x / width * 2.0 - 1.0).abs();
            base - (side * side * 46.0 + skyline::hills(seed, x * 0.009, 4) * 34.0) * unit
        })
    }

    /// Water, if there is any, and the dark bank in front.
    pub(super) fn front(&self, canvas: &mut Canvas, dice: &mut Dice) {
        if self.plan.water {
            let shore = floor(self.horizon);
            Water { palette: &self.palette, light: self.light, shore, rough: 0.25 }.paint(canvas, dice);
            self.extra_on_water(canvas);
        }
        let line = self.bank(canvas, 0.965, dice.seed());
        let haze = self.haze(1.0, self.height, self.height * 1.2, 0.0);
        let edges = Growth { spacing: 30.0, height: (70.0, 190.0), share: 0.45 };
        plants::conifers(canvas, &line, edges, &haze, dice);
        plants::grass(canvas, &line, 26.0, self.palette.ground[1], dice);
        land::plain(canvas, self.range(&line, haze, self.height));
    }

    pub(super) fn dyed(&self, colour: Colour) -> Colour {
        match self.plan.dye {
            Some(dye) => colour.tinted(dye, 0.6),
            None => colour,
        }
    }

    /// A cabin of `size` units somewhere on the line, if the plan has one.
    pub(super) fn cabin(&self, canvas: &mut Canvas, line: &Skyline, size: f32, dice: &mut Dice) {
        if self.plan.extra == Extra::Cabin {
            let x = canvas.width as f32 * dice.between(0.3, 0.7);
            extras::cabin(canvas, (x, line.at(x)), size * self.unit, &self.palette);
        }
    }

    /// Grass at our feet, where there is no water.
    pub(super) fn front_dry(&self, canvas: &mut Canvas, dice: &mut Dice, grass: f32) {
        let line = self.bank(canvas, 0.985, dice.seed());
        let haze = self.haze(1.0, self.height, self.height * 1.2, 0.0);
        plants::grass(canvas, &line, grass, self.palette.ground[1], dice);
        land::plain(canvas, self.range(&line, haze, self.height));
    }

    /// What flies is painted behind the nearer land.
    pub(super) fn extra_above(&self, canvas: &mut Canvas) {
        let mut dice = self.dice(31);
        let width = canvas.width as f32;
        match self.plan.extra {
            Extra::Birds => {
                let dark = self.palette.ground_at(0.8);
                let place = (width * dice.between(0.3, 0.7), self.horizon * dice.between(0.28, 0.5));
                extras::birds(canvas, place, dark, &mut dice);
            }
            Extra::Balloons => {
                let rows = (self.horizon * 0.2, self.horizon * 0.55);
                extras::balloons(canvas, (width * 0.1, width * 0.9), rows, &self.palette, &mut dice);
            }
            Extra::Nothing | Extra::Boat | Extra::Cabin | Extra::Lighthouse => {}
        }
    }

    pub(super) fn extra_on_water(&self, canvas: &mut Canvas) {
        if self.plan.extra != Extra::Boat {
            return;
        }
        let mut dice = self.dice(32);
        let side =
            if self.light.x < canvas.width as f32 * 0.5 { dice.between(0.55, 0.8) } else { dice.between(0.2, 0.45) };
        let depth = dice.between(0.1, 0.3);
        let y = self.horizon + (self.height - self.horizon) * depth;
        let size = (52.0 + 150.0 * depth) * self.unit;
        extras::boat(canvas, (canvas.width as f32 * side, y), size, &self.palette);
    }
}
