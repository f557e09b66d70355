//! `Positions`: which place each token holds in its sequence.
//!
//! Three forms cover training, inference and caches:
//!
//! ```text
//! 0..len, past..past + len       a range: token t of every sequence stands at start + t
//! [0, 1, 2, 0, 1]                a list that the whole batch shares
//! [[0, 1, 2], [0, 0, 1]]         one row for each sequence (batch × len)
//! ```
//!
//! Nothing wraps and nothing is clamped: a negative number from a tensor file is kept as the error that the next
//! call returns.

use std::borrow::Cow;
use std::ops::Range;

use ndarray::{ArrayBase, ArrayRef1, ArrayRef2, ArrayView, Data, Dimension, Ix1, Ix2, Ix3, IxDyn};

use crate::error::{Error, Result};
use crate::indices::{Indices, List};
use crate::integer::Integer;

/// The position of each token: a range, a list that the batch shares, or one row for each sequence.
///
/// Every method takes `impl Into<Positions<'_>>`, so that one writes `0..len`, `&[0, 1, 1]` or `&position_ids`.
/// Integers may be of any usual type. Positions that are used more than once can be converted once and lent as
/// `&positions`; lists of `usize` in row-major order are borrowed, others are converted once.
///
/// ```
/// use ndarray::{Array2, Array3, array};
/// use positional_embedding::{PositionalEmbedding, Positions};
///
/// let table = PositionalEmbedding::from_weight(array![[0.0_f32], [1.0], [2.0], [3.0]])?;
/// let position_ids = array![[0_i64, 1, 2], [1, 2, 3]]; // from a tensor file
/// let positions = Positions::from(&position_ids);
/// let x = table.forward(&Array3::zeros((2, 3, 1)), &positions)?;
/// assert_eq!(x, array![[[0.0], [1.0], [2.0]], [[1.0], [2.0], [3.0]]]);
/// # Ok::<(), positional_embedding::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Positions<'a>(Result<Source<'a>>);

#[derive(Clone, Debug, PartialEq)]
enum Source<'a> {
    Range(Range<usize>),
    Shared(Cow<'a, [usize]>),
    PerSequence {
        values: Cow<'a, [usize]>,
        batch: usize,
        len: usize,
    },
}

/// An array whose rows want positions: its name and shape, for the checks and for what they say.
#[derive(Clone, Copy)]
pub struct TokenArray<'s> {
    pub(crate) name: &'static str,
    pub(crate) shape: &'s [usize],
}

impl<'a> Positions<'a> {
    /// The shape of the positions: `[len]`, or `[batch, len]` for one row for each sequence.
    ///
    /// # Errors
    ///
    /// [`Error::NotAPosition`] where they were made from a number that is none.
    ///
    /// ```
    /// use positional_embedding::Positions;
    ///
    /// assert_eq!(Positions::from(3..7).shape()?, [4]);
    /// # Ok::<(), positional_embedding::Error>(())
    /// ```
    pub fn shape(&self) -> Result<Vec<usize>> {
        Ok(match self.source()? {
            Source::Range(range) => vec![range.len()],
            Source::Shared(values) => vec![values.len()],
            Source::PerSequence { batch, len, .. } => vec![*batch, *len],
        })
    }

