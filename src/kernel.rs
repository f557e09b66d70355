//! The loops over slices, the only place where speed is bought.
//!
//! Everything above this file decides *which* slices meet; everything here is a plain loop over slices of equal length
//! that the compiler turns into vector instructions. Slices that differ in length are cut to the shorter one, so the
//! callers check first.

use std::ops::Range;

use ndarray::{Array, ArrayRef, ArrayView1, ArrayViewMut1, Axis, Dimension};

use crate::error::{Error, Result};
use crate::float::Float;

/// Columns that are summed at a time: their f64 sums fill a quarter of a first-level cache.
const TILE: usize = 1024;

/// Room for a result of this shape, or an error where there is none; nothing is written yet.
pub(crate) fn buffer<F>(shape: &[usize]) -> Result<Vec<F>> {
    let too_large = || Error::TooLarge {
        shape: shape.to_vec(),
    };
    let len = shape
        .iter()
        .try_fold(1_usize, |len, &axis| len.checked_mul(axis))
        .ok_or_else(too_large)?;
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(len).map_err(|_| too_large())?;
    Ok(buffer)
}

/// A result from the values that were written to its [`buffer`].
pub(crate) fn into_array<F, D: Dimension>(dim: D, values: Vec<F>) -> Result<Array<F, D>> {
    let shape = dim.slice().to_vec();
    Array::from_shape_vec(dim, values).map_err(|_| Error::TooLarge { shape })
}

/// Appends `x + y`.
pub(crate) fn extend_sum<F: Float>(out: &mut Vec<F>, x: &[F], y: &[F]) {
    out.extend(x.iter().zip(y).map(|(&x, &y)| x + y));
}

/// Appends `scale · x`; a plain copy where the scale is 1.
pub(crate) fn extend_scaled<F: Float>(out: &mut Vec<F>, scale: F, x: &[F]) {
    if scale == F::one() {
        out.extend_from_slice(x);
    } else {
        out.extend(x.iter().map(|&x| scale * x));
    }
}

/// Appends `scale · x + y`.
pub(crate) fn extend_scaled_sum<F: Float>(out: &mut Vec<F>, scale: F, x: &[F], y: &[F]) {
    out.extend(x.iter().zip(y).map(|(&x, &y)| scale * x + y));
}

/// `out = x + y`.
pub(crate) fn sum<F: Float>(x: &[F], y: &[F], out: &mut [F]) {
    for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
        *out = x + y;
    }
}

/// `out = scale · x + y`.
pub(crate) fn scaled_sum<F: Float>(scale: F, x: &[F], y: &[F], out: &mut [F]) {
    for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
        *out = scale * x + y;
    }
}

/// `x += y`.
pub(crate) fn add_assign<F: Float>(x: &mut [F], y: &[F]) {
    for (x, &y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// Sums of the rows of an array: `scale · Σ rows`, gathered in f64 in the order given and rounded once.
///
/// Each sum starts from zero and takes its terms one by one, so that its bits depend neither on the strides nor on how many
/// rows one sweep takes.
pub(crate) struct RowSums<'a, F> {
    rows: Rows<'a, F>,
    width: usize,
    scale: f64,
    /// The sums of a stretch of columns, made once for all calls.
    tile: [f64; TILE],
}

/// The rows of an array by number, in logical order.
enum Rows<'a, F> {
    /// Row-major and without gaps.
    Flat(&'a [F]),
    /// Anything else.
    Strided(Vec<ArrayView1<'a, F>>),
}

impl<'a, F: Float> RowSums<'a, F> {
    /// Rows of `width` values, one after the other.
    pub(crate) fn flat(values: &'a [F], width: usize, scale: f64) -> Self {
        Self {
            rows: Rows::Flat(values),
            width,
            scale,
            tile: [0.0; TILE],
        }
    }

    /// The rows of an array of any rank and strides: its last axis, of `width` values.
    pub(crate) fn of<D: Dimension>(array: &'a ArrayRef<F, D>, width: usize, scale: f64) -> Self {
        let rows = match array.as_slice() {
            Some(values) => Rows::Flat(values),
            None => Rows::Strided(array.rows().into_iter().collect()),
        };
        Self {
            rows,
            width,
            scale,
            tile: [0.0; TILE],
        }
    }

    /// `target += scale · Σ rows`.
    pub(crate) fn add_to(&mut self, rows: &[usize], mut target: ArrayViewMut1<'_, F>) {
        let scale = self.scale;
        match (self.single(rows), target.as_slice_mut()) {
            (Some(row), Some(target)) => add_assign_positive(target, row),
            (_, Some(target)) => self.sum(rows, &mut AddTo { target, scale }),
            (_, None) => self.sum(rows, &mut AddToStrided { target, scale }),
        }
    }

    /// Appends `scale · Σ rows`.
    pub(crate) fn append_to(&mut self, rows: &[usize], out: &mut Vec<F>) {
        let scale = self.scale;
        match self.single(rows) {
            Some(row) => out.extend(row.iter().map(|&x| x + F::zero())),
            None => self.sum(rows, &mut Append { out, scale }),
        }
    }

    /// The row that is the whole sum, where no f64 is needed: rounding the sum of two values of type `F` through f64 gives
    /// the bits of adding them in `F`.
    fn single(&self, rows: &[usize]) -> Option<&'a [F]> {
        match (&self.rows, rows) {
            (Rows::Flat(values), &[row]) if self.scale == 1.0 => {
                Some(&values[row * self.width..][..self.width])
            }
            _ => None,
        }
    }

    /// Hands over the sums, a stretch of columns at a time.
    fn sum(&mut self, rows: &[usize], sink: &mut impl Sink) {
        for start in (0..self.width).step_by(TILE) {
            let columns = start..self.width.min(start + TILE);
            let sums = &mut self.tile[..columns.len()];
            match &self.rows {
                Rows::Flat(values) => {
                    sum_flat(
                        sums,
                        rows,
                        |row| &values[row * self.width..][columns.clone()],
                        columns.clone(),
                        sink,
                    );
                }
                Rows::Strided(views) => {
                    sums.fill(0.0);
                    for &row in rows {
                        let row = views[row].slice_axis(Axis(0), columns.clone().into());
                        sums.iter_mut()
                            .zip(row)
                            .for_each(|(sum, x)| *sum += x.widen());
                    }
                    sink.take(columns, sums.iter().copied());
                }
            }
        }
    }
}

/// Takes up to eight rows a sweep: the sums are loaded and stored an eighth as often, and eight streams are read at once.
fn sum_flat<'a, F: Float>(
    sums: &mut [f64],
    rows: &[usize],
    row: impl Fn(usize) -> &'a [F],
    columns: Range<usize>,
    sink: &mut impl Sink,
) {
    match rows.len() {
        8.. => sweep::<F, 8>(sums, rows, row, columns, sink),
        4.. => sweep::<F, 4>(sums, rows, row, columns, sink),
        _ => sweep::<F, 1>(sums, rows, row, columns, sink),
    }
}

