//! `InputEmbedding`: what goes into a Transformer, token embeddings plus positions, in one pass over memory.
//!
//! ```text
//! forward    out[b, t] = dropout(scale · tokens[id(b, t)] + row(position(b, t)))
//! backward   grad_tokens[id] = scale · Σ grad[b, t],  grad_positions[p] = Σ grad[b, t],  grad = dropout'(grad_out)
//! ```
//!
//! This is the sum at the bottom of GPT-2 (tokens unscaled, positions learned, dropout 0.1) and of the original
//! Transformer (tokens times √n_embd, sinusoids, dropout 0.1). BERT and ViT normalize after it; that is left to the
//! model.

mod dropout;
mod token;

use ndarray::{Array, Array2, ArrayRef, ArrayRef2, CowArray, Dimension, Zip};
use rand::Rng;

pub use dropout::DropoutMask;
pub use token::TokenEmbedding;

use crate::absolute::{AbsoluteEncoding, PositionalEmbedding};
use crate::error::{Error, Result, check_shape};
use crate::float::Float;
use crate::gradient::RowGradient;
use crate::integer::Integer;
use crate::kernel;
use crate::positions::{Positions, TokenArray};
use crate::table::Selection;
use dropout::Dropout;

/// Token embeddings plus positions, from ids to what the first block of a Transformer reads.
///
/// ```text
/// out[b, t] = dropout(scale · tokens[id(b, t)] + row(position(b, t)))
/// ```
///
/// `P` is any [`AbsoluteEncoding`]: the learned [`PositionalEmbedding`] unless said otherwise, or
/// [`SinusoidalEncoding`](crate::SinusoidalEncoding).
///
/// ```
/// use ndarray::array;
/// use positional_embedding::{InputEmbedding, PositionalEmbedding, TokenEmbedding};
///
/// let mut rng = rand::rng();
/// let tokens = TokenEmbedding::<f32>::new(50_257, 8, &mut rng)?;
/// let input = InputEmbedding::new(tokens, PositionalEmbedding::new(1024, 8, &mut rng)?)?.with_dropout(0.1)?;
/// let ids = array![[5661, 318, 257, 6152]]; // "this is a prompt"
/// let (x, mask) = input.forward_train(&ids, 0..4, &mut rng)?;
/// let grad = input.backward_rows(&x, &ids, 0..4, Some(&mask))?;
/// assert_eq!((grad.tokens.rows(), grad.positions.rows()), (&[257, 318, 5661, 6152][..], &[0, 1, 2, 3][..]));
/// # Ok::<(), positional_embedding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct InputEmbedding<F: Float = f32, P: AbsoluteEncoding<F> = PositionalEmbedding<F>> {
    tokens: TokenEmbedding<F>,
    positions: P,
    dropout: Dropout,
}

/// The gradients of both tables: dense arrays, or [`RowGradient`]s of the rows that were read.
#[derive(Clone, Debug, PartialEq)]
pub struct InputGradient<G> {
    /// Of the token table, `(vocab_size, n_embd)`.
    pub tokens: G,
    /// Of what the position encoding trains, `(block_size, n_embd)`; no rows for a fixed encoding.
    pub positions: G,
}

impl<F: Float, P: AbsoluteEncoding<F>> InputEmbedding<F, P> {
    /// Both encodings, without dropout.
    ///
    /// # Errors
    ///
    /// Encodings of different widths.
    ///
    /// ```
    /// use positional_embedding::{InputEmbedding, SinusoidalEncoding, TokenEmbedding};
    ///
    /// let tokens = TokenEmbedding::<f32>::new(100, 8, &mut rand::rng())?.with_sqrt_scale();
    /// assert!(InputEmbedding::new(tokens.clone(), SinusoidalEncoding::new(8)?).is_ok());
    /// assert!(InputEmbedding::new(tokens, SinusoidalEncoding::new(6)?).is_err());
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn new(tokens: TokenEmbedding<F>, positions: P) -> Result<Self> {
        if positions.n_embd() != tokens.n_embd() {
            let shape = vec![positions.n_embd()];
            return Err(Error::WidthMismatch {
                array: "a row of positions",
                shape,
                n_embd: tokens.n_embd(),
            });
        }
        Ok(Self {
            tokens,
            positions,
            dropout: Dropout::NONE,
        })
    }

