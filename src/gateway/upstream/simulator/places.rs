//! The six places, each a list of layers from the far end to our feet.
//!
//! Decides what stands where in a landscape.
//! Refuses to know how a layer is painted; each kind of layer has its own file.

use super::canvas::Canvas;
use super::colour::Colour;
use super::land::{self, Faces};
use super::massif::Massif;
use super::number::{Dice, floor};
use super::plants::{self, Growth};
use super::scene::Scene;
use super::skyline::{self, Skyline};
use super::water::Water;
use super::words::Extra;
use super::{city, extras};

impl Scene<'_> {
    pub(super) fn mountain(&self, canvas: &mut Canvas) {
        let mut dice = self.dice(21);
        let (base, tall) = (self.horizon, self.horizon / self.unit);
        for (near, share, mist) in [(0.06, 0.5, 0.75), (0.2, 0.44, 0.7)] {
            let line = self.peaks(canvas, (base, tall * share), 0.0042, dice.seed());
            let haze = self.haze(near, line.top, base, mist);
            land::plain(canvas, self.range(&line, haze, base + 1.0));
        }
        let main = dice.between(0.52, 0.62);
        self.massif(canvas, &mut dice, tall * main);
        self.extra_above(canvas);
        for (near, share, trees, home) in [(0.6, 0.17, 22.0, false), (0.78, 0.1, 34.0, true)] {
            let line = self.hills(canvas, (base + 4.0 * self.unit, tall * share), 0.005, dice.seed());
            let haze = self.haze(near, line.top - trees * self.unit, base + 60.0 * self.unit, 0.6);
            let growth = Growth { spacing: 6.0, height: (trees * 0.5, trees), share: 0.72 };
            plants::conifers(canvas, &line, growth, &haze, &mut dice);
            let bottom = if self.plan.water { base + 1.0 } else { self.height };
            land::plain(canvas, self.range(&line, haze, bottom));
            if home {
                self.cabin(canvas, &line, 32.0, &mut dice);
            }
        }
        self.front(canvas, &mut dice);
    }

    fn massif(&self, canvas: &mut Canvas, dice: &mut Dice, tall: f32) {
        let top = self.horizon - tall * self.unit * 0.7;
        let haze = self.haze(0.36, top, self.horizon, 0.8);
        let massif =
            Massif { haze, light: self.light, base: self.horizon, tall, snow: self.plan.snow, octaves: self.octaves };
        massif.paint(canvas, dice);
    }

    pub(super) fn sea(&self, canvas: &mut Canvas) {
        let mut dice = self.dice(22);
        let base = self.horizon;
        for (near, tall) in [(0.1, 62.0), (0.28, 44.0)] {
            let seed = dice.seed();
            let (unit, octaves) = (self.unit, self.octaves);
            let line = Skyline::new(canvas, |x| {
                // Below zero there is open sea, so the range falls apart into islands.
                let land = skyline::peaks(seed, x * 0.0031, octaves) - 0.42;
                base + 2.0 * unit - land.max(-0.1) * tall * 2.4 * unit
            });
            let haze = self.haze(near, line.top, base, 0.6);
            land::plain(canvas, self.range(&line, haze, base + 1.0));
        }
        self.extra_above(canvas);
        if self.plan.extra == Extra::Lighthouse {
            let left = self.light.x > canvas.width as f32 * 0.5;
            let x = canvas.width as f32 * if left { dice.between(0.14, 0.3) } else { dice.between(0.7, 0.86) };
            extras::lighthouse(canvas, (x, base + 1.0), 210.0 * self.unit, &self.palette);
        }
        let shore = floor(base);
        Water { palette: &self.palette, light: self.light, shore, rough: 1.0 }.paint(canvas, &mut dice);
        self.extra_on_water(canvas);
        let line = self.bank(canvas, 0.975, dice.seed());
        let haze = self.haze(1.0, self.height, self.height * 1.2, 0.0);
        plants::grass(canvas, &line, 44.0, self.palette.ground[1], &mut dice);
        land::plain(canvas, self.range(&line, haze, self.height));
    }

    pub(super) fn forest(&self, canvas: &mut Canvas) {
        let mut dice = self.dice(23);
        let tall = self.horizon / self.unit;
        let line = self.peaks(canvas, (self.horizon, tall * 0.5), 0.0038, dice.seed());
        let haze = self.haze(0.1, line.top, self.horizon, 0.85);
        land::plain(canvas, self.range(&line, haze, self.height));
        self.extra_above(canvas);
        let rows = [
            (0.26, 0.74, 30.0, false),
            (0.42, 0.83, 48.0, false),
            (0.6, 0.93, 76.0, true),
            (0.78, 1.05, 120.0, false),
            (0.95, 1.2, 190.0, false),
        ];
        for (near, level, trees, home) in rows {
            let base = self.horizon * level;
            let line = self.hills(canvas, (base, tall * 0.12), 0.004, dice.seed());
            let haze = self.haze(
                near,
                line.top - trees * 0.4 * self.unit,
                line.top + (trees + 90.0) * self.unit,
                0.9 - near * 0.6,
            );
            let growth = Growth { spacing: trees * 0.22, height: (trees * 0.55, trees * 1.15), share: 0.78 };
            land::plain(canvas, self.range(&line, haze, self.height));
            plants::conifers(canvas, &line, growth, &haze, &mut dice);
            if home {
                self.cabin(canvas, &line, 58.0, &mut dice);
            }
        }
        self.front_dry(canvas, &mut dice, 40.0);
    }

    pub(super) fn city(&self, canvas: &mut Canvas) {
        let mut dice = self.dice(24);
        let (base, tall) = (self.horizon, self.horizon / self.unit);
        let line = self.hills(canvas, (base, tall * 0.3), 0.003, dice.seed());
        let haze = self.haze(0.06, line.top, base, 0.8);
        land::plain(canvas, self.range(&line, haze, self.height));
        self.extra_above(canvas);
        let lit = if self.palette.night { 0.5 } else { 0.3 - self.palette.sky[0].brightness() / 700.0 };
        let rows =
            [(0.14, 0.62, (16.0, 40.0), 0.0), (0.38, 0.52, (24.0, 54.0), lit * 0.7), (0.74, 0.36, (34.0, 72.0), lit)];
        for (near, share, width, lit) in rows {
            let haze =
                self.haze(near, base - tall * share * self.unit * 0.8, base + 30.0 * self.unit, 0.85 - near * 0.55);
            let height = (tall * share * 0.22, tall * share);
            city::Street { haze, ground: base + 1.0, width, height, lit }.paint(canvas, &mut dice);
        }
        self.quay(canvas, &mut dice);
        let shore = floor(base);
        Water { palette: &self.palette, light: self.light, shore, rough: 0.6 }.paint(canvas, &mut dice);
        self.extra_on_water(canvas);
        self.front_dry(canvas, &mut dice, 18.0);
    }

    /// A dark embankment with trees, so that the towers do not grow out of the water.
    fn quay(&self, canvas: &mut Canvas, dice: &mut Dice) {
        let (base, unit) = (self.horizon, self.unit);
        let line = Skyline::new(canvas, |_| base - 9.0 * unit);
        let haze = self.haze(0.92, base, base * 1.1, 0.0);
        let growth = Growth { spacing: 15.0, height: (18.0, 34.0), share: 0.6 };
        plants::broadleaves(canvas, &line, growth, &haze, (self.light.x, dice));
        land::plain(canvas, self.range(&line, haze, base + 1.0));
    }

    pub(super) fn desert(&self, canvas: &mut Canvas) {
        let mut dice = self.dice(25);
        let tall = self.horizon / self.unit;
        let sand = Colour::hex(0xd99a55);
        let line = self.peaks(canvas, (self.horizon * 1.02, tall * 0.22), 0.0045, dice.seed());
        let haze = self.haze(0.1, line.top, self.horizon, 0.8);
        land::plain(canvas, self.range(&line, haze, self.height));
        self.extra_above(canvas);
        let unit = self.unit;
        for (order, level) in [1.06, 1.16, 1.3, 1.5].into_iter().enumerate() {
            let near = 0.15 + 0.24 * order as f32;
            let (seed, base) = (dice.seed(), self.horizon * level);
            let (tall, pitch) = (66.0 + 42.0 * order as f32, 0.0042 - 0.0006 * order as f32);
            let line = Skyline::new(canvas, |x| base - skyline::dunes(seed, x * pitch) * tall * unit);
            let haze = self.haze(near, line.top, base + 110.0 * unit, 0.55 - near * 0.4);
            let own = self.dyed(sand).mix(self.palette.ground_at(near), 0.12 + near * 0.16);
            let dim = if self.palette.night { 0.58 } else { 1.0 };
            // By moonlight sand is hardly more than a warmer blue.
            let own = if self.palette.night { own.times(0.7).mix(self.palette.sky[3], 0.68) } else { own };
            let faces = Faces {
                lit: own.times(dim).mix(self.palette.light, 0.24 * dim),
                shade: own.times(dim * 0.5).mix(self.palette.ground[1], 0.3),
            };
            let lean = if order % 2 == 0 { 0.5 } else { -0.5 };
            land::dunes(canvas, self.range(&line, haze, self.height), faces, lean);
        }
    }

    pub(super) fn meadow(&self, canvas: &mut Canvas) {
        let mut dice = self.dice(26);
        let tall = self.horizon / self.unit;
        for (near, share) in [(0.05, 0.34), (0.16, 0.24)] {
            let line = self.peaks(canvas, (self.horizon, tall * share), 0.0036, dice.seed());
            let haze = self.haze(near, line.top, self.horizon, 0.75);
            land::plain(canvas, self.range(&line, haze, self.height));
        }
        self.extra_above(canvas);
        let dim = if self.palette.night { 0.4 } else { 0.95 };
        let rows =
            [(0.34, 1.03, 20.0, false), (0.52, 1.13, 34.0, true), (0.7, 1.27, 58.0, false), (0.88, 1.46, 0.0, false)];
        for (near, level, trees, home) in rows {
            let base = self.horizon * level;
            let line = self.hills(canvas, (base, 90.0), 0.0042, dice.seed());
            let haze = self.haze(near, line.top, base + 90.0 * self.unit, 0.4 - near * 0.3);
            if trees > 0.0 {
                let growth = Growth { spacing: trees * 0.9, height: (trees * 0.7, trees * 1.3), share: 0.42 };
                plants::broadleaves(canvas, &line, growth, &haze, (self.light.x, &mut dice));
            }
            land::plain(canvas, self.range(&line, haze, self.height));
            if near > 0.6 && !self.plan.snow {
                plants::flowers(canvas, &line, self.height, dim, &mut dice);
            }
            if home {
                self.cabin(canvas, &line, 46.0, &mut dice);
            }
        }
        self.front_dry(canvas, &mut dice, 46.0);
    }
}
