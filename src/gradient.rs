//! `RowGradient`: the gradient of the rows that were touched, and of no others.
//!
//! ```text
//! dense[rows[i]] = values[i], every other row is zero
//! ```
//!
//! A prompt of four tokens touches four rows of a table of a thousand, or of fifty thousand. Everything here costs what
//! those four rows cost. Frameworks call this a sparse or row-wise gradient; unlike most of theirs, the rows are
//! sorted and each stands once, so that an update that is not linear in the gradient may use them as they are.

use ndarray::{Array2, ArrayRef2, Axis};

use crate::error::{Result, check_shape};
use crate::float::Float;

/// The gradient of the rows of a table that were read: `rows`, sorted and unique, and their `values`.
///
/// Made by `backward_rows` of a table.
///
/// ```
/// use ndarray::{Array2, array};
/// use positional_embedding::PositionalEmbedding;
///
/// let mut table = PositionalEmbedding::from_weight(Array2::<f32>::ones((1000, 2)))?;
/// let grad = table.backward_rows(&array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], &[7, 2, 7])?;
/// assert_eq!(grad.rows(), [2, 7]);
/// assert_eq!(grad.values(), array![[3.0, 4.0], [6.0, 8.0]]);
/// grad.scaled_add_to(-0.5, &mut table.weight_mut())?; // gradient descent on these rows alone
/// assert_eq!(table.weight().row(7), array![-2.0, -3.0]);
/// # Ok::<(), positional_embedding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RowGradient<F> {
    rows: Vec<usize>,
    /// How many tokens each row was read by.
    counts: Vec<usize>,
    values: Array2<F>,
    /// Rows of the dense gradient.
    len: usize,
}

impl<F: Float> RowGradient<F> {
    /// `rows` and `counts` have as many entries as `values` has rows; `rows` ascend and are below `len`.
    pub(crate) fn new(rows: Vec<usize>, counts: Vec<usize>, values: Array2<F>, len: usize) -> Self {
        Self {
            rows,
            counts,
            values,
            len,
        }
    }

    /// The rows that hold gradient, ascending, each once.
    #[must_use]
    pub fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// How many tokens read each of [`rows`](Self::rows).
    #[must_use]
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// The gradient of each of [`rows`](Self::rows).
    ///
    /// # Shapes
    ///
    /// `(rows, n_embd)`.
    #[must_use]
    pub fn values(&self) -> &Array2<F> {
        &self.values
    }

    /// The shape of the dense gradient: `(block_size, n_embd)` or `(vocab_size, n_embd)`.
    #[must_use]
    pub fn dense_dim(&self) -> (usize, usize) {
        (self.len, self.values.ncols())
    }

    /// The same gradient with a row for every row of the table.
    ///
    /// # Shapes
    ///
    /// The result is [`dense_dim`](Self::dense_dim).
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::PositionalEmbedding;
    ///
    /// let table = PositionalEmbedding::from_weight(array![[0.0_f32], [0.0], [0.0]])?;
    /// let grad = table.backward_rows(&array![[1.0], [2.0]], &[2, 2])?;
    /// assert_eq!(grad.to_dense(), array![[0.0], [0.0], [3.0]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    #[must_use]
    pub fn to_dense(&self) -> Array2<F> {
        let mut dense = Array2::zeros(self.dense_dim());
        self.for_each_row(&mut dense, |dense, value| *dense = value);
        dense
    }

    /// Adds this gradient to a dense one: `grad_weight[row] += values[row]`.
    ///
    /// # Shapes
    ///
    /// `grad_weight` is [`dense_dim`](Self::dense_dim).
    ///
    /// # Errors
    ///
    /// [`Error::ShapeMismatch`](crate::Error::ShapeMismatch).
    pub fn add_to(&self, grad_weight: &mut ArrayRef2<F>) -> Result<()> {
        self.check("grad_weight", grad_weight)?;
        self.for_each_row(grad_weight, |grad, value| *grad += value);
        Ok(())
    }

    /// Adds `a` times this gradient to a weight, on these rows alone: `weight[row] += a · values[row]`.
    ///
    /// With `a = -learning_rate` this is one step of gradient descent.
    ///
    /// # Shapes
    ///
    /// `weight` is [`dense_dim`](Self::dense_dim).
    ///
    /// # Errors
    ///
    /// [`Error::ShapeMismatch`](crate::Error::ShapeMismatch).
    pub fn scaled_add_to(&self, a: F, weight: &mut ArrayRef2<F>) -> Result<()> {
        self.check("weight", weight)?;
        self.for_each_row(weight, |weight, value| *weight += a * value);
        Ok(())
    }

    /// The mean over the tokens of a row instead of their sum: each row divided by its count.
    ///
    /// Frequent tokens then move no faster than rare ones.
    ///
    /// ```
    /// use ndarray::array;
    /// use positional_embedding::PositionalEmbedding;
    ///
    /// let table = PositionalEmbedding::from_weight(array![[0.0_f32], [0.0], [0.0]])?;
    /// let grad = table.backward_rows(&array![[1.0], [2.0], [6.0]], &[2, 2, 0])?;
    /// assert_eq!(grad.into_mean().values(), array![[6.0], [1.5]]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    #[must_use]
    pub fn into_mean(mut self) -> Self {
        for (mut values, count) in self.values.rows_mut().into_iter().zip(&mut self.counts) {
            #[expect(
                clippy::cast_precision_loss,
                reason = "a count of tokens is far below 2⁵³"
            )]
            let tokens = std::mem::replace(count, 1) as f64;
            values.mapv_inplace(|value| F::round_from(value.widen() / tokens));
        }
        self
    }

    fn check(&self, name: &'static str, array: &ArrayRef2<F>) -> Result<()> {
        let (rows, n_embd) = self.dense_dim();
        check_shape(name, array.shape(), &[rows, n_embd])
    }

    fn for_each_row(&self, dense: &mut ArrayRef2<F>, update: impl Fn(&mut F, F)) {
        for (&row, values) in self.rows.iter().zip(self.values.rows()) {
            dense
                .index_axis_mut(Axis(0), row)
                .zip_mut_with(&values, |dense, &value| update(dense, value));
        }
    }
}
