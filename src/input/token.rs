//! `TokenEmbedding`: a learned row for every token of the vocabulary, to which positions are added.
//!
//! ```text
//! forward    out[token] = scale · weight[id]
//! backward   grad_weight[id] = scale · Σ grad_out[token]   over the tokens of that id
//! ```
//!
//! GPT-2 and BERT do not scale (1). The original Transformer (Vaswani et al. 2017) and T5's and Gemma's relatives multiply
//! by √n_embd, so that rows drawn small for a tied output head are not drowned by the positions. Gemma's released
//! models use that root rounded to bfloat16; where it matters, give the rounded value to `with_scale`.

use std::borrow::Cow;

use ndarray::{Array, Array2, ArrayRef, ArrayRef2, ArrayViewMut2, Dimension};
use rand::Rng;
use rand_distr::Distribution;

use crate::error::{Error, Result, check_shape};
use crate::float::Float;
use crate::gradient::RowGradient;
use crate::indices::Indices;
use crate::integer::Integer;
use crate::table::{Selection, Table, gpt2_normal};

/// A learned table of one row for each token of the vocabulary.
///
/// ```text
/// out[b, t] = scale · weight[id(b, t)]
/// ```
///
/// ```
/// use ndarray::array;
/// use positional_embedding::TokenEmbedding;
///
/// let tokens = TokenEmbedding::<f32>::new(50_257, 8, &mut rand::rng())?;
/// let ids = array![5661_u32, 318, 257, 6152]; // "this is a prompt"
/// assert_eq!(tokens.forward(&ids)?.dim(), (4, 8));
/// # Ok::<(), positional_embedding::Error>(())
/// ```
///
/// # Notes
///
/// - Ids may be of any integer type and any number of axes; slices go in as `&aview1(&ids)`.
/// - An id outside the vocabulary is an error, never a row of zeros.
/// - A gradient row is summed over its tokens in f64, in order of the tokens, and rounded once.
/// - With tied weights, an output head reads [`weight`](Self::weight) too; both gradients add up in one buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenEmbedding<F = f32> {
    table: Table<F>,
    scale: F,
}

impl<F: Float> TokenEmbedding<F> {
    /// A table drawn from N(0, 0.02²), as GPT-2 draws it.
    ///
    /// # Shapes
    ///
    /// The table is `(vocab_size, n_embd)`.
    ///
    /// # Errors
    ///
    /// `vocab_size` or `n_embd` of zero; a table that does not fit into memory.
    ///
    /// ```
    /// use positional_embedding::TokenEmbedding;
    ///
    /// let tokens = TokenEmbedding::<f32>::new(100, 4, &mut rand::rng())?;
    /// assert_eq!((tokens.vocab_size(), tokens.n_embd()), (100, 4));
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn new<R: Rng + ?Sized>(vocab_size: usize, n_embd: usize, rng: &mut R) -> Result<Self> {
        Self::from_distribution(vocab_size, n_embd, &gpt2_normal(), rng)
    }

    /// A table drawn from any distribution.
    ///
    /// # Shapes
    ///
    /// The table is `(vocab_size, n_embd)`.
    ///
    /// # Errors
    ///
    /// `vocab_size` or `n_embd` of zero; a table that does not fit into memory.
    ///
    /// ```
    /// use positional_embedding::TokenEmbedding;
    /// use rand_distr::StandardNormal;
    ///
    /// let tokens = TokenEmbedding::<f64>::from_distribution(100, 4, &StandardNormal, &mut rand::rng())?;
    /// assert_eq!(tokens.weight().dim(), (100, 4));
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn from_distribution<R: Rng + ?Sized>(
        vocab_size: usize,
        n_embd: usize,
        distribution: &impl Distribution<F>,
        rng: &mut R,
    ) -> Result<Self> {
        Table::from_distribution("vocab_size", vocab_size, n_embd, distribution, rng)
            .map(Self::unscaled)
    }

