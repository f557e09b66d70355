//! `SinusoidalEncoding`: fixed sines and cosines of each position, as in the original Transformer.
//!
//! ```text
//! interleaved                row(p)[j] = sin or cos (p · base^(-2⌊j/2⌋ / n_embd)),  even j: sin, odd j: cos
//! concatenated               row(p)[i] = sin (p · base^(-i / h)),  row(p)[h + i] = cos (the same),  h = ⌊n_embd/2⌋
//! concatenated_tensor2tensor the same with base^(-i / (h - 1))
//! backward                   nothing to train; grad_x = grad_out
//! ```
//!
//! Interleaved is the formula of the paper (Vaswani et al. 2017); most ports print it as it stands there. The paper's own
//! code, tensor2tensor, concatenates and divides by one less, so that its last frequency is exactly 1/base; fairseq and
//! FSMT follow it. Some ports concatenate and keep the paper's divisor. The three are never told apart by their shapes.

use std::borrow::Cow;

use ndarray::{Array, Array2, ArrayRef, ArrayRef2, ArrayView2, ArrayViewMut2, Dimension, Ix2};

use super::AbsoluteEncoding;
use super::sealed::Encode;
use crate::error::{Error, Result, check_shape};
use crate::float::Float;
use crate::gradient::RowGradient;
use crate::indices::Needed;
use crate::kernel;
use crate::positions::{Positions, RankedPositions, TokenArray};
use crate::table::{Selection, check_n_embd};

/// In which column each sine and cosine stands, and how the frequencies divide.
///
/// ```
/// use positional_embedding::{Layout, SinusoidalEncoding};
///
/// let row = |layout| SinusoidalEncoding::new(4)?.with_layout(layout)?.table::<f64>(2).map(|table| table.row(1).to_vec());
/// let (sin, cos) = (1.0_f64.sin(), 1.0_f64.cos());
/// assert_eq!(row(Layout::Interleaved)?[..2], [sin, cos]);
/// assert_eq!(row(Layout::Concatenated)?[0], sin);
/// assert_eq!(row(Layout::Concatenated)?[2], cos);
/// # Ok::<(), positional_embedding::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layout {
    /// sin, cos, sin, cos, …: column j turns with frequency base^(-2⌊j/2⌋ / n_embd). An odd width ends on a sine.
    ///
    /// Vaswani et al. 2017, as printed.
    #[default]
    Interleaved,
    /// All sines, then all cosines: frequency i of h = ⌊`n_embd`/2⌋ is base^(-i/h). An odd width ends on a zero.
    Concatenated,
    /// All sines, then all cosines: frequency i of h = ⌊`n_embd`/2⌋ is base^(-i/(h − 1)). An odd width ends on a zero.
    ///
    /// tensor2tensor (Vaswani et al. 2018), fairseq, FSMT. With a single frequency, that is 1.
    ConcatenatedTensor2Tensor,
}

/// Fixed sines and cosines of each position, added to token embeddings.
///
/// ```text
/// out[b, t] = x[b, t] + row(position(b, t)),   row(p)[2i] = sin(p · base^(-2i/n_embd)),  row(p)[2i + 1] = cos(the same)
/// ```
///
/// ```
/// use ndarray::Array2;
/// use positional_embedding::SinusoidalEncoding;
///
/// let encoding = SinusoidalEncoding::new(512)?;
/// let x = encoding.forward(&Array2::<f32>::zeros((2, 512)), 1_000_000..1_000_002)?;
/// assert_eq!(x[[0, 0]], 1e6_f64.sin() as f32);
/// # Ok::<(), positional_embedding::Error>(())
/// ```
///
/// # Notes
///
/// - Every position has a row; no table length is imposed, and only the rows asked for are built.
/// - An angle is position × frequency in f64, whatever the element type, and its sine and cosine are rounded once: an f32
///   value is within 6.5e-8 of the true one up to position 2²⁴, an f64 value within 1e-15 × (1 + angle).
/// - The values are the same bits on every machine.
/// - Rows are built anew in each call. A model that reads the same rows again and again can keep them:
///   `PositionalEmbedding::from_weight(encoding.table(len)?)`, or `x + &table`.
#[derive(Clone, Debug, PartialEq)]
pub struct SinusoidalEncoding {
    n_embd: usize,
    base: f64,
    layout: Layout,
    frequencies: Vec<f64>,
}

impl SinusoidalEncoding {
    /// The encoding of the original Transformer: base 10,000, [`Layout::Interleaved`].
    ///
    /// # Errors
    ///
    /// `n_embd` of zero.
    ///
    /// ```
    /// use positional_embedding::SinusoidalEncoding;
    ///
    /// let encoding = SinusoidalEncoding::new(512)?;
    /// assert_eq!((encoding.n_embd(), encoding.base()), (512, 10_000.0));
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn new(n_embd: usize) -> Result<Self> {
        Self::build(n_embd, 10_000.0, Layout::default())
    }

