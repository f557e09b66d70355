//! What every learned table is made of: rows that are looked up, and the gradient that comes back to them.
//!
//! ```text
//! forward    out[token] = weight[row(token)]
//! backward   grad_weight[row] = Σ grad_out[token]   over the tokens with row(token) = row
//! ```
//!
//! A position table and a token table differ in what their rows are called and in who may read them; the rest is here.
//! The sum is taken in f64 in order of the tokens and rounded once. Its error therefore does not grow with the number of
//! tokens, and its bits depend on the tokens alone: not on strides, nor on how positions were written down.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use ndarray::{
    Array, Array2, ArrayRef, ArrayRef2, ArrayView1, ArrayViewMut1, ArrayViewMut2, Axis, Dimension,
    Ix2, Zip,
};
use rand::Rng;
use rand_distr::{Distribution, StandardNormal};

use crate::error::{Error, Result, check_shape};
use crate::float::Float;
use crate::gradient::RowGradient;
use crate::indices::Indices;
use crate::kernel::{self, RowSums};

/// A table of `rows × n_embd` values, row-major and without gaps.
#[derive(Clone, PartialEq)]
pub(crate) struct Table<F> {
    weight: Array2<F>,
    /// A row that takes no gradient.
    padding_row: Option<usize>,
}

impl<F: Float> Table<F> {
    /// `rows × n_embd` values drawn from `distribution`; `name` is what the rows are called.
    pub(crate) fn from_distribution<R: Rng + ?Sized>(
        name: &'static str,
        rows: usize,
        n_embd: usize,
        distribution: &impl Distribution<F>,
        rng: &mut R,
    ) -> Result<Self> {
        check_sizes(name, rows, n_embd)?;
        let shape = [rows, n_embd];
        let mut values = kernel::buffer(&shape)?;
        values.extend(distribution.sample_iter(rng).take(rows * n_embd));
        Ok(Self {
            weight: kernel::into_array(Ix2(shape[0], shape[1]), values)?,
            padding_row: None,
        })
    }

    /// The values given; copied only if they are not row-major.
    pub(crate) fn from_weight(name: &'static str, weight: Array2<F>) -> Result<Self> {
        check_sizes(name, weight.nrows(), weight.ncols())?;
        let weight = if weight.is_standard_layout() {
            weight
        } else {
            weight.as_standard_layout().into_owned()
        };
        Ok(Self {
            weight,
            padding_row: None,
        })
    }

    pub(crate) fn set_padding_row(&mut self, row: usize) -> Result<()> {
        if row >= self.weight.nrows() {
            let must = format!(
                "it must be below {}, the rows of the table",
                self.weight.nrows()
            );
            return Err(Error::setting("padding_row", row, must));
        }
        self.padding_row = Some(row);
        Ok(())
    }

    pub(crate) fn padding_row(&self) -> Option<usize> {
        self.padding_row
    }

    pub(crate) fn weight(&self) -> &Array2<F> {
        &self.weight
    }

