//! The element types, and the one place where an f64 is rounded to them.

use ndarray::NdFloat;

/// The element of tables and activations: `f32` or `f64`.
///
/// Angles and sums are worked out in f64 whatever the element is, and rounded to it once.
///
/// ```
/// use positional_embedding::Float;
///
/// assert_eq!(f32::round_from(0.1_f64), 0.1_f32);
/// assert_eq!(f64::round_from(0.1_f64), 0.1_f64);
/// ```
pub trait Float: NdFloat + sealed::Sealed {
    /// The nearest value of this type.
    fn round_from(value: f64) -> Self;

    /// The same value as an f64; nothing is lost.
    fn widen(self) -> f64;
}

impl Float for f32 {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "this is the rounding")]
    fn round_from(value: f64) -> Self {
        value as f32
    }

    #[inline]
    fn widen(self) -> f64 {
        f64::from(self)
    }
}

impl Float for f64 {
    #[inline]
    fn round_from(value: f64) -> Self {
        value
    }

    #[inline]
    fn widen(self) -> f64 {
        self
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}