    /// Another base: the slowest wave is about 2π · base positions long.
    ///
    /// # Errors
    ///
    /// A base that is not finite and above zero, or so near zero that its angles overflow.
    ///
    /// ```
    /// use positional_embedding::SinusoidalEncoding;
    ///
    /// let table = SinusoidalEncoding::new(4)?.with_base(10.0)?.table::<f64>(20)?;
    /// assert!((table[[15, 2]] - -0.999518685).abs() < 1e-9);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn with_base(self, base: f64) -> Result<Self> {
        Self::build(self.n_embd, base, self.layout)
    }

    /// Another order of the columns.
    ///
    /// # Errors
    ///
    /// `n_embd` below 2 for the concatenated layouts, whose only column would be a zero.
    ///
    /// ```
    /// use positional_embedding::{Layout, SinusoidalEncoding};
    ///
    /// let row = SinusoidalEncoding::new(7)?.with_layout(Layout::Concatenated)?.lookup::<f32, _>(&[3])?;
    /// assert_eq!(row[[0, 6]], 0.0);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn with_layout(self, layout: Layout) -> Result<Self> {
        Self::build(self.n_embd, self.base, layout)
    }

    fn build(n_embd: usize, base: f64, layout: Layout) -> Result<Self> {
        check_n_embd(n_embd)?;
        if !(base.is_finite() && base > 0.0) {
            return Err(Error::setting(
                "base",
                base,
                "it must be finite and above 0",
            ));
        }
        let half = n_embd / 2;
        let (count, divisor) = match layout {
            Layout::Interleaved => (n_embd.div_ceil(2), n_embd),
            Layout::Concatenated => (half, half),
            Layout::ConcatenatedTensor2Tensor => (half, half.saturating_sub(1).max(1)),
        };
        if count == 0 {
            return Err(Error::setting(
                "n_embd",
                n_embd,
                "a concatenated layout needs at least 2, one sine and one cosine",
            ));
        }
        let step = if layout == Layout::Interleaved { 2 } else { 1 };
        let mut frequencies = kernel::buffer(&[count])?;
        frequencies.extend((0..count).map(|i| frequency(base, step * i, divisor)));
        // Below 1 the base makes fast waves of what should be slow ones; they only have to stay numbers.
        if frequencies
            .iter()
            .any(|frequency| !(frequency * MAX_POSITION).is_finite())
        {
            return Err(Error::setting(
                "base",
                base,
                "it must not be so near 0 that an angle overflows",
            ));
        }
        Ok(Self {
            n_embd,
            base,
            layout,
            frequencies,
        })
    }

    /// Width of an embedding.
    #[must_use]
    pub fn n_embd(&self) -> usize {
        self.n_embd
    }

    /// The base of the frequencies.
    #[must_use]
    pub fn base(&self) -> f64 {
        self.base
    }

    /// The order of the columns.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The rows of positions `0..len`.
    ///
    /// # Shapes
    ///
    /// `(len, n_embd)`.
    ///
    /// # Errors
    ///
    /// A table that does not fit into memory.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::SinusoidalEncoding;
    ///
    /// let table = SinusoidalEncoding::new(2)?.table::<f64>(2)?;
    /// assert_eq!(table, array![[0.0, 1.0], [1.0_f64.sin(), 1.0_f64.cos()]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn table<F: Float>(&self, len: usize) -> Result<Array2<F>> {
        kernel::into_array(Ix2(len, self.n_embd), self.rows(0..len)?)
    }

    /// The rows of some positions.
    ///
    /// # Shapes
    ///
    /// `(len, n_embd)` for a range or a list, `(batch, len, n_embd)` for one row of positions for each sequence.
    ///
    /// # Errors
    ///
    /// A number that is no position; a result that does not fit into memory.
    ///
    /// ```
    /// use positional_embedding::SinusoidalEncoding;
    ///
    /// let row = SinusoidalEncoding::new(4)?.lookup::<f64, _>(&[1_000_000_000])?;
    /// assert!((row[[0, 0]] - 0.545843449).abs() < 1e-9);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn lookup<'p, F: Float, P: RankedPositions<'p>>(
        &self,
        positions: P,
    ) -> Result<Array<F, P::Rows>> {
        AbsoluteEncoding::lookup(self, positions)
    }

    /// Adds its row to each token: `out[b, t] = x[b, t] + row(position(b, t))`.
    ///
    /// # Shapes
    ///
    /// `x` and the result: `(len, n_embd)`, `(batch, len, n_embd)` or any rank above; axes between `batch` and `len` share
    /// the positions of their batch entry. Any strides; the result is row-major.
    ///
    /// # Errors
    ///
    /// A shape that does not fit; a number that is no position.
    ///
    /// ```
    /// use ndarray::{Array3, array};
    /// use positional_embedding::SinusoidalEncoding;
    ///
    /// let x = SinusoidalEncoding::new(2)?.forward(&Array3::<f64>::zeros((1, 2, 2)), 0..2)?;
    /// assert_eq!(x, array![[[0.0, 1.0], [1.0_f64.sin(), 1.0_f64.cos()]]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn forward<'p, F: Float, D: Dimension>(
        &self,
        x: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
    ) -> Result<Array<F, D>> {
        AbsoluteEncoding::forward(self, x, positions)
    }

    /// Adds its row to each token in place: `x[b, t] += row(position(b, t))`.
    ///
    /// # Shapes
    ///
    /// As for [`forward`](Self::forward).
    ///
    /// # Errors
    ///
    /// As for [`forward`](Self::forward); `x` is then as it was.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::SinusoidalEncoding;
    ///
    /// let mut x = array![[10.0_f32, 20.0]];
    /// SinusoidalEncoding::new(2)?.forward_inplace(&mut x, 0..1)?;
    /// assert_eq!(x, array![[10.0, 21.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn forward_inplace<'p, F: Float, D: Dimension>(
        &self,
        x: &mut ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
    ) -> Result<()> {
        AbsoluteEncoding::forward_inplace(self, x, positions)
    }

    /// Writes the sum into the caller's buffer: `out[b, t] = x[b, t] + row(position(b, t))`.
    ///
    /// # Shapes
    ///
    /// As for [`forward`](Self::forward); `out` as `x`.
    ///
    /// # Errors
    ///
    /// As for [`forward`](Self::forward), and `out` of another shape than `x`; `out` is then as it was.
    ///
    /// ```
    /// use ndarray::{Array2, array};
    /// use positional_embedding::SinusoidalEncoding;
    ///
    /// let mut out = Array2::zeros((1, 2));
    /// SinusoidalEncoding::new(2)?.forward_into(&array![[10.0_f32, 20.0]], 0..1, &mut out)?;
    /// assert_eq!(out, array![[10.0, 21.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn forward_into<'p, F: Float, D: Dimension>(
        &self,
        x: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
        out: &mut ArrayRef<F, D>,
    ) -> Result<()> {
        AbsoluteEncoding::forward_into(self, x, positions, out)
    }

    /// Refuses a gradient that does not fit the positions, as the backward pass of a table would.
    fn check<F, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        positions: &Positions<'_>,
    ) -> Result<()> {
        let grad_out = TokenArray {
            name: "grad_out",
            shape: grad_out.shape(),
        };
        positions
            .indices(Some(grad_out), self.n_embd, None)
            .map(|_| ())
    }

    /// The rows of these positions, one after the other.
    fn rows<F: Float>(&self, positions: impl ExactSizeIterator<Item = usize>) -> Result<Vec<F>> {
        let mut rows = kernel::buffer(&[positions.len(), self.n_embd])?;
        let mut waves = vec![(F::zero(), F::zero()); self.frequencies.len()];
        for position in positions {
            for (wave, frequency) in waves.iter_mut().zip(&self.frequencies) {
                let (sin, cos) = libm::sincos(as_f64(position) * frequency);
                *wave = (F::round_from(sin), F::round_from(cos));
            }
            let end = rows.len() + self.n_embd;
            match self.layout {
                Layout::Interleaved => rows.extend(
                    waves
                        .iter()
                        .flat_map(|&(sin, cos)| [sin, cos])
                        .take(self.n_embd),
                ),
                Layout::Concatenated | Layout::ConcatenatedTensor2Tensor => {
                    rows.extend(waves.iter().map(|wave| wave.0));
                    rows.extend(waves.iter().map(|wave| wave.1));
                    rows.resize(end, F::zero());
                }
            }
        }
        Ok(rows)
    }
}

