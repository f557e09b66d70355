//! Dropout: in training, each value is left out with probability p and the rest grow so that the mean stays.
//!
//! ```text
//! forward    out[i] = x[i] / (1 − p)  where kept,  0 where dropped
//! backward   grad_x[i] = grad_out[i] / (1 − p)  where kept,  0 where dropped
//! ```
//!
//! As Srivastava et al. 2014, scaled in training rather than in use ("inverted"), as GPT-2 and PyTorch have it. A dropped
//! value is set to zero rather than multiplied by it, so that it is zero even where it was not finite.

use ndarray::{ArrayRef, CowArray, Dimension};
use rand::Rng;

use crate::error::{Error, Result, check_shape};
use crate::float::Float;
use crate::kernel;

/// Which values a training pass kept: the backward pass leaves out the same ones.
///
/// Made by [`InputEmbedding::forward_train`](crate::InputEmbedding::forward_train): one bit for each value, none at all
/// without dropout.
#[derive(Clone, Debug, PartialEq)]
pub struct DropoutMask<F = f32> {
    shape: Vec<usize>,
    /// 1 / (1 − p).
    scale: F,
    /// One bit for each value, row-major; empty where all are kept.
    kept: Vec<u64>,
}

/// The share of values that is dropped, from 0 to below 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dropout {
    p: f64,
}

impl Dropout {
    pub(super) const NONE: Self = Self { p: 0.0 };

    pub(super) fn new(p: f64) -> Result<Self> {
        if !(0.0..1.0).contains(&p) {
            return Err(Error::setting(
                "dropout",
                p,
                "it must be at least 0 and below 1",
            ));
        }
        Ok(Self { p })
    }

    pub(super) fn p(self) -> f64 {
        self.p
    }

    /// Draws which values of an array are kept, in logical order: 32 bits of the generator for each, none where p is 0.
    pub(super) fn draw<F: Float, R: Rng + ?Sized>(
        self,
        shape: &[usize],
        rng: &mut R,
    ) -> Result<DropoutMask<F>> {
        let mut mask = DropoutMask {
            shape: shape.to_vec(),
            scale: F::round_from(1.0 / (1.0 - self.p)),
            kept: Vec::new(),
        };
        if self.p > 0.0 {
            // Kept where a number below 2³² is not below p · 2³².
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "p is from 0 to 1"
            )]
            let threshold = (self.p * (1_u64 << 32) as f64).round() as u64;
            let values: usize = shape.iter().product();
            mask.kept = kernel::buffer(&[values.div_ceil(64)])?;
            mask.kept.extend((0..values).step_by(64).map(|start| {
                let bits = 64.min(values - start);
                (0..bits).fold(0, |word, bit| {
                    word | u64::from(u64::from(rng.next_u32()) >= threshold) << bit
                })
            }));
        }
        Ok(mask)
    }
}

impl<F: Float> DropoutMask<F> {
    /// The share of the values that are kept; 1 for an empty array.
    ///
    /// ```
    /// use ndarray::{Array2, array};
    /// use positional_embedding::{InputEmbedding, PositionalEmbedding, TokenEmbedding};
    ///
    /// let tokens = TokenEmbedding::from_weight(Array2::<f32>::ones((1, 1000)))?;
    /// let input = InputEmbedding::new(tokens, PositionalEmbedding::from_weight(Array2::ones((1, 1000)))?)?;
    /// let (_, mask) = input.with_dropout(0.25)?.forward_train(&array![0], 0..1, &mut rand::rng())?;
    /// assert!((mask.kept() - 0.75).abs() < 0.1);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    #[must_use]
    pub fn kept(&self) -> f64 {
        let values: usize = self.shape.iter().product();
        if self.keeps_all() {
            return 1.0;
        }
        let kept: usize = self
            .kept
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum();
        #[expect(clippy::cast_precision_loss, reason = "a share needs no more digits")]
        let share = kept as f64 / values as f64;
        share
    }

    fn keeps_all(&self) -> bool {
        self.kept.is_empty()
    }

    /// Drops and scales some values, the first of which is number `first` of the array.
    pub(super) fn apply(&self, first: usize, values: &mut [F]) {
        if self.keeps_all() {
            return;
        }
        for (value, index) in values.iter_mut().zip(first..) {
            *value = self.masked(index, *value);
        }
    }

    /// The gradient of what went in, from that of what came out.
    pub(super) fn backward<'a, D: Dimension>(
        &self,
        grad_out: &'a ArrayRef<F, D>,
    ) -> Result<CowArray<'a, F, D>> {
        check_shape("grad_out", grad_out.shape(), &self.shape)?;
        if self.keeps_all() {
            return Ok(grad_out.view().into());
        }
        let mut grad = kernel::buffer(&self.shape)?;
        grad.extend(
            grad_out
                .iter()
                .zip(0..)
                .map(|(&grad_out, index)| self.masked(index, grad_out)),
        );
        Ok(kernel::into_array(grad_out.raw_dim(), grad)?.into())
    }

    fn masked(&self, index: usize, value: F) -> F {
        if self.kept[index / 64] >> (index % 64) & 1 == 1 {
            self.scale * value
        } else {
            F::zero()
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, Axis};
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    fn mask(p: f64, shape: &[usize]) -> DropoutMask<f64> {
        Dropout::new(p)
            .unwrap()
            .draw(shape, &mut StdRng::seed_from_u64(3))
            .unwrap()
    }

    #[test]
    fn probabilities_that_cannot_be_are_refused() {
        for p in [-0.1, 1.0, 1.5, f64::NAN, f64::INFINITY] {
            assert!(Dropout::new(p).is_err(), "{p}");
        }
    }

    #[test]
    fn the_share_and_the_mean_are_kept() {
        let mask = mask(0.3, &[1000, 1000]);
        assert!((mask.kept() - 0.7).abs() < 0.002, "{}", mask.kept());
        let mut values = vec![1.0; 1_000_000];
        mask.apply(0, &mut values);
        let mean = values.iter().sum::<f64>() / 1e6;
        assert!((mean - 1.0).abs() < 0.003, "{mean}");
    }

    #[test]
    fn rows_that_are_no_multiple_of_a_word_keep_their_bits() {
        let mask = mask(0.5, &[5, 13]);
        let mut whole = vec![1.0; 65];
        mask.apply(0, &mut whole);
        let mut rows = vec![1.0; 65];
        for (row, values) in rows.chunks_mut(13).enumerate() {
            mask.apply(13 * row, values);
        }
        assert_eq!(rows, whole);
        assert!(whole.contains(&0.0) && whole.contains(&2.0));
    }

    #[test]
    fn the_backward_pass_reads_its_gradient_in_logical_order_and_drops_what_is_not_finite() {
        let mask = mask(0.5, &[3, 4]);
        let mut grad = Array2::from_elem((4, 3), f64::NAN);
        grad.swap_axes(0, 1);
        let masked = mask.backward(&grad).unwrap();
        let mut forward = Array2::ones((3, 4));
        mask.apply(0, forward.as_slice_mut().unwrap());
        for (back, forward) in masked.iter().zip(&forward) {
            assert_eq!(*back == 0.0, *forward == 0.0);
        }
        assert!(mask.backward(&grad.index_axis(Axis(0), 0)).is_err());
    }
}
