//! Positions that are added to token embeddings: the trait that the learned table and the fixed sinusoids share.
//!
//! ```text
//! out[token] = x[token] + row(position(token))
//! ```
//!
//! The rows come from a table that training refines ([`PositionalEmbedding`]) or from a formula
//! ([`SinusoidalEncoding`]); what happens to them is the same and is written here once.

mod learned;
mod sinusoidal;

use ndarray::{Array, Array2, ArrayRef, ArrayRef2, ArrayView2, ArrayViewMut2, Dimension};

pub use learned::PositionalEmbedding;
pub use sinusoidal::{Layout, SinusoidalEncoding};

use crate::error::{Result, check_shape};
use crate::float::Float;
use crate::gradient::RowGradient;
use crate::positions::{Positions, RankedPositions, TokenArray};

/// A position encoding that is added to token embeddings, learned or fixed, so that a model is written once for both.
///
/// What an encoding trains is a table, [`parameters`](Self::parameters); the table of a fixed encoding has no rows, and
/// neither has its gradient. An optimizer can therefore go through any encoding in the same way.
///
/// ```
/// use ndarray::{Array2, array};
/// use positional_embedding::{AbsoluteEncoding, PositionalEmbedding, Result, SinusoidalEncoding};
///
/// /// One step of gradient descent on whatever the encoding trains; returns how many values that were.
/// fn step<E: AbsoluteEncoding<f32>>(encoding: &mut E, grad_x: &Array2<f32>) -> Result<usize> {
///     let grad = encoding.backward_rows(grad_x, 0..grad_x.nrows())?;
///     grad.scaled_add_to(-0.1, &mut encoding.parameters_mut())?;
///     Ok(encoding.parameters().len())
/// }
///
/// let mut learned = PositionalEmbedding::from_weight(Array2::zeros((8, 2)))?;
/// assert_eq!(step(&mut learned, &array![[1.0, 2.0]])?, 16);
/// assert_eq!(learned.weight().row(0), array![-0.1, -0.2]);
/// assert_eq!(step(&mut SinusoidalEncoding::new(2)?, &array![[1.0, 2.0]])?, 0);
/// # Ok::<(), positional_embedding::Error>(())
/// ```
///
/// # Notes
///
/// The gradient that reaches the token embeddings is `grad_out` itself, as the sum hands it on unchanged; nothing copies
/// it. The trait is sealed: its implementers are the methods of this crate.
pub trait AbsoluteEncoding<F: Float>: sealed::Encode<F> {
    /// Width of an embedding.
    fn n_embd(&self) -> usize;

    /// How many positions there are: `block_size` of a learned table, `None` where every position has a row.
    fn position_limit(&self) -> Option<usize>;

    /// What training refines.
    ///
    /// # Shapes
    ///
    /// `(block_size, n_embd)`, or `(0, n_embd)` for a fixed encoding.
    fn parameters(&self) -> ArrayView2<'_, F>;

    /// The same, for an optimizer to write.
    fn parameters_mut(&mut self) -> ArrayViewMut2<'_, F>;

    /// The rows of some positions.
    ///
    /// # Shapes
    ///
    /// `(len, n_embd)` for a range or a list, `(batch, len, n_embd)` for one row of positions for each sequence.
    ///
    /// # Errors
    ///
    /// A position that is none or has no row, or a result that does not fit into memory.
    fn lookup<'p, P: RankedPositions<'p>>(&self, positions: P) -> Result<Array<F, P::Rows>> {
        let positions = positions.into();
        let mut shape = positions.shape()?;
        shape.push(self.n_embd());
        let mut dim = P::Rows::zeros(shape.len());
        dim.slice_mut().copy_from_slice(&shape);
        self.select(&positions, None)?.copy(F::one(), dim)
    }

    /// `x + row(position)` for each token.
    ///
    /// # Shapes
    ///
    /// `x` and the result: `(len, n_embd)`, `(batch, len, n_embd)` or any rank above; axes between `batch` and `len` share
    /// the positions of their batch entry.
    ///
    /// # Errors
    ///
    /// A shape that does not fit, a position that is none or has no row.
    fn forward<'p, D: Dimension>(
        &self,
        x: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
    ) -> Result<Array<F, D>> {
        self.select(
            &positions.into(),
            Some(TokenArray {
                name: "x",
                shape: x.shape(),
            }),
        )?
        .sum(x)
    }

    /// `x += row(position)` for each token. Shapes and errors as for [`forward`](Self::forward).
    ///
    /// # Errors
    ///
    /// As for [`forward`](Self::forward); `x` is then as it was.
    fn forward_inplace<'p, D: Dimension>(
        &self,
        x: &mut ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
    ) -> Result<()> {
        self.select(
            &positions.into(),
            Some(TokenArray {
                name: "x",
                shape: x.shape(),
            }),
        )?
        .add_to(x);
        Ok(())
    }

    /// `out = x + row(position)` for each token. Shapes as for [`forward`](Self::forward).
    ///
    /// # Errors
    ///
    /// As for [`forward`](Self::forward), and `out` of another shape than `x`; `out` is then as it was.
    fn forward_into<'p, D: Dimension>(
        &self,
        x: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
        out: &mut ArrayRef<F, D>,
    ) -> Result<()> {
        check_shape("out", out.shape(), x.shape())?;
        self.select(
            &positions.into(),
            Some(TokenArray {
                name: "x",
                shape: x.shape(),
            }),
        )?
        .sum_into(x, out);
        Ok(())
    }

    /// The gradient of [`parameters`](Self::parameters), the adjoint of [`forward`](Self::forward) in them:
    /// `grad_weight[row] = Σ grad_out[token]` over the tokens that read the row.
    ///
    /// # Shapes
    ///
    /// `grad_out` as the result of `forward`; the gradient as `parameters`.
    ///
    /// # Errors
    ///
    /// As for [`forward`](Self::forward).
    fn backward<'p, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
    ) -> Result<Array2<F>>;

    /// The same, **added** to a gradient that the caller holds.
    ///
    /// # Errors
    ///
    /// As for [`backward`](Self::backward), and `grad_weight` of another shape than `parameters`; it is then as it was.
    fn backward_into<'p, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
        grad_weight: &mut ArrayRef2<F>,
    ) -> Result<()>;

    /// The same, of the rows that were read and of no others.
    ///
    /// # Errors
    ///
    /// As for [`backward`](Self::backward).
    fn backward_rows<'p, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
    ) -> Result<RowGradient<F>>;
}

pub(crate) mod sealed {
    use crate::error::Result;
    use crate::positions::{Positions, TokenArray};
    use crate::table::Selection;

    pub trait Encode<F: crate::Float> {
        /// The rows that the tokens of `array` read, or the positions alone where there is none; every check is made.
        #[doc(hidden)]
        fn select<'a>(
            &'a self,
            positions: &'a Positions<'_>,
            array: Option<TokenArray<'_>>,
        ) -> Result<Selection<'a, F>>;
    }
}