/// Takes `N` rows a sweep, after those that are too few for one. The last sweep hands the sums on without storing them.
fn sweep<'a, F: Float, const N: usize>(
    sums: &mut [f64],
    rows: &[usize],
    row: impl Fn(usize) -> &'a [F],
    columns: Range<usize>,
    sink: &mut impl Sink,
) {
    let (lead, groups) = rows.split_at(rows.len() % N);
    let Some((last, groups)) = groups.as_chunks::<N>().0.split_last() else {
        return;
    };
    let width = columns.len();
    // Cut to one length, so that the loop over columns needs no checks and becomes vector instructions.
    let last = last.map(|one| &row(one)[..width]);
    let sums_of = |start: f64, column: usize| {
        last.iter()
            .fold(start, |sum, row| sum + row[column].widen())
    };
    if lead.is_empty() && groups.is_empty() {
        return sink.take(
            columns.clone(),
            (0..width).map(|column| sums_of(0.0, column)),
        );
    }
    sums.fill(0.0);
    for &one in lead {
        add_rows(sums, [row(one)]);
    }
    for group in groups {
        add_rows(sums, group.map(&row));
    }
    sink.take(
        columns,
        sums.iter()
            .enumerate()
            .map(|(column, &sum)| sums_of(sum, column)),
    );
}

/// `sums += Σ rows`, each sum taking its terms in the order of the rows.
fn add_rows<F: Float, const N: usize>(sums: &mut [f64], rows: [&[F]; N]) {
    let rows = rows.map(|row| &row[..sums.len()]);
    for (column, sum) in sums.iter_mut().enumerate() {
        *sum = rows.iter().fold(*sum, |sum, row| sum + row[column].widen());
    }
}

/// Where sums go, a stretch of columns at a time and in order.
trait Sink {
    fn take(&mut self, columns: Range<usize>, sums: impl Iterator<Item = f64>);
}

/// `target += scale · sum`, rounded once.
struct AddTo<'a, F> {
    target: &'a mut [F],
    scale: f64,
}

impl<F: Float> Sink for AddTo<'_, F> {
    fn take(&mut self, columns: Range<usize>, sums: impl Iterator<Item = f64>) {
        for (x, sum) in self.target[columns].iter_mut().zip(sums) {
            *x = F::round_from(x.widen() + self.scale * sum);
        }
    }
}

/// The same for a target with gaps.
struct AddToStrided<'a, F> {
    target: ArrayViewMut1<'a, F>,
    scale: f64,
}

impl<F: Float> Sink for AddToStrided<'_, F> {
    fn take(&mut self, columns: Range<usize>, sums: impl Iterator<Item = f64>) {
        for (x, sum) in self
            .target
            .slice_axis_mut(Axis(0), columns.into())
            .into_iter()
            .zip(sums)
        {
            *x = F::round_from(x.widen() + self.scale * sum);
        }
    }
}

/// `scale · sum` at the end of a vector, rounded once.
struct Append<'a, F> {
    out: &'a mut Vec<F>,
    scale: f64,
}

impl<F: Float> Sink for Append<'_, F> {
    fn take(&mut self, columns: Range<usize>, sums: impl Iterator<Item = f64>) {
        let start = self.out.len();
        // These few zeros stay in the first-level cache; pushing one sum after the other would not be vector instructions.
        self.out.resize(start + columns.len(), F::zero());
        for (x, sum) in self.out[start..].iter_mut().zip(sums) {
            *x = F::round_from(self.scale * sum);
        }
    }
}

/// `x += y` where a sum that starts from zero would be added: it turns -0 into 0.
fn add_assign_positive<F: Float>(x: &mut [F], y: &[F]) {
    for (x, &y) in x.iter_mut().zip(y) {
        *x += y + F::zero();
    }
}
