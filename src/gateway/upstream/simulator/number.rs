//! Small arithmetic that every part of the picture uses.
//!
//! Decides how numbers are rounded, clamped and drawn by lot.
//! Refuses the platform's sines, powers and random numbers: only `+ - * /` and square roots,
//! which IEEE 754 fixes to the bit, so the same prompt is the same picture on every machine.

/// The largest whole number not above `value`.
#[expect(clippy::cast_possible_truncation, reason = "float to integer casts saturate, and coordinates are small")]
pub(super) fn floor(value: f32) -> i32 {
    let cut = value as i32;
    if value < cut as f32 { cut - 1 } else { cut }
}

/// A colour value from 0.0 to 255.0 as a byte.
#[expect(
    clippy::cast_possible_truncation,
    reason = "float to integer casts saturate, which is the clamping wanted here"
)]
pub(super) fn byte(value: f32) -> u8 {
    value as u8
}

/// 0 below `from`, 1 above `to`, straight between.
pub(super) fn ramp(from: f32, to: f32, value: f32) -> f32 {
    ((value - from) / (to - from)).clamp(0.0, 1.0)
}

/// Like `ramp`, with soft ends.
pub(super) fn smooth(from: f32, to: f32, value: f32) -> f32 {
    let t = ramp(from, to, value);
    t * t * (3.0 - 2.0 * t)
}

/// `a` at 0, `b` at 1.
pub(super) fn mix(a: f32, b: f32, t: f32) -> f32 {
    a + (b - a) * t
}

/// A cheap stand-in for a sine of period 1, from -1 to 1.
pub(super) fn wave(phase: f32) -> f32 {
    let t = phase - floor(phase) as f32;
    let half = if t < 0.5 { t * 2.0 } else { (t - 0.5) * 2.0 };
    let bow = 4.0 * half * (1.0 - half);
    if t < 0.5 { bow } else { -bow }
}

/// A reproducible series of draws.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// The series of one image of one prompt.
    pub(super) fn of(prompt: &str, index: u32) -> Self {
        // FNV-1a, because it is short and fixed for ever; `std`'s hasher promises neither.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in prompt.bytes().chain(index.to_le_bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Self(hash)
    }

    /// A series of its own for one part of the picture, so that a change in one part
    /// does not move everything that is drawn after it.
    pub(super) fn fork(&self, part: u64) -> Self {
        let mut dice = Self(self.0 ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self(dice.next() ^ part)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A seed for a noise.
    pub(super) fn seed(&mut self) -> u32 {
        u32::try_from(self.next() >> 32).unwrap_or_default()
    }

    /// From 0 up to, not including, 1.
    pub(super) fn unit(&mut self) -> f32 {
        to_unit(self.seed())
    }

    /// From `low` up to `high`.
    pub(super) fn between(&mut self, low: f32, high: f32) -> f32 {
        mix(low, high, self.unit())
    }

    /// True in `share` of the cases.
    pub(super) fn chance(&mut self, share: f32) -> bool {
        self.unit() < share
    }

    /// One of `0..count`.
    pub(super) fn pick(&mut self, count: usize) -> usize {
        (self.seed() as usize) % count.max(1)
    }
}

fn to_unit(bits: u32) -> f32 {
    // 24 bits are what an f32 holds exactly.
    (bits >> 8) as f32 / 16_777_216.0
}

fn lattice(seed: u32, x: i32, y: i32) -> f32 {
    let mut h = seed ^ x.cast_unsigned().wrapping_mul(0x85eb_ca6b) ^ y.cast_unsigned().wrapping_mul(0xc2b2_ae35);
    h = (h ^ (h >> 16)).wrapping_mul(0x7feb_352d);
    h = (h ^ (h >> 15)).wrapping_mul(0x846c_a68b);
    to_unit(h ^ (h >> 16))
}

/// A soft random curve from 0 to 1 that has a new value at every whole `x`.
pub(super) fn curve(seed: u32, x: f32) -> f32 {
    let cell = floor(x);
    let t = x - cell as f32;
    let t = t * t * (3.0 - 2.0 * t);
    mix(lattice(seed, cell, 0), lattice(seed, cell + 1, 0), t)
}

/// A random line with corners, for rock.
pub(super) fn zigzag(seed: u32, x: f32) -> f32 {
    let cell = floor(x);
    mix(lattice(seed, cell, 0), lattice(seed, cell + 1, 0), x - cell as f32)
}

/// A random value that stays the same between whole numbers.
pub(super) fn step(seed: u32, x: f32, y: f32) -> f32 {
    lattice(seed, floor(x), floor(y))
}

/// A soft random surface from 0 to 1.
pub(super) fn surface(seed: u32, x: f32, y: f32) -> f32 {
    let (cx, cy) = (floor(x), floor(y));
    let (tx, ty) = (x - cx as f32, y - cy as f32);
    let (tx, ty) = (tx * tx * (3.0 - 2.0 * tx), ty * ty * (3.0 - 2.0 * ty));
    let upper = mix(lattice(seed, cx, cy), lattice(seed, cx + 1, cy), tx);
    let lower = mix(lattice(seed, cx, cy + 1), lattice(seed, cx + 1, cy + 1), tx);
    mix(upper, lower, ty)
}

/// Curves of halving size laid over one another, 0 to 1.
pub(super) fn curves(seed: u32, x: f32, octaves: u32) -> f32 {
    layered(octaves, 0.5, |octave, scale| curve(seed.wrapping_add(octave), x * scale))
}

/// Surfaces of halving size laid over one another, 0 to 1.
pub(super) fn surfaces(seed: u32, x: f32, y: f32, octaves: u32) -> f32 {
    layered(octaves, 0.52, |octave, scale| surface(seed.wrapping_add(octave), x * scale, y * scale))
}

/// Sums `octaves` of `one`, each twice as fine and `fade` as strong, back to 0..1.
pub(super) fn layered(octaves: u32, fade: f32, one: impl Fn(u32, f32) -> f32) -> f32 {
    let (mut sum, mut total, mut strength, mut scale) = (0.0, 0.0, 1.0, 1.0);
    for octave in 0..octaves {
        sum += one(octave, scale) * strength;
        total += strength;
        strength *= fade;
        scale *= 2.03;
    }
    if total > 0.0 { sum / total } else { 0.0 }
}