    pub(crate) fn weight_mut(&mut self) -> ArrayViewMut2<'_, F> {
        self.weight.view_mut()
    }

    pub(crate) fn into_weight(self) -> Array2<F> {
        self.weight
    }

    /// The rows that tokens read.
    pub(crate) fn select<'a>(&'a self, indices: Indices<'a>) -> Selection<'a, F> {
        // `new` and `from_weight` leave no other layout, and a view lent for writing cannot change it.
        let rows = self
            .weight
            .as_slice()
            .map_or_else(|| self.weight.iter().copied().collect(), Cow::Borrowed);
        Selection::new(rows, self.weight.ncols(), indices)
    }

    /// The gradient of the whole table.
    pub(crate) fn backward<D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        indices: &Indices<'_>,
        scale: f64,
    ) -> Array2<F> {
        let mut grad_weight = Array2::zeros(self.weight.dim());
        self.accumulate(grad_out, indices, scale, &mut grad_weight);
        grad_weight
    }

    /// Adds the gradient of the table to one that the caller holds.
    pub(crate) fn backward_into<D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        indices: &Indices<'_>,
        scale: f64,
        grad_weight: &mut ArrayRef2<F>,
    ) -> Result<()> {
        check_shape("grad_weight", grad_weight.shape(), self.weight.shape())?;
        self.accumulate(grad_out, indices, scale, grad_weight);
        Ok(())
    }

    /// The gradient of the rows that were read, and of no others.
    pub(crate) fn backward_rows<D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        indices: &Indices<'_>,
        scale: f64,
    ) -> Result<RowGradient<F>> {
        let n_embd = self.weight.ncols();
        let groups = indices.groups().without(self.padding_row);
        let shape = [groups.len(), n_embd];
        let mut sums = RowSums::of(grad_out, n_embd, scale);
        let mut values = kernel::buffer(&shape)?;
        let mut rows = Vec::with_capacity(groups.len());
        let mut counts = Vec::with_capacity(groups.len());
        for (row, tokens) in groups.iter() {
            rows.push(row);
            counts.push(tokens.len());
            sums.append_to(tokens, &mut values);
        }
        Ok(RowGradient::new(
            rows,
            counts,
            kernel::into_array(Ix2(shape[0], shape[1]), values)?,
            self.weight.nrows(),
        ))
    }

    fn accumulate<D: Dimension>(
        &self,
        grad_out: &ArrayRef<F, D>,
        indices: &Indices<'_>,
        scale: f64,
        grad_weight: &mut ArrayRef2<F>,
    ) {
        let n_embd = self.weight.ncols();
        if grad_out.is_empty() {
            return;
        }
        // Sequences that read the same neighbouring rows are long rows themselves: one sum without any grouping.
        if let Some(first) = indices.contiguous()
            && self.padding_row.is_none()
            && let Some(grad_out) = grad_out.as_slice()
            && let Some(grad_weight) = grad_weight.as_slice_mut()
        {
            let sequences: Vec<usize> = (0..indices.sequences()).collect();
            let width = grad_out.len() / sequences.len();
            let target = ArrayViewMut1::from(&mut grad_weight[first * n_embd..][..width]);
            RowSums::flat(grad_out, width, scale).add_to(&sequences, target);
            return;
        }
        let mut sums = RowSums::of(grad_out, n_embd, scale);
        for (row, tokens) in indices.groups().without(self.padding_row).iter() {
            sums.add_to(tokens, grad_weight.index_axis_mut(Axis(0), row));
        }
    }
}

impl<F> fmt::Debug for Table<F> {
    /// Sizes, not the millions of values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("weight", &self.weight.shape())
            .field("padding_row", &self.padding_row)
            .finish()
    }
}

/// Rows of `n_embd` values and which of them each token reads.
pub struct Selection<'a, F: Float> {
    rows: Cow<'a, [F]>,
    n_embd: usize,
    indices: Indices<'a>,
}

impl<'a, F: Float> Selection<'a, F> {
    pub(crate) fn new(rows: Cow<'a, [F]>, n_embd: usize, indices: Indices<'a>) -> Self {
        Self {
            rows,
            n_embd,
            indices,
        }
    }

    /// The row of every token, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[F]> {
        self.indices.iter().map(|row| self.rows(row, 1))
    }

    /// `scale · rows`, one for each token.
    pub(crate) fn copy<D: Dimension>(&self, scale: F, dim: D) -> Result<Array<F, D>> {
        let mut out = kernel::buffer(dim.slice())?;
        self.indices.for_each_run(|_, row, count| {
            kernel::extend_scaled(&mut out, scale, self.rows(row, count));
        });
        kernel::into_array(dim, out)
    }

    /// `x + rows`.
    pub(crate) fn sum<D: Dimension>(&self, x: &ArrayRef<F, D>) -> Result<Array<F, D>> {
        let mut out = kernel::buffer(x.shape())?;
        if let Some(x) = x.as_slice() {
            self.indices.for_each_run(|token, row, count| {
                kernel::extend_sum(&mut out, &x[self.span(token, count)], self.rows(row, count));
            });
        } else {
            for (x, row) in x.rows().into_iter().zip(self.iter()) {
                match x.as_slice() {
                    Some(x) => kernel::extend_sum(&mut out, x, row),
                    None => out.extend(x.iter().zip(row).map(|(&x, &y)| x + y)),
                }
            }
        }
        kernel::into_array(x.raw_dim(), out)
    }

    /// `x += rows`.
    pub(crate) fn add_to<D: Dimension>(&self, x: &mut ArrayRef<F, D>) {
        if let Some(x) = x.as_slice_mut() {
            self.indices.for_each_run(|token, row, count| {
                kernel::add_assign(&mut x[self.span(token, count)], self.rows(row, count));
            });
        } else {
            for (mut x, row) in x.rows_mut().into_iter().zip(self.iter()) {
                x += &ArrayView1::from(row);
            }
        }
    }

    /// `out = x + rows`.
    pub(crate) fn sum_into<D: Dimension>(&self, x: &ArrayRef<F, D>, out: &mut ArrayRef<F, D>) {
        if let (Some(x), Some(out)) = (x.as_slice(), out.as_slice_mut()) {
            self.indices.for_each_run(|token, row, count| {
                let span = self.span(token, count);
                kernel::sum(&x[span.clone()], self.rows(row, count), &mut out[span]);
            });
        } else {
            for ((x, out), row) in x.rows().into_iter().zip(out.rows_mut()).zip(self.iter()) {
                Zip::from(out)
                    .and(x)
                    .and(row)
                    .for_each(|out, &x, &y| *out = x + y);
            }
        }
    }

    /// `count` neighbouring rows from `row` on.
    fn rows(&self, row: usize, count: usize) -> &[F] {
        &self.rows[self.span(row, count)]
    }

    /// Where `count` rows from `row` on stand. In `usize`, as tables past 2³¹ values are common.
    fn span(&self, row: usize, count: usize) -> Range<usize> {
        row * self.n_embd..(row + count) * self.n_embd
    }
}

