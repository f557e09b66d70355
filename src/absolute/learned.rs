//! `PositionalEmbedding`: a learned row for every position, as in GPT-2, BERT and most models with a `block_size`.
//!
//! ```text
//! forward    out[b, t] = x[b, t] + weight[position(b, t)]
//! backward   grad_weight[p] = Σ grad_out[b, t]   over all (b, t) with position(b, t) = p
//!            grad_x = grad_out
//! ```
//!
//! GPT-2 draws the table from N(0, 0.02²), BERT too; the original Transformer (Vaswani et al. 2017) tried the same and
//! found it as good as its sinusoids. Others differ in which row a position reads (OPT and BART reserve the first two
//! rows, RoBERTa those up to its padding id), not in what is done with it.

use ndarray::{Array, Array2, ArrayRef, ArrayRef2, ArrayView2, ArrayViewMut2, Dimension};
use rand::Rng;
use rand_distr::Distribution;

use super::AbsoluteEncoding;
use super::sealed::Encode;
use crate::error::Result;
use crate::float::Float;
use crate::gradient::RowGradient;
use crate::indices::Indices;
use crate::positions::{Positions, RankedPositions, TokenArray};
use crate::table::{Selection, Table, gpt2_normal};

/// A learned table of one row for each position, added to token embeddings.
///
/// ```text
/// out[b, t] = x[b, t] + weight[position(b, t)]
/// ```
///
/// ```
/// use ndarray::Array2;
/// use positional_embedding::PositionalEmbedding;
///
/// let mut rng = rand::rng();
/// let table = PositionalEmbedding::<f32>::new(1024, 1600, &mut rng)?; // GPT-2 XL
/// let token_embeds = Array2::zeros((4, 1600)); // "this is a prompt"
/// let x = table.forward(&token_embeds, 0..4)?;
/// let grad_weight = table.backward(&x, 0..4)?;
/// assert_eq!(grad_weight.dim(), (1024, 1600));
/// # Ok::<(), positional_embedding::Error>(())
/// ```
///
/// # Notes
///
/// - Position `block_size` and those above it have no row and are an error: a learned table does not extrapolate.
/// - The gradient that reaches `x` is `grad_out` itself; nothing copies it.
/// - A gradient row is summed over its tokens in f64, in order of the tokens, and rounded once. It is therefore as exact
///   for a million tokens as for one, and the same bits however the positions were written and the arrays laid out.
/// - Every row trains, row 0 too, unless [`with_padding_row`](Self::with_padding_row) declares one that does not.
#[derive(Clone, Debug, PartialEq)]
pub struct PositionalEmbedding<F = f32> {
    table: Table<F>,
}

impl<F: Float> PositionalEmbedding<F> {
    /// A table drawn from N(0, 0.02²), as GPT-2 draws it.
    ///
    /// # Shapes
    ///
    /// The table is `(block_size, n_embd)`.
    ///
    /// # Errors
    ///
    /// `block_size` or `n_embd` of zero; a table that does not fit into memory.
    ///
    /// ```
    /// use positional_embedding::PositionalEmbedding;
    /// use rand::{SeedableRng, rngs::StdRng};
    ///
    /// let table = PositionalEmbedding::<f32>::new(128, 256, &mut StdRng::seed_from_u64(1))?;
    /// let again = PositionalEmbedding::<f32>::new(128, 256, &mut StdRng::seed_from_u64(1))?;
    /// assert_eq!(table.weight(), again.weight());
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn new<R: Rng + ?Sized>(block_size: usize, n_embd: usize, rng: &mut R) -> Result<Self> {
        Self::from_distribution(block_size, n_embd, &gpt2_normal(), rng)
    }