    /// Leaves out values with probability `p` in [`forward_train`](Self::forward_train), and scales the rest by 1 / (1 − p).
    ///
    /// # Errors
    ///
    /// `p` that is not at least 0 and below 1.
    ///
    /// ```
    /// use positional_embedding::{InputEmbedding, PositionalEmbedding, TokenEmbedding};
    ///
    /// let mut rng = rand::rng();
    /// let tokens = TokenEmbedding::<f32>::new(100, 8, &mut rng)?;
    /// let input = InputEmbedding::new(tokens, PositionalEmbedding::new(16, 8, &mut rng)?)?;
    /// assert_eq!(input.with_dropout(0.1)?.dropout(), 0.1);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn with_dropout(mut self, p: f64) -> Result<Self> {
        self.dropout = Dropout::new(p)?;
        Ok(self)
    }

    /// The probability with which training leaves out a value.
    #[must_use]
    pub fn dropout(&self) -> f64 {
        self.dropout.p()
    }

    /// Width of an embedding.
    #[must_use]
    pub fn n_embd(&self) -> usize {
        self.tokens.n_embd()
    }

    /// The token embedding. An output head with tied weights borrows its table.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::{InputEmbedding, PositionalEmbedding, TokenEmbedding};
    ///
    /// let tokens = TokenEmbedding::from_weight(array![[1.0_f32, 0.0], [0.0, 1.0]])?;
    /// let input = InputEmbedding::new(tokens, PositionalEmbedding::from_weight(array![[0.5, 0.5]])?)?;
    /// let x = input.forward(&array![1], 0..1)?;
    /// let logits = x.dot(&input.tokens().weight().t());
    /// assert_eq!(logits, array![[0.5, 1.5]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    #[must_use]
    pub fn tokens(&self) -> &TokenEmbedding<F> {
        &self.tokens
    }

    /// The token embedding, for an optimizer.
    pub fn tokens_mut(&mut self) -> &mut TokenEmbedding<F> {
        &mut self.tokens
    }

    /// The position encoding.
    #[must_use]
    pub fn positions(&self) -> &P {
        &self.positions
    }

    /// The position encoding, for an optimizer.
    pub fn positions_mut(&mut self) -> &mut P {
        &mut self.positions
    }

    /// The embeddings of some tokens at some positions, without dropout.
    ///
    /// # Shapes
    ///
    /// `ids`: `(len)`, `(batch, len)` or any rank above; the result has one more axis, `n_embd`.
    ///
    /// # Errors
    ///
    /// An id outside the vocabulary; positions that do not fit the ids, or that have no row.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::{InputEmbedding, PositionalEmbedding, TokenEmbedding};
    ///
    /// let tokens = TokenEmbedding::from_weight(array![[1.0_f32], [2.0]])?;
    /// let input = InputEmbedding::new(tokens, PositionalEmbedding::from_weight(array![[10.0], [20.0]])?)?;
    /// assert_eq!(input.forward(&array![[0, 1], [1, 1]], 0..2)?, array![[[11.0], [22.0]], [[12.0], [22.0]]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn forward<'p, T: Integer, D: Dimension>(
        &self,
        ids: &ArrayRef<T, D>,
        positions: impl Into<Positions<'p>>,
    ) -> Result<Array<F, D::Larger>> {
        let positions = positions.into();
        self.rows(ids, &positions)?
            .sum(self.tokens.out_dim(ids), |_, _| ())
    }

    /// The same, written into the caller's buffer.
    ///
    /// # Shapes
    ///
    /// `ids` as for [`forward`](Self::forward); `out` as its result.
    ///
    /// # Errors
    ///
    /// As for [`forward`](Self::forward), and `out` of another shape; it is then as it was.
    ///
    /// ```
    /// use ndarray::{Array2, array};
    /// use positional_embedding::{InputEmbedding, PositionalEmbedding, TokenEmbedding};
    ///
    /// let tokens = TokenEmbedding::from_weight(array![[1.0_f32], [2.0]])?;
    /// let input = InputEmbedding::new(tokens, PositionalEmbedding::from_weight(array![[10.0], [20.0]])?)?;
    /// let mut out = Array2::zeros((2, 1));
    /// input.forward_into(&array![1, 0], 0..2, &mut out)?;
    /// assert_eq!(out, array![[12.0], [21.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn forward_into<'p, T: Integer, D: Dimension>(
        &self,
        ids: &ArrayRef<T, D>,
        positions: impl Into<Positions<'p>>,
        out: &mut ArrayRef<F, D::Larger>,
    ) -> Result<()> {
        check_shape("out", out.shape(), self.tokens.out_dim(ids).slice())?;
        let positions = positions.into();
        self.rows(ids, &positions)?.sum_into(out);
        Ok(())
    }

    /// The embeddings of some tokens at some positions, with dropout drawn from the caller's generator, and the mask that
    /// the backward pass needs.
    ///
    /// Without dropout nothing is drawn and the mask is empty.
    ///
    /// # Shapes
    ///
    /// As for [`forward`](Self::forward).
    ///
    /// # Errors
    ///
    /// As for [`forward`](Self::forward); nothing is then drawn.
    ///
    /// ```
    /// use ndarray::{Array2, array};
    /// use positional_embedding::{InputEmbedding, PositionalEmbedding, TokenEmbedding};
    ///
    /// let tokens = TokenEmbedding::from_weight(Array2::<f32>::ones((1, 100)))?;
    /// let input = InputEmbedding::new(tokens, PositionalEmbedding::from_weight(Array2::ones((1, 100)))?)?.with_dropout(0.5)?;
    /// let (x, _) = input.forward_train(&array![0], 0..1, &mut rand::rng())?;
    /// assert!(x.iter().all(|&value| value == 0.0 || value == 4.0)); // (1 + 1) / (1 − 0.5)
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    #[expect(
        clippy::type_complexity,
        reason = "a result and its mask are read more easily than a name for the pair"
    )]
    pub fn forward_train<'p, T: Integer, D: Dimension, R: Rng + ?Sized>(
        &self,
        ids: &ArrayRef<T, D>,
        positions: impl Into<Positions<'p>>,
        rng: &mut R,
    ) -> Result<(Array<F, D::Larger>, DropoutMask<F>)> {
        let positions = positions.into();
        let rows = self.rows(ids, &positions)?;
        let dim = self.tokens.out_dim(ids);
        let mask = self.dropout.draw(dim.slice(), rng)?;
        let x = rows.sum(dim, |first, row| mask.apply(first, row))?;
        Ok((x, mask))
    }

    /// The gradients of both tables.
    ///
    /// The adjoint of [`forward_train`](Self::forward_train) with its `mask`, or of [`forward`](Self::forward) with `None`.
    /// The results are new; [`backward_into`](Self::backward_into) adds to others, and
    /// [`backward_rows`](Self::backward_rows) leaves out the thousands of rows that no token read.
    ///
    /// # Shapes
    ///
    /// `grad_out` as the result of `forward`; each gradient as its table.
    ///
    /// # Errors
    ///
    /// As for [`forward`](Self::forward), and `grad_out` or `mask` of another shape.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::{InputEmbedding, PositionalEmbedding, TokenEmbedding};
    ///
    /// let tokens = TokenEmbedding::from_weight(array![[0.0_f32], [0.0]])?;
    /// let input = InputEmbedding::new(tokens, PositionalEmbedding::from_weight(array![[0.0], [0.0], [0.0]])?)?;
    /// let grad = input.backward(&array![[1.0], [2.0]], &array![1, 1], 0..2, None)?;
    /// assert_eq!((grad.tokens, grad.positions), (array![[0.0], [3.0]], array![[1.0], [2.0], [0.0]]));
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn backward<'p, T: Integer, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D::Larger>,
        ids: &ArrayRef<T, D>,
        positions: impl Into<Positions<'p>>,
        mask: Option<&DropoutMask<F>>,
    ) -> Result<InputGradient<Array2<F>>> {
        let grad = unmasked(grad_out, mask)?;
        let positions = self.positions.backward(&grad, positions)?;
        Ok(InputGradient {
            tokens: self.tokens.backward(&grad, ids)?,
            positions,
        })
    }

    /// **Adds** the gradients of both tables to those that the caller holds.
    ///
    /// # Shapes
    ///
    /// `grad_out` as the result of [`forward`](Self::forward); `grad_tokens` and `grad_positions` as their tables.
    ///
    /// # Errors
    ///
    /// As for [`backward`](Self::backward), and a gradient of another shape than its table; both are then as they were.
    ///
    /// ```
    /// use ndarray::{Array2, array};
    /// use positional_embedding::{InputEmbedding, PositionalEmbedding, TokenEmbedding};
    ///
    /// let tokens = TokenEmbedding::from_weight(array![[0.0_f32], [0.0]])?;
    /// let input = InputEmbedding::new(tokens, PositionalEmbedding::from_weight(array![[0.0], [0.0]])?)?;
    /// let (mut grad_tokens, mut grad_positions) = (Array2::ones((2, 1)), Array2::ones((2, 1)));
    /// input.backward_into(&array![[5.0]], &array![1], 0..1, None, &mut grad_tokens, &mut grad_positions)?;
    /// assert_eq!((grad_tokens, grad_positions), (array![[1.0], [6.0]], array![[6.0], [1.0]]));
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn backward_into<'p, T: Integer, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D::Larger>,
        ids: &ArrayRef<T, D>,
        positions: impl Into<Positions<'p>>,
        mask: Option<&DropoutMask<F>>,
        grad_tokens: &mut ArrayRef2<F>,
        grad_positions: &mut ArrayRef2<F>,
    ) -> Result<()> {
        check_shape(
            "grad_tokens",
            grad_tokens.shape(),
            self.tokens.weight().shape(),
        )?;
        check_shape(
            "grad_positions",
            grad_positions.shape(),
            self.positions.parameters().shape(),
        )?;
        self.tokens.check(grad_out, ids)?;
        let grad = unmasked(grad_out, mask)?;
        // The positions are the last thing that may be refused, before anything is written.
        self.positions
            .backward_into(&grad, positions, grad_positions)?;
        self.tokens.backward_into(&grad, ids, grad_tokens)
    }

    /// The gradients of the rows that were read, and of no others.
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
    /// use positional_embedding::{InputEmbedding, SinusoidalEncoding, TokenEmbedding};
    ///
    /// let tokens = TokenEmbedding::from_weight(Array2::<f32>::zeros((50_257, 2)))?;
    /// let input = InputEmbedding::new(tokens, SinusoidalEncoding::new(2)?)?;
    /// let grad = input.backward_rows(&array![[1.0, 2.0]], &array![318], 0..1, None)?;
    /// assert_eq!((grad.tokens.rows(), grad.positions.rows().len()), (&[318][..], 0));
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn backward_rows<'p, T: Integer, D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D::Larger>,
        ids: &ArrayRef<T, D>,
        positions: impl Into<Positions<'p>>,
        mask: Option<&DropoutMask<F>>,
    ) -> Result<InputGradient<RowGradient<F>>> {
        let grad = unmasked(grad_out, mask)?;
        let positions = self.positions.backward_rows(&grad, positions)?;
        Ok(InputGradient {
            tokens: self.tokens.backward_rows(&grad, ids)?,
            positions,
        })
    }

    /// Both rows of each token, after every check.
    fn rows<'a, T: Integer, D: Dimension>(
        &'a self,
        ids: &'a ArrayRef<T, D>,
        positions: &'a Positions<'_>,
    ) -> Result<InputRows<'a, F>> {
        let dim = self.tokens.out_dim(ids);
        let tokens = self.tokens.select(ids)?;
        let positions = self.positions.select(
            positions,
            Some(TokenArray {
                name: "input embedding",
                shape: dim.slice(),
            }),
        )?;
        Ok(InputRows {
            tokens,
            scale: self.tokens.scale(),
            positions,
        })
    }
}

