//! What can be wrong with a call: which value, against which limit, and where it stood.

use std::fmt::Display;

/// The result of a call that can be refused.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call was refused. Each variant holds both sides of what did not fit.
///
/// A refused call has written nothing: every buffer is as it was.
///
/// ```
/// use ndarray::Array2;
/// use positional_embedding::{Error, PositionalEmbedding};
///
/// let table = PositionalEmbedding::<f32>::from_weight(Array2::zeros((4, 3)))?;
/// let error = table.lookup(&[0_usize, 4]).unwrap_err();
/// assert_eq!(error, Error::PositionOutOfRange { position: 4, block_size: 4, row: 0, column: 1 });
/// assert_eq!(error.to_string(), "position 4 (batch row 0, column 1) is out of range: block_size is 4, so 0 to 3 are valid");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A position has no row in the table.
    #[error(
        "position {position} (batch row {row}, column {column}) is out of range: block_size is {block_size}, so 0 to {} are valid",
        block_size.saturating_sub(1)
    )]
    PositionOutOfRange {
        /// The position asked for.
        position: usize,
        /// Rows of the table.
        block_size: usize,
        /// The sequence in which it stood; 0 for a list that the batch shares.
        row: usize,
        /// Its place in that sequence.
        column: usize,
    },

    /// A range of positions runs past the end of the table.
    #[error("{len} positions from {start} run past the table: block_size is {block_size}, so position {} does not exist", start.max(block_size))]
    RangeOutOfRange {
        /// The first position of the range.
        start: usize,
        /// The number of positions.
        len: usize,
        /// Rows of the table.
        block_size: usize,
    },

    /// A position that is no position: below zero, or beyond what `usize` holds.
    #[error(
        "position {position} (batch row {row}, column {column}) is out of range: positions count from 0 to {}",
        usize::MAX
    )]
    NotAPosition {
        /// The value given.
        position: i128,
        /// The sequence in which it stood; 0 for a list that the batch shares.
        row: usize,
        /// Its place in that sequence.
        column: usize,
    },

    /// A token id has no row in the table.
    #[error(
        "token id {id} (batch row {row}, column {column}) is out of range: vocab_size is {vocab_size}, so 0 to {} are valid",
        vocab_size.saturating_sub(1)
    )]
    TokenOutOfRange {
        /// The id given.
        id: i128,
        /// Rows of the table.
        vocab_size: usize,
        /// The sequence in which it stood, counted over all leading axes.
        row: usize,
        /// Its place in that sequence.
        column: usize,
    },

    /// An array has too few axes.
    #[error(
        "{array} has shape {shape:?}: it needs at least {least} axes, the last two being (len, n_embd)"
    )]
    TooFewAxes {
        /// Which array.
        array: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// The fewest axes it may have.
        least: usize,
    },

    /// The last axis of an array is not as wide as the embedding.
    #[error("{array} has shape {shape:?}: its last axis must be n_embd = {n_embd} wide")]
    WidthMismatch {
        /// Which array.
        array: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// The width of the embedding.
        n_embd: usize,
    },

    /// There are more or fewer positions than tokens in a sequence.
    #[error(
        "{array} has shape {shape:?}, so its sequences have {len} tokens, but there are {positions} positions"
    )]
    LenMismatch {
        /// Which array.
        array: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// Tokens in each of its sequences.
        len: usize,
        /// Positions given for a sequence.
        positions: usize,
    },

    /// Positions for each sequence were given for another number of sequences.
    #[error(
        "{array} has shape {shape:?}, so its batch is {batch}, but there are positions for {positions} sequences"
    )]
    BatchMismatch {
        /// Which array.
        array: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// Its sequences.
        batch: usize,
        /// Sequences for which positions were given.
        positions: usize,
    },

    /// An array has another shape than the call needs. Nothing is ever stretched to fit.
    #[error("{array} has shape {found:?}, but {expected:?} is needed")]
    ShapeMismatch {
        /// Which array.
        array: &'static str,
        /// The shape it has.
        found: Vec<usize>,
        /// The shape it must have.
        expected: Vec<usize>,
    },

    /// A setting that cannot be.
    #[error("{name} is {value}, but {must}")]
    InvalidSetting {
        /// The setting.
        name: &'static str,
        /// The value given.
        value: String,
        /// What it must be.
        must: String,
    },

    /// An array would be larger than this machine can hold.
    #[error("an array of shape {shape:?} does not fit into memory")]
    TooLarge {
        /// The shape asked for.
        shape: Vec<usize>,
    },
}

impl Error {
    /// A setting refused by its constructor, with the value as it prints.
    pub(crate) fn setting(
        name: &'static str,
        value: impl Display,
        must: impl Into<String>,
    ) -> Self {
        Self::InvalidSetting {
            name,
            value: value.to_string(),
            must: must.into(),
        }
    }
}

/// Refuses an array of another shape than the call needs.
pub(crate) fn check_shape(array: &'static str, found: &[usize], expected: &[usize]) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::ShapeMismatch {
        array,
        found: found.to_vec(),
        expected: expected.to_vec(),
    })
}