    /// The row of a table that each token of `array` reads, or each position where there is no array to add it to.
    ///
    /// Every check of shape and range is made; `limit` is the number of positions there are, where there is a limit.
    pub(crate) fn indices(
        &self,
        array: Option<TokenArray<'_>>,
        n_embd: usize,
        limit: Option<usize>,
    ) -> Result<Indices<'_>> {
        let source = self.source()?;
        let (sequences, len) = match source {
            Source::Range(range) => (None, range.len()),
            Source::Shared(values) => (None, values.len()),
            Source::PerSequence { batch, len, .. } => (Some(*batch), *len),
        };
        let (batch, sharing) = match array {
            Some(array) => array.check(n_embd, sequences, len)?,
            None => (sequences.unwrap_or(1), 1),
        };
        Ok(Indices::new(source.list(limit)?, batch, sharing, len))
    }

    fn source(&self) -> Result<&Source<'a>> {
        self.0.as_ref().map_err(Clone::clone)
    }

    /// Rows of `len` positions, sequence after sequence. `shape` has one axis or two.
    fn from_values<T: Integer>(values: &'a [T], shape: &[usize]) -> Self {
        let len = shape[shape.len() - 1];
        Self(
            T::rows(values)
                .map_err(|(index, position)| not_a_position(position, index, len))
                .map(|values| match *shape {
                    [batch, len] => Source::PerSequence { values, batch, len },
                    _ => Source::Shared(values),
                }),
        )
    }

    /// The same from an array, in logical order whatever its strides.
    fn from_array<T: Integer, D: Dimension>(array: &ArrayView<'a, T, D>) -> Self {
        match array.to_slice() {
            Some(values) => Self::from_values(values, array.shape()),
            None => {
                let values: Vec<T> = array.iter().copied().collect();
                Positions::from_values(&values, array.shape()).into_owned()
            }
        }
    }

    /// The same positions, lent.
    fn borrowed(&self) -> Positions<'_> {
        Positions(self.source().map(|source| match source {
            Source::Range(range) => Source::Range(range.clone()),
            Source::Shared(values) => Source::Shared(Cow::Borrowed(values)),
            Source::PerSequence { values, batch, len } => Source::PerSequence {
                values: Cow::Borrowed(values),
                batch: *batch,
                len: *len,
            },
        }))
    }

    /// The same positions, holding their own copy of any list.
    #[must_use]
    pub fn into_owned(self) -> Positions<'static> {
        Positions(self.0.map(|source| match source {
            Source::Range(range) => Source::Range(range),
            Source::Shared(values) => Source::Shared(Cow::Owned(values.into_owned())),
            Source::PerSequence { values, batch, len } => Source::PerSequence {
                values: Cow::Owned(values.into_owned()),
                batch,
                len,
            },
        }))
    }
}

impl TokenArray<'_> {
    /// Refuses an array without a row of `n_embd` values for each position. Returns `batch`, and how many sequences share
    /// the positions of a batch entry.
    fn check(
        self,
        n_embd: usize,
        sequences: Option<usize>,
        positions: usize,
    ) -> Result<(usize, usize)> {
        let Self { name: array, shape } = self;
        let owned = || shape.to_vec();
        let [leading @ .., len, width] = shape else {
            return Err(Error::TooFewAxes {
                array,
                shape: owned(),
                least: 2,
            });
        };
        if *width != n_embd {
            return Err(Error::WidthMismatch {
                array,
                shape: owned(),
                n_embd,
            });
        }
        if *len != positions {
            return Err(Error::LenMismatch {
                array,
                shape: owned(),
                len: *len,
                positions,
            });
        }
        let batch = leading.first().copied().unwrap_or(1);
        match sequences {
            Some(positions) if positions != batch => Err(Error::BatchMismatch {
                array,
                shape: owned(),
                batch,
                positions,
            }),
            _ => Ok((batch, leading.iter().skip(1).product())),
        }
    }
}

impl Source<'_> {
    /// The positions as rows of a table, once all of them have one.
    fn list(&self, limit: Option<usize>) -> Result<List<'_>> {
        if let Some(block_size) = limit {
            self.check(block_size)?;
        }
        Ok(match self {
            Self::Range(range) => List::Range(range.start),
            Self::Shared(values) => List::Shared(Cow::Borrowed(values)),
            Self::PerSequence { values, .. } => List::PerSequence(Cow::Borrowed(values)),
        })
    }

    /// Refuses the first position that is not below `block_size`.
    fn check(&self, block_size: usize) -> Result<()> {
        let (values, len) = match self {
            Self::Range(range) if range.is_empty() || range.end <= block_size => return Ok(()),
            Self::Range(range) => {
                return Err(Error::RangeOutOfRange {
                    start: range.start,
                    len: range.len(),
                    block_size,
                });
            }
            Self::Shared(values) => (values, values.len()),
            Self::PerSequence { values, len, .. } => (values, *len),
        };
        // The largest first: a plain maximum is several times faster than a search that may stop early.
        if values
            .iter()
            .max()
            .is_none_or(|&largest| largest < block_size)
        {
            return Ok(());
        }
        match values.iter().position(|&position| position >= block_size) {
            Some(index) => Err(Error::PositionOutOfRange {
                position: values[index],
                block_size,
                row: index / len,
                column: index % len,
            }),
            None => Ok(()),
        }
    }
}

