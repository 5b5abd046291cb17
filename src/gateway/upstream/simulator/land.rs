//! Ground under a skyline: mist in the valleys, rock faces, snow.
//!
//! Decides how a range of mountains, hills or dunes is shaded.
//! Refuses to know where ranges stand; that is the scene's.

use super::canvas::Canvas;
use super::colour::{Colour, Palette};
use super::number::{curve, floor, ramp, smooth};
use super::sky::Light;
use super::skyline::Skyline;

/// How the air in front of a range colours it.
#[derive(Clone, Copy)]
pub(super) struct Haze<'a> {
    pub(super) palette: &'a Palette,
    /// 0 far away, 1 at our feet.
    pub(super) near: f32,
    /// The row where the mist begins and the row where it is thickest.
    pub(super) top: f32,
    pub(super) base: f32,
    pub(super) mist: f32,
}

impl Haze<'_> {
    /// The ground's own colour seen through the mist of row `y`.
    pub(super) fn at(&self, y: f32) -> Colour {
        self.over(self.palette.ground_at(self.near), y)
    }

    /// Any colour seen through the mist of row `y`.
    pub(super) fn over(&self, colour: Colour, y: f32) -> Colour {
        colour.mix(self.palette.mist, smooth(self.top, self.base, y) * self.mist)
    }

    pub(super) fn rows(&self, canvas: &Canvas, colour: Colour) -> Vec<Colour> {
        (0..canvas.height).map(|y| self.over(colour, y as f32)).collect()
    }
}

/// One range of land: its line, the air in front of it, where it ends, and where the light stands.
#[derive(Clone, Copy)]
pub(super) struct Range<'a> {
    pub(super) line: &'a Skyline,
    pub(super) haze: Haze<'a>,
    pub(super) bottom: i32,
    pub(super) light: Light,
}

/// Flat ground: one colour per row, warmer under the light.
pub(super) fn plain(canvas: &mut Canvas, range: Range<'_>) {
    let Range { line, haze, bottom, light } = range;
    let rows = haze.rows(canvas, haze.palette.ground_at(haze.near));
    let shine = shine(canvas, &haze, light);
    let glow = haze.palette.light.mix(haze.palette.sky[3], 0.5);
    canvas.under(line, bottom, |x, y, _| at(&rows, y).mix(glow, at(&shine, x)));
}

/// How much light spills over a range in each column.
fn shine(canvas: &Canvas, haze: &Haze<'_>, light: Light) -> Vec<f32> {
    let far = 1.0 - haze.near;
    let most = far * if haze.palette.night { 0.16 } else { 0.34 };
    (0..canvas.width)
        .map(|x| {
            let away = (x as f32 - light.x) / (190.0 * canvas.unit);
            most / (1.0 + away * away)
        })
        .collect()
}

/// What a slope turned to the light and one turned away look like.
#[derive(Clone, Copy)]
pub(super) struct Faces {
    pub(super) lit: Colour,
    pub(super) shade: Colour,
}

/// Dunes: the slope of the line decides the side, and crests run down to one side in a long bow.
pub(super) fn dunes(canvas: &mut Canvas, range: Range<'_>, faces: Faces, lean: f32) {
    let Range { line, haze, bottom, light } = range;
    let unit = canvas.unit;
    let (lit, shade) = (haze.rows(canvas, faces.lit), haze.rows(canvas, faces.shade));
    let slopes = slopes(canvas, line, 6.0 * unit, light);
    let crest: Vec<f32> = (0..canvas.height)
        .map(|depth| {
            let depth = depth as f32 / unit;
            let bow = curve(31, depth * 0.02) - curve(31, 0.0);
            (depth * lean + bow * 22.0) * unit
        })
        .collect();
    canvas.under(line, bottom, |x, y, depth| {
        let slope = at(&slopes, x + floor(at(&crest, floor(depth))));
        let soft = 0.06 + 0.0007 * depth / unit;
        let side = smooth(0.5 - soft, 0.5 + soft, slope);
        at(&shade, y).mix(at(&lit, y), side * (1.0 - ramp(0.0, 900.0 * unit, depth) * 0.3))
    });
}

/// The entry at `index`, the nearest one outside; a table is never empty.
pub(super) fn at<T: Copy + Default>(values: &[T], index: i32) -> T {
    let last = values.len().saturating_sub(1);
    values.get((index.max(0) as usize).min(last)).copied().unwrap_or_default()
}

/// For every column from 0, turned away from the light, to 1, turned towards it.
fn slopes(canvas: &Canvas, line: &Skyline, span: f32, light: Light) -> Vec<f32> {
    (0..canvas.width)
        .map(|x| {
            let x = x as f32;
            let rise = (line.at(x - span) - line.at(x + span)) / (2.0 * span);
            let towards = ((light.x - x) / (120.0 * canvas.unit)).clamp(-1.0, 1.0);
            (0.5 + rise * towards * 0.9).clamp(0.0, 1.0)
        })
        .collect()
}
