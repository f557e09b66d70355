//! The integers in which tokenizers and tensor files write positions and ids.

use std::borrow::Cow;

/// An integer that can name a row of a table: `u8` to `u64`, `i8` to `i64`, `usize` and `isize`.
///
/// No value wraps: what is below zero, or beyond what `usize` holds, names no row and becomes an error.
///
/// ```
/// use positional_embedding::Integer;
///
/// assert_eq!(7_i64.row(), Ok(7));
/// assert_eq!((-1_i64).row(), Err(-1));
/// ```
pub trait Integer: Copy + sealed::Sealed {
    /// The row of that number.
    ///
    /// # Errors
    ///
    /// The value itself, where it is no row number.
    fn row(self) -> Result<usize, i128>;

    /// All of a slice as row numbers, borrowed where they are already.
    ///
    /// # Errors
    ///
    /// The first value that is no row number, with its index.
    #[doc(hidden)]
    fn rows(values: &[Self]) -> Result<Cow<'_, [usize]>, (usize, i128)> {
        values
            .iter()
            .enumerate()
            .map(|(index, value)| value.row().map_err(|value| (index, value)))
            .collect::<Result<Vec<_>, _>>()
            .map(Cow::Owned)
    }
}

impl Integer for usize {
    #[inline]
    fn row(self) -> Result<usize, i128> {
        Ok(self)
    }

    fn rows(values: &[Self]) -> Result<Cow<'_, [usize]>, (usize, i128)> {
        Ok(Cow::Borrowed(values))
    }
}

macro_rules! integers {
    ($($int:ty),*) => {
        $(impl Integer for $int {
            #[inline]
            fn row(self) -> Result<usize, i128> {
                usize::try_from(self).map_err(|_| self as i128)
            }
        })*

        mod sealed {
            pub trait Sealed {}
            impl Sealed for usize {}
            $(impl Sealed for $int {})*
        }
    };
}

integers!(u8, u16, u32, u64, i8, i16, i32, i64, isize);