fn not_a_position(position: i128, index: usize, len: usize) -> Error {
    Error::NotAPosition {
        position,
        row: index / len,
        column: index % len,
    }
}

/// Positions whose number of axes the compiler knows, so that it knows that of the rows looked up for them.
///
/// | positions | rows |
/// |---|---|
/// | a range, a slice, a `Vec`, an array of one axis | `(len, n_embd)` |
/// | an array of two axes | `(batch, len, n_embd)` |
/// | [`Positions`] | either, an [`ArrayD`](ndarray::ArrayD) |
///
/// ```
/// use ndarray::{Array2, Array3, array};
/// use positional_embedding::PositionalEmbedding;
///
/// let table = PositionalEmbedding::from_weight(array![[0.0_f32], [1.0]])?;
/// let rows: Array2<f32> = table.lookup(0..2)?;
/// let batch: Array3<f32> = table.lookup(&array![[0, 1], [1, 1]])?;
/// assert_eq!((rows.dim(), batch.dim()), ((2, 1), (2, 2, 1)));
/// # Ok::<(), positional_embedding::Error>(())
/// ```
pub trait RankedPositions<'a>: Into<Positions<'a>> {
    /// The axes of the rows.
    type Rows: Dimension;
}

/// Each form in which positions are handed over, with the axes of the rows looked up for it.
macro_rules! positions_from {
    ($([$($generics:tt)*] $from:ty => $rows:ty, $argument:ident => $positions:expr;)*) => {
        $(
            impl<'a, $($generics)*> From<$from> for Positions<'a> {
                fn from($argument: $from) -> Self {
                    $positions
                }
            }

            impl<'a, $($generics)*> RankedPositions<'a> for $from {
                type Rows = $rows;
            }
        )*
    };
}