/// N(0, 0.02²), from which GPT-2 draws its tables.
pub(crate) fn gpt2_normal<F: Float>() -> impl Distribution<F> {
    Distribution::<f64>::map(StandardNormal, |value| F::round_from(0.02 * value))
}

fn check_sizes(name: &'static str, rows: usize, n_embd: usize) -> Result<()> {
    if rows == 0 {
        return Err(Error::setting(name, rows, "a table needs at least one row"));
    }
    check_n_embd(n_embd)
}

/// Refuses an embedding without width.
pub(crate) fn check_n_embd(n_embd: usize) -> Result<()> {
    if n_embd == 0 {
        return Err(Error::setting(
            "n_embd",
            n_embd,
            "an embedding needs at least one value",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ndarray::{Ix3, ShapeBuilder, array};
    use rand_distr::StandardUniform;

    use super::*;
    use crate::indices::List;

    fn table(weight: Array2<f32>) -> Table<f32> {
        Table::from_weight("block_size", weight).unwrap()
    }

    #[test]
    fn sizes_that_cannot_be_are_refused_before_anything_is_allocated() {
        let of = |rows, n_embd| {
            Table::<f32>::from_distribution(
                "block_size",
                rows,
                n_embd,
                &StandardUniform,
                &mut rand::rng(),
            )
            .unwrap_err()
        };
        assert_eq!(
            of(0, 4).to_string(),
            "block_size is 0, but a table needs at least one row"
        );
        assert_eq!(
            of(4, 0).to_string(),
            "n_embd is 0, but an embedding needs at least one value"
        );
        assert_eq!(
            of(usize::MAX, 2),
            Error::TooLarge {
                shape: vec![usize::MAX, 2]
            }
        );
        assert_eq!(
            of(1 << 40, 1 << 20),
            Error::TooLarge {
                shape: vec![1 << 40, 1 << 20]
            }
        );
    }

    #[test]
    fn a_table_is_row_major_whatever_it_was_made_from() {
        let weight =
            Array2::from_shape_vec((2, 3).f(), vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0]).unwrap();
        let table = table(weight);
        assert_eq!(
            table.weight().as_slice(),
            Some(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..])
        );
    }

    #[test]
    fn rows_past_two_to_the_31_values_stand_where_they_should() {
        let rows = Selection::<f32>::new(
            Cow::Owned(Vec::new()),
            10_752,
            Indices::flat(Cow::Owned(Vec::new())),
        );
        assert_eq!(rows.span(199_729, 2), 2_147_486_208..2_147_507_712);
    }

    #[test]
    fn axes_between_batch_and_len_share_their_rows_and_add_up() {
        let table = table(array![[1.0], [2.0], [3.0]]);
        let indices = || Indices::new(List::PerSequence(Cow::Owned(vec![2, 0])), 2, 3, 1);
        let x = Array::zeros((2, 3, 1, 1));
        let sum = table.select(indices()).sum(&x).unwrap();
        assert_eq!(
            sum.iter().copied().collect::<Vec<_>>(),
            [3.0, 3.0, 3.0, 1.0, 1.0, 1.0]
        );
        let ones = Array::ones((2, 3, 1, 1));
        assert_eq!(
            table.backward(&ones, &indices(), 1.0),
            array![[3.0], [0.0], [3.0]]
        );
    }

    #[test]
    fn an_empty_range_anywhere_gives_no_gradient() {
        let table = table(array![[1.0], [2.0]]);
        let empty = Array::<f32, Ix3>::zeros((2, 0, 1));
        let indices = Indices::new(List::Range(9), 2, 1, 0);
        assert_eq!(table.backward(&empty, &indices, 1.0), array![[0.0], [0.0]]);
        assert!(
            table
                .backward_rows(&empty, &indices, 1.0)
                .unwrap()
                .rows()
                .is_empty()
        );
    }
}