/// base^(-numerator / denominator), to about a unit in the last place.
///
/// The exponent is no f64, and what rounding it leaves off is multiplied by ln(base): corrected here, it costs nothing
/// later, while a position would multiply it.
fn frequency(base: f64, numerator: usize, denominator: usize) -> f64 {
    let (numerator, denominator) = (as_f64(numerator), as_f64(denominator));
    let exponent = numerator / denominator;
    let left_off = libm::fma(-exponent, denominator, numerator) / denominator;
    let rounded = libm::pow(base, -exponent);
    rounded - rounded * left_off * libm::log(base)
}

/// The largest position there is, with room for rounding.
const MAX_POSITION: f64 = 18_446_744_073_709_551_616.0;

#[expect(
    clippy::cast_precision_loss,
    reason = "exact below 2⁵³, and the angle of any position is rounded to f64 next"
)]
fn as_f64(count: usize) -> f64 {
    count as f64
}

impl<F: Float> AbsoluteEncoding<F> for SinusoidalEncoding {
    fn n_embd(&self) -> usize {
        self.n_embd
    }

    fn position_limit(&self) -> Option<usize> {
        None
    }

    #[expect(
        clippy::expect_used,
        reason = "no rows of a width that `new` could hold are a shape of no values"
    )]
    fn parameters(&self) -> ArrayView2<'_, F> {
        ArrayView2::from_shape((0, self.n_embd), &[]).expect("no rows need no values")
    }

    #[expect(clippy::expect_used, reason = "as above")]
    fn parameters_mut(&mut self) -> ArrayViewMut2<'_, F> {
        ArrayViewMut2::from_shape((0, self.n_embd), &mut []).expect("no rows need no values")
    }

    fn backward<'p, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
    ) -> Result<Array2<F>> {
        self.check(grad_out, &positions.into())?;
        Ok(Array2::zeros((0, self.n_embd)))
    }

    fn backward_into<'p, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
        grad_weight: &mut ArrayRef2<F>,
    ) -> Result<()> {
        check_shape("grad_weight", grad_weight.shape(), &[0, self.n_embd])?;
        self.check(grad_out, &positions.into())
    }

    fn backward_rows<'p, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
    ) -> Result<RowGradient<F>> {
        let values = AbsoluteEncoding::backward(self, grad_out, positions)?;
        Ok(RowGradient::new(Vec::new(), Vec::new(), values, 0))
    }
}