    /// The table of a trained model, or any other. A row-major array is taken as it is; another layout is copied once.
    ///
    /// # Shapes
    ///
    /// `weight` is `(vocab_size, n_embd)`.
    ///
    /// # Errors
    ///
    /// `vocab_size` or `n_embd` of zero.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::TokenEmbedding;
    ///
    /// let tokens = TokenEmbedding::from_weight(array![[1.0_f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(tokens.forward(&array![1_u8])?, array![[3.0, 4.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn from_weight(weight: Array2<F>) -> Result<Self> {
        Table::from_weight("vocab_size", weight).map(Self::unscaled)
    }

    fn unscaled(table: Table<F>) -> Self {
        Self {
            table,
            scale: F::one(),
        }
    }

    /// Declares an id that takes no gradient, in any form of the backward pass.
    ///
    /// The values of its row stay what they are and are read like those of any other.
    ///
    /// # Errors
    ///
    /// A row that the table does not have.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::TokenEmbedding;
    ///
    /// let tokens = TokenEmbedding::from_weight(array![[7.0_f32], [1.0]])?.with_padding_row(0)?;
    /// assert_eq!(tokens.backward(&array![[5.0], [6.0]], &array![0, 1])?, array![[0.0], [6.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn with_padding_row(mut self, row: usize) -> Result<Self> {
        self.table.set_padding_row(row)?;
        Ok(self)
    }

    /// Multiplies every embedding, and with it every gradient, by a factor.
    ///
    /// # Errors
    ///
    /// A factor that is not finite.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::TokenEmbedding;
    ///
    /// let tokens = TokenEmbedding::from_weight(array![[0.5_f32, -1.0]])?.with_scale(2.0)?;
    /// assert_eq!(tokens.forward(&array![0])?, array![[1.0, -2.0]]);
    /// assert_eq!(tokens.backward(&array![[1.0, 1.0]], &array![0])?, array![[2.0, 2.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn with_scale(mut self, scale: F) -> Result<Self> {
        if !scale.is_finite() {
            return Err(Error::setting("scale", scale, "it must be finite"));
        }
        self.scale = scale;
        Ok(self)
    }

    /// Multiplies every embedding by √`n_embd`, as the original Transformer does (Vaswani et al. 2017).
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::TokenEmbedding;
    ///
    /// let tokens = TokenEmbedding::from_weight(array![[0.5_f32, -1.0, 2.0, 0.25]])?.with_sqrt_scale();
    /// assert_eq!(tokens.forward(&array![0])?, array![[1.0, -2.0, 4.0, 0.5]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    #[must_use]
    pub fn with_sqrt_scale(mut self) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a width is far below 2⁵³")]
        let n_embd = self.n_embd() as f64;
        self.scale = F::round_from(n_embd.sqrt());
        self
    }

    /// The factor of every embedding; 1 unless set.
    #[must_use]
    pub fn scale(&self) -> F {
        self.scale
    }

    /// The id that takes no gradient, if one was declared.
    #[must_use]
    pub fn padding_row(&self) -> Option<usize> {
        self.table.padding_row()
    }

    /// Rows of the table: ids `0..vocab_size` can be looked up.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.weight().nrows()
    }

    /// Width of an embedding.
    #[must_use]
    pub fn n_embd(&self) -> usize {
        self.weight().ncols()
    }

    /// The table, `(vocab_size, n_embd)`, unscaled; an output head with tied weights borrows it from here.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::TokenEmbedding;
    ///
    /// let tokens = TokenEmbedding::from_weight(array![[1.0_f32, 0.0], [0.0, 2.0]])?;
    /// let logits = array![[3.0, 4.0]].dot(&tokens.weight().t());
    /// assert_eq!(logits, array![[3.0, 8.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    #[must_use]
    pub fn weight(&self) -> &Array2<F> {
        self.table.weight()
    }

    /// The table, `(vocab_size, n_embd)`, for an optimizer to write.
    pub fn weight_mut(&mut self) -> ArrayViewMut2<'_, F> {
        self.table.weight_mut()
    }

    /// Gives up the table, `(vocab_size, n_embd)`.
    #[must_use]
    pub fn into_weight(self) -> Array2<F> {
        self.table.into_weight()
    }

    /// The row of each token: `out[b, t] = scale · weight[id(b, t)]`.
    ///
    /// # Shapes
    ///
    /// `ids`: any, as `(len)` or `(batch, len)`; the result has one more axis, `n_embd`.
    ///
    /// # Errors
    ///
    /// An id outside the vocabulary.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::TokenEmbedding;
    ///
    /// let tokens = TokenEmbedding::from_weight(array![[1.0_f32], [2.0]])?;
    /// assert_eq!(tokens.forward(&array![[1_i64, 0], [1, 1]])?, array![[[2.0], [1.0]], [[2.0], [2.0]]]);
    /// assert!(tokens.forward(&array![2_u32]).is_err());
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn forward<T: Integer, D: Dimension>(
        &self,
        ids: &ArrayRef<T, D>,
    ) -> Result<Array<F, D::Larger>> {
        self.select(ids)?.copy(self.scale, self.out_dim(ids))
    }

    /// The gradient of the table: `grad_weight[id] = scale · Σ grad_out[b, t]` over the tokens of that id.
    ///
    /// This is the adjoint of [`forward`](Self::forward). The result is new; [`backward_into`](Self::backward_into) adds
    /// to another, and [`backward_rows`](Self::backward_rows) leaves out the thousands of rows that no token read.
    ///
    /// # Shapes
    ///
    /// `grad_out` as the result of `forward`; the gradient `(vocab_size, n_embd)`.
    ///
    /// # Errors
    ///
    /// A `grad_out` of another shape; an id outside the vocabulary.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::TokenEmbedding;
    ///
    /// let tokens = TokenEmbedding::from_weight(array![[0.0_f32], [0.0]])?;
    /// let grad_weight = tokens.backward(&array![[1.0], [2.0], [4.0]], &array![1, 0, 1])?;
    /// assert_eq!(grad_weight, array![[2.0], [5.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn backward<T: Integer, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D::Larger>,
        ids: &ArrayRef<T, D>,
    ) -> Result<Array2<F>> {
        let indices = self.indices_for(grad_out, ids)?;
        Ok(self.table.backward(grad_out, &indices, self.scale.widen()))
    }

    /// **Adds** the gradient of the table to one that the caller holds: `grad_weight[id] += scale · Σ grad_out[b, t]`.
    ///
    /// # Shapes
    ///
    /// `grad_out` as the result of [`forward`](Self::forward); `grad_weight` `(vocab_size, n_embd)`.
    ///
    /// # Errors
    ///
    /// As for [`backward`](Self::backward), and `grad_weight` of another shape than the table; it is then as it was.
    ///
    /// ```
    /// use ndarray::{Array2, array};
    /// use positional_embedding::TokenEmbedding;
    ///
    /// let tokens = TokenEmbedding::from_weight(array![[0.0_f32], [0.0]])?;
    /// let mut grad_weight = Array2::ones((2, 1)); // from the output head, say
    /// tokens.backward_into(&array![[1.0], [2.0]], &array![1, 1], &mut grad_weight)?;
    /// assert_eq!(grad_weight, array![[1.0], [4.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn backward_into<T: Integer, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D::Larger>,
        ids: &ArrayRef<T, D>,
        grad_weight: &mut ArrayRef2<F>,
    ) -> Result<()> {
        self.table.backward_into(
            grad_out,
            &self.indices_for(grad_out, ids)?,
            self.scale.widen(),
            grad_weight,
        )
    }

    /// The gradient of the rows that were read, and of no others; its cost knows nothing of `vocab_size`.
    ///
    /// # Shapes
    ///
    /// `grad_out` as the result of [`forward`](Self::forward); the values `(rows, n_embd)`.
    ///
    /// # Errors
    ///
    /// As for [`backward`](Self::backward).
    ///
    /// ```
    /// use ndarray::{Array2, array};
    /// use positional_embedding::TokenEmbedding;
    ///
    /// let tokens = TokenEmbedding::from_weight(Array2::<f32>::zeros((50_257, 1)))?;
    /// let grad = tokens.backward_rows(&array![[1.0], [2.0], [4.0]], &array![318, 257, 318])?;
    /// assert_eq!((grad.rows(), grad.values()), (&[257, 318][..], &array![[2.0], [5.0]]));
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn backward_rows<T: Integer, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D::Larger>,
        ids: &ArrayRef<T, D>,
    ) -> Result<RowGradient<F>> {
        self.table.backward_rows(
            grad_out,
            &self.indices_for(grad_out, ids)?,
            self.scale.widen(),
        )
    }

    /// The rows that these tokens read, unscaled.
    pub(super) fn select<'a, T: Integer, D: Dimension>(
        &'a self,
        ids: &'a ArrayRef<T, D>,
    ) -> Result<Selection<'a, F>> {
        Ok(self.table.select(self.indices(ids)?))
    }

    /// The shape of the embeddings of these tokens.
    pub(super) fn out_dim<T, D: Dimension>(&self, ids: &ArrayRef<T, D>) -> D::Larger {
        let mut dim = D::Larger::zeros(ids.ndim() + 1);
        let (leading, width) = dim.slice_mut().split_at_mut(ids.ndim());
        leading.copy_from_slice(ids.shape());
        width.fill(self.n_embd());
        dim
    }

    /// Refuses what the backward pass would.
    pub(super) fn check<T: Integer, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D::Larger>,
        ids: &ArrayRef<T, D>,
    ) -> Result<()> {
        self.indices_for(grad_out, ids).map(|_| ())
    }

    fn indices_for<'a, T: Integer, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D::Larger>,
        ids: &'a ArrayRef<T, D>,
    ) -> Result<Indices<'a>> {
        check_shape("grad_out", grad_out.shape(), self.out_dim(ids).slice())?;
        self.indices(ids)
    }

    fn indices<'a, T: Integer, D: Dimension>(
        &self,
        ids: &'a ArrayRef<T, D>,
    ) -> Result<Indices<'a>> {
        let vocab_size = self.vocab_size();
        let len = ids.shape().last().copied().unwrap_or(1);
        let out_of_range = |index: usize, id: i128| Error::TokenOutOfRange {
            id,
            vocab_size,
            row: index / len,
            column: index % len,
        };
        let rows = match ids.as_slice() {
            Some(ids) => T::rows(ids),
            None => T::rows(&ids.iter().copied().collect::<Vec<_>>())
                .map(|rows| Cow::Owned(rows.into_owned())),
        };
        let rows = rows.map_err(|(index, id)| out_of_range(index, id))?;
        match rows.iter().position(|&row| row >= vocab_size) {
            Some(index) => Err(out_of_range(index, rows[index] as i128)),
            None => Ok(Indices::flat(rows)),
        }
    }
}