    /// A table drawn from any distribution.
    ///
    /// # Shapes
    ///
    /// The table is `(block_size, n_embd)`.
    ///
    /// # Errors
    ///
    /// `block_size` or `n_embd` of zero; a table that does not fit into memory.
    ///
    /// ```
    /// use positional_embedding::PositionalEmbedding;
    /// use rand_distr::Uniform;
    ///
    /// let small = Uniform::new(-0.1_f32, 0.1).unwrap();
    /// let table = PositionalEmbedding::from_distribution(16, 4, &small, &mut rand::rng())?;
    /// assert!(table.weight().iter().all(|value| value.abs() <= 0.1));
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn from_distribution<R: Rng + ?Sized>(
        block_size: usize,
        n_embd: usize,
        distribution: &impl Distribution<F>,
        rng: &mut R,
    ) -> Result<Self> {
        Ok(Self {
            table: Table::from_distribution("block_size", block_size, n_embd, distribution, rng)?,
        })
    }

    /// The table of a trained model, or any other.
    ///
    /// A row-major array is taken as it is; any other layout is copied once.
    ///
    /// # Shapes
    ///
    /// `weight` is `(block_size, n_embd)`.
    ///
    /// # Errors
    ///
    /// `block_size` or `n_embd` of zero.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::PositionalEmbedding;
    ///
    /// let table = PositionalEmbedding::from_weight(array![[1.0_f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(table.block_size(), 2);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn from_weight(weight: Array2<F>) -> Result<Self> {
        Ok(Self {
            table: Table::from_weight("block_size", weight)?,
        })
    }

    /// Declares a row that takes no gradient, in any form of the backward pass.
    ///
    /// Its values stay what they are: they are read like those of any row, and writing the table writes them.
    ///
    /// # Errors
    ///
    /// A row that the table does not have.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::PositionalEmbedding;
    ///
    /// let table = PositionalEmbedding::from_weight(array![[7.0_f32], [1.0]])?.with_padding_row(0)?;
    /// let grad_weight = table.backward(&array![[5.0], [6.0]], &[0, 1])?;
    /// assert_eq!(grad_weight, array![[0.0], [6.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn with_padding_row(mut self, row: usize) -> Result<Self> {
        self.table.set_padding_row(row)?;
        Ok(self)
    }

    /// The row that takes no gradient, if one was declared.
    #[must_use]
    pub fn padding_row(&self) -> Option<usize> {
        self.table.padding_row()
    }

    /// Rows of the table: positions `0..block_size` can be looked up.
    #[must_use]
    pub fn block_size(&self) -> usize {
        self.weight().nrows()
    }

    /// Width of an embedding.
    #[must_use]
    pub fn n_embd(&self) -> usize {
        self.weight().ncols()
    }

    /// The table, `(block_size, n_embd)`.
    #[must_use]
    pub fn weight(&self) -> &Array2<F> {
        self.table.weight()
    }

    /// The table, `(block_size, n_embd)`, for an optimizer to write.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::PositionalEmbedding;
    ///
    /// let mut table = PositionalEmbedding::from_weight(array![[1.0_f32, 2.0]])?;
    /// let grad_weight = table.backward(&array![[10.0, 20.0]], 0..1)?;
    /// table.weight_mut().scaled_add(-0.1, &grad_weight);
    /// assert_eq!(table.weight(), array![[0.0, 0.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn weight_mut(&mut self) -> ArrayViewMut2<'_, F> {
        self.table.weight_mut()
    }

    /// Gives up the table, `(block_size, n_embd)`.
    #[must_use]
    pub fn into_weight(self) -> Array2<F> {
        self.table.into_weight()
    }

    /// The rows of some positions: `out[b, t] = weight[position(b, t)]`.
    ///
    /// # Shapes
    ///
    /// `(len, n_embd)` for a range or a list, `(batch, len, n_embd)` for one row of positions for each sequence.
    ///
    /// # Errors
    ///
    /// A position that is none or has no row.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::PositionalEmbedding;
    ///
    /// let table = PositionalEmbedding::from_weight(array![[1.0_f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(table.lookup(&[1, 0, 1])?, array![[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn lookup<'p, P: RankedPositions<'p>>(&self, positions: P) -> Result<Array<F, P::Rows>> {
        AbsoluteEncoding::lookup(self, positions)
    }

    /// Adds its row to each token: `out[b, t] = x[b, t] + weight[position(b, t)]`, in one pass over memory.
    ///
    /// # Shapes
    ///
    /// `x` and the result: `(len, n_embd)`, `(batch, len, n_embd)` or any rank above; axes between `batch` and `len` share
    /// the positions of their batch entry. Any strides; the result is row-major.
    ///
    /// # Errors
    ///
    /// A shape that does not fit; a position that is none or has no row.
    ///
    /// ```
    /// use ndarray::{Array3, array};
    /// use positional_embedding::PositionalEmbedding;
    ///
    /// let table = PositionalEmbedding::from_weight(array![[1.0_f32], [2.0], [3.0]])?;
    /// let x = table.forward(&Array3::zeros((2, 2, 1)), 1..3)?; // one token is cached already
    /// assert_eq!(x, array![[[2.0], [3.0]], [[2.0], [3.0]]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn forward<'p, D: Dimension>(
        &self,
        x: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
    ) -> Result<Array<F, D>> {
        AbsoluteEncoding::forward(self, x, positions)
    }

    /// Adds its row to each token in place: `x[b, t] += weight[position(b, t)]`.
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
    /// use positional_embedding::PositionalEmbedding;
    ///
    /// let table = PositionalEmbedding::from_weight(array![[1.0_f32], [2.0], [3.0]])?;
    /// let mut x = array![[10.0], [20.0]];
    /// table.forward_inplace(&mut x, &[2, 0])?;
    /// assert_eq!(x, array![[13.0], [21.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn forward_inplace<'p, D: Dimension>(
        &self,
        x: &mut ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
    ) -> Result<()> {
        AbsoluteEncoding::forward_inplace(self, x, positions)
    }

    /// Writes the sum into the caller's buffer: `out[b, t] = x[b, t] + weight[position(b, t)]`.
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
    /// use positional_embedding::PositionalEmbedding;
    ///
    /// let table = PositionalEmbedding::from_weight(array![[1.0_f32], [2.0], [3.0]])?;
    /// let mut out = Array2::zeros((2, 1));
    /// table.forward_into(&array![[10.0], [20.0]], 0..2, &mut out)?;
    /// assert_eq!(out, array![[11.0], [22.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn forward_into<'p, D: Dimension>(
        &self,
        x: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
        out: &mut ArrayRef<F, D>,
    ) -> Result<()> {
        AbsoluteEncoding::forward_into(self, x, positions, out)
    }

    /// The gradient of the table: `grad_weight[p] = Σ grad_out[b, t]` over all `(b, t)` that stand at position `p`.
    ///
    /// This is the adjoint of [`forward`](Self::forward) in the table; in `x` it is the identity, so the gradient of the
    /// token embeddings is `grad_out` itself. The result is new; [`backward_into`](Self::backward_into) adds to another.
    ///
    /// # Shapes
    ///
    /// `grad_out` as the result of `forward`; the gradient `(block_size, n_embd)`.
    ///
    /// # Errors
    ///
    /// As for [`forward`](Self::forward).
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::PositionalEmbedding;
    ///
    /// let table = PositionalEmbedding::from_weight(array![[0.0_f32], [0.0], [0.0]])?;
    /// let grad_out = array![[[1.0], [2.0]], [[10.0], [20.0]]];
    /// assert_eq!(table.backward(&grad_out, 0..2)?, array![[11.0], [22.0], [0.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn backward<'p, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
    ) -> Result<Array2<F>> {
        let positions = positions.into();
        let indices = self.indices(&positions, grad_out)?;
        Ok(self.table.backward(grad_out, &indices, 1.0))
    }

    /// **Adds** the gradient of the table to one that the caller holds: `grad_weight[p] += Σ grad_out[b, t]`.
    ///
    /// # Shapes
    ///
    /// `grad_out` as the result of `forward`; `grad_weight` `(block_size, n_embd)`.
    ///
    /// # Errors
    ///
    /// As for [`forward`](Self::forward), and `grad_weight` of another shape than the table; it is then as it was.
    ///
    /// ```
    /// use ndarray::{Array2, array};
    /// use positional_embedding::PositionalEmbedding;
    ///
    /// let table = PositionalEmbedding::from_weight(array![[0.0_f32], [0.0]])?;
    /// let mut grad_weight = Array2::zeros((2, 1));
    /// table.backward_into(&array![[1.0], [2.0]], 0..2, &mut grad_weight)?;
    /// table.backward_into(&array![[1.0], [2.0]], 0..2, &mut grad_weight)?;
    /// assert_eq!(grad_weight, array![[2.0], [4.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn backward_into<'p, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
        grad_weight: &mut ArrayRef2<F>,
    ) -> Result<()> {
        self.table.backward_into(
            grad_out,
            &self.indices(&positions.into(), grad_out)?,
            1.0,
            grad_weight,
        )
    }

    /// The gradient of the rows that were read, and of no others; its cost knows nothing of `block_size`.
    ///
    /// # Shapes
    ///
    /// `grad_out` as the result of `forward`; the values `(rows, n_embd)`.
    ///
    /// # Errors
    ///
    /// As for [`forward`](Self::forward).
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::PositionalEmbedding;
    ///
    /// let table = PositionalEmbedding::from_weight(array![[0.0_f32], [0.0], [0.0]])?;
    /// let grad = table.backward_rows(&array![[1.0], [2.0], [3.0]], &[2, 0, 2])?;
    /// assert_eq!((grad.rows(), grad.values()), (&[0, 2][..], &array![[2.0], [4.0]]));
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn backward_rows<'p, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
    ) -> Result<RowGradient<F>> {
        self.table
            .backward_rows(grad_out, &self.indices(&positions.into(), grad_out)?, 1.0)
    }

    fn indices<'a, D: Dimension>(
        &self,
        positions: &'a Positions<'_>,
        grad_out: &ArrayRef<F, D>,
    ) -> Result<Indices<'a>> {
        let grad_out = TokenArray {
            name: "grad_out",
            shape: grad_out.shape(),
        };
        positions.indices(Some(grad_out), self.n_embd(), Some(self.block_size()))
    }
}