/// The gradient before dropout: the one given, where nothing was dropped.
fn unmasked<'a, F: Float, D: Dimension>(
    grad_out: &'a ArrayRef<F, D>,
    mask: Option<&DropoutMask<F>>,
) -> Result<CowArray<'a, F, D>> {
    mask.map_or_else(
        || Ok(grad_out.view().into()),
        |mask| mask.backward(grad_out),
    )
}

/// The two rows whose sum is the embedding of a token.
struct InputRows<'a, F: Float> {
    tokens: Selection<'a, F>,
    scale: F,
    positions: Selection<'a, F>,
}

impl<F: Float> InputRows<'_, F> {
    fn iter(&self) -> impl Iterator<Item = (&[F], &[F])> {
        self.tokens.iter().zip(self.positions.iter())
    }

    /// The sums, each row handed to `finish` with the number of its first value while it is in the cache.
    fn sum<D: Dimension>(&self, dim: D, finish: impl Fn(usize, &mut [F])) -> Result<Array<F, D>> {
        let mut out = kernel::buffer(dim.slice())?;
        for (token, position) in self.iter() {
            let first = out.len();
            kernel::extend_scaled_sum(&mut out, self.scale, token, position);
            finish(first, &mut out[first..]);
        }
        kernel::into_array(dim, out)
    }

    fn sum_into<D: Dimension>(&self, out: &mut ArrayRef<F, D>) {
        for ((token, position), mut out) in self.iter().zip(out.rows_mut()) {
            match out.as_slice_mut() {
                Some(out) => kernel::scaled_sum(self.scale, token, position, out),
                None => Zip::from(out)
                    .and(token)
                    .and(position)
                    .for_each(|out, &x, &y| *out = self.scale * x + y),
            }
        }
    }
}