impl<F: Float> Encode<F> for SinusoidalEncoding {
    fn select<'a>(
        &'a self,
        positions: &'a Positions<'_>,
        array: Option<TokenArray<'_>>,
    ) -> Result<Selection<'a, F>> {
        let (needed, indices) = positions.indices(array, self.n_embd, None)?.compact();
        let rows = match needed {
            Needed::Range(range) => self.rows(range)?,
            Needed::List(list) => self.rows(list.iter().copied())?,
        };
        Ok(Selection::new(Cow::Owned(rows), self.n_embd, indices))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_are_refused_by_name_and_value() {
        let base = |base| {
            SinusoidalEncoding::new(4)
                .unwrap()
                .with_base(base)
                .unwrap_err()
                .to_string()
        };
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(
                base(value),
                format!("base is {value}, but it must be finite and above 0")
            );
        }
        let fast = SinusoidalEncoding::new(1000)
            .unwrap()
            .with_base(1e-300)
            .unwrap_err();
        assert!(
            fast.to_string()
                .ends_with("it must not be so near 0 that an angle overflows"),
            "{fast}"
        );
        assert!(SinusoidalEncoding::new(0).is_err());
        assert!(SinusoidalEncoding::new(usize::MAX).is_err());
        assert!(
            SinusoidalEncoding::new(1)
                .unwrap()
                .with_layout(Layout::Concatenated)
                .is_err()
        );
    }

    #[test]
    fn frequencies_are_exact_to_the_last_place_where_the_exponent_is_no_f64() {
        // From decimal expansions of 40 digits. A rounded exponent would be two and three places off.
        for (base, numerator, denominator, exact) in [
            (1e4, 2, 3, 0.002_154_434_690_031_884),
            (1e4, 1598, 1600, 0.000_101_157_945_425_989_85),
            (1e9, 1001, 1600, 2.340_857_625_215_072e-6),
            (1e12, 5, 7, 2.682_695_795_279_726e-9),
        ] {
            let error = frequency(base, numerator, denominator) / exact - 1.0;
            assert!(
                error.abs() < 2.3e-16,
                "{base}, {numerator} / {denominator}: {error}"
            );
        }
    }

    #[test]
    fn positions_far_apart_build_only_their_own_rows() {
        let encoding = SinusoidalEncoding::new(4).unwrap();
        let rows = encoding
            .lookup::<f64, _>(&[usize::MAX, 0, usize::MAX])
            .unwrap();
        assert_eq!(rows.row(0), rows.row(2));
        assert_eq!(rows.row(1).to_vec(), [0.0, 1.0, 0.0, 1.0]);
    }

    #[test]
    fn a_table_that_does_not_fit_is_refused() {
        let table = SinusoidalEncoding::new(1600)
            .unwrap()
            .table::<f32>(usize::MAX / 2);
        assert_eq!(
            table.unwrap_err(),
            Error::TooLarge {
                shape: vec![usize::MAX / 2, 1600]
            }
        );
    }
}
