//! Colours and the moods made of them.
//!
//! Decides which colours go together at which time of day, and how a colour word bends them.
//! Refuses to know shapes.

use super::number::mix;

/// Red, green and blue from 0.0 to 255.0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Colour(pub(super) [f32; 3]);

impl Colour {
    pub(super) const fn hex(rgb: u32) -> Self {
        let [_, red, green, blue] = rgb.to_be_bytes();
        Self([red as f32, green as f32, blue as f32])
    }

    /// `self` at 0, `other` at 1.
    pub(super) fn mix(self, other: Self, t: f32) -> Self {
        let ([a, b, c], [d, e, f]) = (self.0, other.0);
        Self([mix(a, d, t), mix(b, e, t), mix(c, f, t)])
    }

    /// `other` as light on top.
    pub(super) fn plus(self, other: Self, strength: f32) -> Self {
        let ([a, b, c], [d, e, f]) = (self.0, other.0);
        Self([a + d * strength, b + e * strength, c + f * strength])
    }

    pub(super) fn times(self, factor: f32) -> Self {
        Self(self.0.map(|channel| channel * factor))
    }

    pub(super) fn brightness(self) -> f32 {
        let [red, green, blue] = self.0;
        0.299 * red + 0.587 * green + 0.114 * blue
    }

    /// Leans towards the hue of `tint` and keeps its own brightness.
    pub(super) fn tinted(self, tint: Self, strength: f32) -> Self {
        let own = self.brightness();
        let dyed = tint.times(own / tint.brightness().max(1.0));
        // What a saturated dye cannot hold in one channel is given back as white.
        let spill = dyed.0.iter().fold(0.0_f32, |most, channel| most.max(channel - 255.0));
        self.mix(Self(dyed.0.map(|channel| (channel + spill * 0.6).min(255.0))), strength)
    }
}

/// The colours of one time of day.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    /// From the top of the sky to the horizon.
    pub(super) sky: [Colour; 4],
    /// Sun or moon.
    pub(super) light: Colour,
    /// The lit and the shaded side of clouds.
    pub(super) cloud: [Colour; 2],
    /// The farthest and the nearest ground.
    pub(super) ground: [Colour; 2],
    /// What hangs in the valleys.
    pub(super) mist: Colour,
    /// What deep water adds.
    pub(super) water: Colour,
    /// Stars are out and windows are lit.
    pub(super) night: bool,
}

/// The time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    Dawn,
    Day,
    Golden,
    Dusk,
    Violet,
    Night,
    Aurora,
    Misty,
}

impl Mood {
    pub(super) const ALL: [Self; 8] =
        [Self::Dawn, Self::Day, Self::Golden, Self::Dusk, Self::Violet, Self::Night, Self::Aurora, Self::Misty];