positions_from! {
    [] Range<usize> => Ix2, range => Self(Ok(Source::Range(range)));
    [T: Integer] &'a [T] => Ix2, values => Self::from_values(values, &[values.len()]);
    [T: Integer, const N: usize] &'a [T; N] => Ix2, values => Self::from(values.as_slice());
    [T: Integer, const N: usize] [T; N] => Ix2, values => Positions::from(values.as_slice()).into_owned();
    [T: Integer] &'a Vec<T> => Ix2, values => Self::from(values.as_slice());
    [T: Integer] Vec<T> => Ix2, values => Positions::from(values.as_slice()).into_owned();
    [T: Integer] &'a ArrayRef1<T> => Ix2, array => Self::from_array(&array.view());
    [T: Integer] &'a ArrayRef2<T> => Ix3, array => Self::from_array(&array.view());
    [T: Integer, S: Data<Elem = T>] &'a ArrayBase<S, Ix1> => Ix2, array => Self::from_array(&array.view());
    [T: Integer, S: Data<Elem = T>] &'a ArrayBase<S, Ix2> => Ix3, array => Self::from_array(&array.view());
    [T: Integer] ArrayView<'a, T, Ix1> => Ix2, array => Self::from_array(&array);
    [T: Integer] ArrayView<'a, T, Ix2> => Ix3, array => Self::from_array(&array);
    ['b] &'a Positions<'b> => IxDyn, positions => positions.borrowed();
}

impl<'a> RankedPositions<'a> for Positions<'a> {
    type Rows = IxDyn;
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, Axis, ShapeBuilder, array, aview1};

    fn error(positions: Positions<'_>) -> Error {
        positions.indices(None, 1, Some(4)).map(|_| ()).unwrap_err()
    }

    fn rows<'a>(positions: impl Into<Positions<'a>>) -> Vec<usize> {
        let positions: Positions<'_> = positions.into();
        positions.indices(None, 1, None).unwrap().iter().collect()
    }

    #[test]
    fn a_negative_number_is_kept_as_an_error_and_named() {
        let expected = Error::NotAPosition {
            position: -1,
            row: 0,
            column: 1,
        };
        assert_eq!(error(Positions::from(&[0_i32, -1])), expected);
        assert_eq!(error(Positions::from(&[0_i64, -1])), expected);
        assert_eq!(
            error(Positions::from(&array![[0_i64, 1], [2, i64::MIN]])),
            Error::NotAPosition {
                position: i64::MIN.into(),
                row: 1,
                column: 1
            },
        );
    }

    #[test]
    fn a_range_past_the_table_names_start_length_and_limit() {
        assert_eq!(
            error(Positions::from(2..5)),
            Error::RangeOutOfRange {
                start: 2,
                len: 3,
                block_size: 4
            }
        );
        assert!(Positions::from(4..4).indices(None, 1, Some(4)).is_ok());
        assert!(Positions::from(9..9).indices(None, 1, Some(4)).is_ok());
        assert_eq!(
            error(Positions::from(0..usize::MAX)),
            Error::RangeOutOfRange {
                start: 0,
                len: usize::MAX,
                block_size: 4
            },
        );
    }

    #[test]
    fn values_are_read_in_logical_order_whatever_the_strides() {
        let column_major =
            Array2::from_shape_vec((2, 3).f(), vec![0_usize, 3, 1, 4, 2, 5]).unwrap();
        assert_eq!(rows(&column_major), [0, 1, 2, 3, 4, 5]);
        let mut backwards = array![3_u32, 2, 1];
        backwards.invert_axis(Axis(0));
        assert_eq!(rows(&backwards), [1, 2, 3]);
        let one = aview1(&[7_usize, 8, 9]).split_at(Axis(0), 1).0;
        assert_eq!(rows(one), [7]);
    }

    #[test]
    fn lists_of_usize_are_borrowed() {
        let ids = array![[0_usize, 1], [2, 3]];
        let positions = Positions::from(&ids);
        assert!(matches!(
            positions.0,
            Ok(Source::PerSequence {
                values: Cow::Borrowed(_),
                batch: 2,
                len: 2
            })
        ));
        assert!(matches!(
            Positions::from(&positions).0,
            Ok(Source::PerSequence {
                values: Cow::Borrowed(_),
                ..
            })
        ));
    }

    #[test]
    fn what_does_not_fit_the_array_is_refused_with_both_sides() {
        let of = |positions: Positions<'_>, shape: &[usize]| {
            positions
                .indices(Some(TokenArray { name: "x", shape }), 2, None)
                .map(|_| ())
                .unwrap_err()
        };
        let shape = vec![3, 5, 2];
        assert_eq!(
            of(Positions::from(0..4), &[3, 5, 2]),
            Error::LenMismatch {
                array: "x",
                shape: shape.clone(),
                len: 5,
                positions: 4
            },
        );
        let two_rows = Array2::<usize>::zeros((2, 5));
        assert_eq!(
            of(Positions::from(&two_rows), &[3, 5, 2]),
            Error::BatchMismatch {
                array: "x",
                shape: shape.clone(),
                batch: 3,
                positions: 2
            },
        );
        assert_eq!(
            of(Positions::from(0..5), &[5, 3]),
            Error::WidthMismatch {
                array: "x",
                shape: vec![5, 3],
                n_embd: 2
            }
        );
        assert_eq!(
            of(Positions::from(0..2), &[2]),
            Error::TooFewAxes {
                array: "x",
                shape: vec![2],
                least: 2
            }
        );
    }
}
