//! Houses.
//!
//! Decides how a row of towers stands and which windows are lit.
//! Refuses to know what is in front of and behind it.

use super::canvas::Canvas;
use super::colour::Colour;
use super::land::Haze;
use super::number::{Dice, curve, floor, step};

/// One row of towers.
pub(super) struct Street<'a> {
    pub(super) haze: Haze<'a>,
    /// The row the towers stand on.
    pub(super) ground: f32,
    /// Smallest and largest width and height, in units.
    pub(super) width: (f32, f32),
    pub(super) height: (f32, f32),
    /// Share of lit windows; none are drawn at 0.
    pub(super) lit: f32,
}

#[derive(Clone, Copy)]
struct Tower {
    left: f32,
    right: f32,
    top: f32,
    seed: u32,
}

impl Street<'_> {
    /// Builds the row from the left edge to the right.
    pub(super) fn paint(&self, canvas: &mut Canvas, dice: &mut Dice) {
        let unit = canvas.unit;
        let centre = dice.seed();
        let mut left = -30.0 * unit;
        while left < canvas.width as f32 {
            let width = dice.between(self.width.0, self.width.1) * unit;
            let x = (left + width * 0.5) / unit;
            // Towers gather where the curve is high, so the row has a centre and outskirts.
            let rank = curve(centre, x * 0.0042) * 0.75 + 0.25 * dice.unit();
            let height = self.height.0 + (self.height.1 - self.height.0) * rank * dice.between(0.45, 1.0);
            let tower = Tower { left, right: left + width, top: self.ground - height * unit, seed: dice.seed() };
            self.tower(canvas, tower);
            left += width * dice.between(0.72, 1.12);
        }
    }

    fn tower(&self, canvas: &mut Canvas, tower: Tower) {
        let unit = canvas.unit;
        self.roof(canvas, tower);
        let own = self.haze.palette.ground_at(self.haze.near).times(0.88 + 0.24 * step(tower.seed, 1.0, 0.0));
        let shade = own.times(0.82);
        let turn = tower.left + (tower.right - tower.left) * (0.55 + 0.35 * step(tower.seed, 2.0, 0.0));
        // Whole pixels, or narrow windows would flicker between one and two pixels wide.
        let pitch = (floor(9.0 * unit).max(4), floor(12.0 * unit).max(5));
        let start = (floor(tower.left) + pitch.0 / 2, floor(tower.top) + pitch.1);
        let inner = (floor(tower.right) - pitch.0 / 2, floor(self.ground));
        canvas.shape(
            (tower.top, self.ground),
            |_| (tower.left, tower.right),
            |x, y| {
                let wall = if (x as f32) < turn { own } else { shade };
                let inside = x >= start.0 && x < inner.0 && y >= start.1 && y < inner.1;
                let colour =
                    if inside { self.window(wall, (x - start.0, y - start.1), pitch, tower.seed) } else { wall };
                self.haze.over(colour, y as f32)
            },
        );
    }

    fn window(&self, wall: Colour, (x, y): (i32, i32), pitch: (i32, i32), seed: u32) -> Colour {
        let pane = x % pitch.0 < pitch.0 * 3 / 5 && y % pitch.1 < pitch.1 * 3 / 5;
        if !pane || self.lit <= 0.0 {
            return wall;
        }
        let (column, floor) = ((x / pitch.0) as f32, (y / pitch.1) as f32);
        let lot = step(seed ^ 0xa5, column, floor);
        if lot < self.lit {
            let warm = Colour::hex(0xffc46b).mix(Colour::hex(0xfff0c8), step(seed, column, floor));
            return warm.mix(wall, lot / self.lit * 0.45);
        }
        wall.mix(self.haze.palette.sky[1], 0.16)
    }

    fn roof(&self, canvas: &mut Canvas, tower: Tower) {
        let Tower { left, right, top, seed } = tower;
        let unit = canvas.unit;
        let kind = step(seed, 5.0, 0.0);
        let (middle, width) = ((left + right) * 0.5, right - left);
        let paint = |_: i32, y: i32| self.haze.at(y as f32);
        if kind < 0.22 {
            // A step back and a mast.
            let cap = top - 14.0 * unit;
            canvas.shape((cap, top + 1.0), |_| (left + width * 0.2, right - width * 0.2), paint);
            canvas.shape((cap - 42.0 * unit, cap), |_| (middle - 0.8 * unit, middle + 0.8 * unit), paint);
        } else if kind < 0.34 {
            let tip = top - width * 0.8;
            let slope = |y: f32| {
                let half = (y - tip) / (top - tip) * width * 0.5;
                (middle - half, middle + half)
            };
            canvas.shape((tip, top + 1.0), slope, paint);
        } else if kind < 0.5 {
            let tank = (left + width * 0.25, left + width * 0.6);
            canvas.shape((top - 8.0 * unit, top + 1.0), |_| tank, paint);
        }
    }
}