impl<F: Float> AbsoluteEncoding<F> for PositionalEmbedding<F> {
    fn n_embd(&self) -> usize {
        self.n_embd()
    }

    fn position_limit(&self) -> Option<usize> {
        Some(self.block_size())
    }

    fn parameters(&self) -> ArrayView2<'_, F> {
        self.weight().view()
    }

    fn parameters_mut(&mut self) -> ArrayViewMut2<'_, F> {
        self.weight_mut()
    }

    fn backward<'p, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
    ) -> Result<Array2<F>> {
        self.backward(grad_out, positions)
    }

    fn backward_into<'p, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
        grad_weight: &mut ArrayRef2<F>,
    ) -> Result<()> {
        self.backward_into(grad_out, positions, grad_weight)
    }

    fn backward_rows<'p, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        positions: impl Into<Positions<'p>>,
    ) -> Result<RowGradient<F>> {
        self.backward_rows(grad_out, positions)
    }
}

impl<F: Float> Encode<F> for PositionalEmbedding<F> {
    fn select<'a>(
        &'a self,
        positions: &'a Positions<'_>,
        array: Option<TokenArray<'_>>,
    ) -> Result<Selection<'a, F>> {
        Ok(self
            .table
            .select(positions.indices(array, self.n_embd(), Some(self.block_size()))?))
    }
}