    pub(super) fn palette(self) -> Palette {
        match self {
            Self::Dawn => palette(
                [0x5679b4, 0x9fb0d8, 0xf2c1be, 0xffe4bb],
                [0xfff3d6, 0xfff0e2, 0xc8a4bd],
                [0xb99cb8, 0x2b3050, 0xf6d5c4, 0x3f5a86],
            ),
            Self::Day => palette(
                [0x2a73c2, 0x5aa6e0, 0xa9d8f3, 0xe9f6f5],
                [0xfffdf0, 0xffffff, 0xbccfe2],
                [0x8fb4cc, 0x1d4a3c, 0xdcedf0, 0x1c5f86],
            ),
            Self::Golden => palette(
                [0x3a6296, 0xc99a82, 0xf9bd6b, 0xffe6a6],
                [0xfff6d2, 0xffe9bd, 0xb98577],
                [0xc08a72, 0x38222f, 0xfbd79a, 0x5d5066],
            ),
            Self::Dusk => palette(
                [0x1c2355, 0x5d3a7c, 0xd65c70, 0xffb469],
                [0xffe9b4, 0xffb489, 0x6b3d76],
                [0x8a4a78, 0x160f2a, 0xe58a72, 0x2a2556],
            ),
            Self::Violet => palette(
                [0x17163a, 0x3c3078, 0x8a59aa, 0xf2aacb],
                [0xffeef4, 0xf3b6d8, 0x553e8a],
                [0x76549c, 0x130f2c, 0xc68dbd, 0x2a2560],
            ),
            Self::Night => night(palette(
                [0x050a1f, 0x0b1a40, 0x1b3768, 0x446a96],
                [0xfbf6e0, 0x5f7ba6, 0x14264c],
                [0x2d4c76, 0x040916, 0x4d739c, 0x0a1c3c],
            )),
            Self::Aurora => night(palette(
                [0x040918, 0x071a33, 0x0c3a4c, 0x2b7470],
                [0xf3fbf0, 0x3f7a80, 0x0d2c3c],
                [0x1f5560, 0x030b12, 0x3c8680, 0x06222f],
            )),
            Self::Misty => palette(
                [0x6b8a97, 0x9ab5ba, 0xc9d7d3, 0xefefe6],
                [0xffffff, 0xf6f8f4, 0xb4c3c6],
                [0xa6bcbf, 0x1e3639, 0xe6ebe4, 0x4f7178],
            ),
        }
    }
}

fn palette(sky: [u32; 4], [light, cloud_lit, cloud_shade]: [u32; 3], [far, near, mist, water]: [u32; 4]) -> Palette {
    Palette {
        sky: sky.map(Colour::hex),
        light: Colour::hex(light),
        cloud: [Colour::hex(cloud_lit), Colour::hex(cloud_shade)],
        ground: [Colour::hex(far), Colour::hex(near)],
        mist: Colour::hex(mist),
        water: Colour::hex(water),
        night: false,
    }
}

fn night(palette: Palette) -> Palette {
    Palette { night: true, ..palette }
}

impl Palette {
    /// The sky's colour at `t` from 0 at the top to 1 at the horizon.
    pub(super) fn sky_at(&self, t: f32) -> Colour {
        let [top, high, low, horizon] = self.sky;
        if t < 0.4 {
            top.mix(high, t / 0.4)
        } else if t < 0.76 {
            high.mix(low, (t - 0.4) / 0.36)
        } else {
            low.mix(horizon, ((t - 0.76) / 0.24).min(1.0))
        }
    }

    /// The ground's colour at `near` from 0 far away to 1 at our feet.
    pub(super) fn ground_at(&self, near: f32) -> Colour {
        let [far, close] = self.ground;
        far.mix(close, near)
    }

    /// Grows grass on the ground, as bright as the ground was.
    pub(super) fn green(mut self) -> Self {
        let [far, near] = self.ground;
        let grass = if self.night { 0.35 } else { 0.72 };
        self.ground = [
            far.tinted(Colour::hex(0x7fb069), grass * 0.7),
            near.plus(Colour::hex(0x2f4a10), 0.35).tinted(Colour::hex(0x4f8a3a), grass),
        ];
        self.mist = self.mist.tinted(Colour::hex(0xcfe0a8), grass * 0.6);
        self
    }

    /// Lays snow on the ground.
    pub(super) fn white(mut self) -> Self {
        let [far, near] = self.ground;
        let snow = self.cloud[0].mix(self.cloud[1], 0.2);
        self.ground = [far.mix(snow, 0.6), near.mix(snow, 0.28)];
        self
    }

    /// Dyes everything; the light keeps most of its own warmth.
    pub(super) fn tinted(mut self, tint: Colour, strength: f32) -> Self {
        let dye = |colour: Colour| colour.tinted(tint, strength);
        self.sky = self.sky.map(dye);
        self.cloud = self.cloud.map(dye);
        self.ground = self.ground.map(dye);
        self.mist = dye(self.mist);
        self.water = dye(self.water);
        // The light keeps some of its own warmth, or the picture becomes one flat colour.
        self.light = self.light.tinted(tint, strength * 0.4);
        self
    }
}
